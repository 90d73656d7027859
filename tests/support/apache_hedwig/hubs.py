"""Hubs of both kinds as processes, told apart by nothing but their kind."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bookkeeper.embedded.process import dying_with_parent, free_port
from bookkeeper.metadata.uri import parse_uri
from tests.support.apache_hedwig.fetched import HedwigJars, find_hedwig
from tests.support.process_output import await_output, tail

OURS = "our hub"
START_TIMEOUT_S = 40
STOP_TIMEOUT_S = 20
SESSION_TIMEOUT_MS = 2000
"""A killed hub's topics are its own until its session ends."""


class HubProcess:
    """A hub on a cluster. A context manager; what still runs at the end is killed.

    prefix: the root of the hubs' records: those of one prefix share topics.
    """

    kind: str
    serves: re.Pattern[bytes]

    def __init__(self, directory: Path, uri: str, prefix: str) -> None:
        self.port = free_port()
        self.uri, self.prefix = uri, prefix
        self.directory = directory / f"{self.kind.replace(' ', '-')}-{self.port}"
        self.log_path = self.directory / "hub.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def server(self) -> str:
        """As a client's default_server_host has it."""
        return f"127.0.0.1:{self.port}:-1"

    def command(self) -> Sequence[str]:
        """The program."""
        raise NotImplementedError

    def start(self, *, wait: bool = True) -> None:
        """Run it; with `wait`, returns once it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(self.command()), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it serves. Fails the test with the end of its log when it does not."""
        assert self._process is not None
        why = await_output(self._process, self.log_path, self.serves, timeout_s=START_TIMEOUT_S)
        if why is not None:
            self.kill()
            pytest.fail(f"{self.kind} did not start: {why}\n{tail(self.log_path)}")

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL; does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class OurHub(HubProcess):
    """One of ours."""

    kind = OURS
    serves = re.compile(rb"^serving 127\.0\.0\.1", re.MULTILINE)

    def command(self) -> Sequence[str]:
        """See HubProcess."""
        program = "tests.support.apache_hedwig.run_our_hub"
        return [sys.executable, "-m", program, self.uri, str(self.port), self.prefix]


class ApacheHub(HubProcess):
    """A genuine one: as it comes, but with short sessions."""

    serves = re.compile(rb"Going into receive loop")

    def __init__(self, jars: HedwigJars, directory: Path, uri: str, prefix: str) -> None:
        self._jars = jars
        self.kind = f"Apache's {jars.version}"
        super().__init__(directory, uri, prefix)

    def command(self) -> Sequence[str]:
        """See HubProcess."""
        service = parse_uri(self.uri)
        settings = {
            "server_port": self.port,
            "ssl_server_port": free_port(),  # advertised, and not bound
            "zk_host": service.connect_string,
            "zk_timeout": SESSION_TIMEOUT_MS,
            "zk_prefix": self.prefix,
            "zkLedgersRootPath": service.root,
        }
        if service.kind is not None:
            settings["ledgerManagerFactoryClass"] = service.kind.value
        conf_path = self.directory / "hub.conf"
        conf_path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return self._jars.command("org.apache.hedwig.server.netty.PubSubServer", conf_path)


def hub_of(kind: str, directory: Path, uri: str, prefix: str) -> HubProcess:
    """A hub that does not run yet. kind: OURS, or a release of HUB_VERSIONS; skips the test where there is none."""
    if kind == OURS:
        return OurHub(directory, uri, prefix)
    return ApacheHub(find_hedwig("server", kind), directory, uri, prefix)
