"""Hubs of both kinds as processes, told apart by nothing but their kind."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from bookkeeper.embedded.process import dying_with_parent, free_port
from bookkeeper.metadata.uri import parse_uri
from hedwig.embedded import LocalHub
from tests.support.apache_hedwig.fetched import HedwigJars, find_hedwig
from tests.support.process_output import await_output, tail

OURS = "our hub"
START_TIMEOUT_S = 100
STOP_TIMEOUT_S = 60
SESSION_TIMEOUT_MS = 20_000
"""Session timeout of hubs. A genuine hub that pauses for longer exits. For killed hubs, see `zookeeper_sessions`."""
READ_TIMEOUT_S = 60
"""Request timeout of the hubs' ledger clients: they do not replace a bookie that pauses for seconds."""
SERVES = re.compile(rb"Going into receive loop")

_numbers = itertools.count(1)


class HubProcess(Protocol):
    """A hub on a cluster."""

    kind: str
    port: int

    @property
    def server(self) -> str:
        """As a client's default_server_host has it."""

    def start(self, *, wait: bool = True) -> None:
        """Run it; with `wait`, returns once it serves."""

    def wait_ready(self) -> None:
        """Return once it serves; fails with the end of its log when it does not."""

    def stop(self) -> int:
        """SIGTERM; the exit code."""

    def kill(self) -> None:
        """SIGKILL; does nothing when it does not run."""


class OurHub(LocalHub):
    """One of ours."""

    kind = OURS

    @property
    def server(self) -> str:
        """See HubProcess."""
        return self.address


class ApacheHub:
    """A genuine hub with its default settings, except for long timeouts."""

    def __init__(self, jars: HedwigJars, directory: Path, uri: str, prefix: str, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.kind, self.port = f"Apache's {jars.version}", free_port()
        self._ssl_port = free_port()  # advertised, and served where ssl_enabled says so
        self._jars, self._uri, self._prefix, self._directory = jars, uri, prefix, directory
        self.log_path = directory / "hub.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def server(self) -> str:
        """See HubProcess."""
        return f"127.0.0.1:{self.port}:{self._ssl_port}"

    def start(self, *, wait: bool = True) -> None:
        """See HubProcess."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(self._command()), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """See HubProcess."""
        assert self._process is not None
        why = await_output(self._process, self.log_path, SERVES, timeout_s=START_TIMEOUT_S)
        if why is not None:
            self.kill()
            pytest.fail(f"{self.kind} hub did not start: {why}\n{tail(self.log_path)}")
        if self._settings.get("ssl_enabled") == "true":
            self._await_tls_port()

    def _await_tls_port(self) -> None:
        """It says that it serves before it listens there."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._ssl_port), 1).close()
            except ConnectionRefusedError:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.05)
                    break
            else:
                return
        pytest.fail(f"{self.kind} hub does not listen for TLS\n{tail(self.log_path)}")

    def stop(self) -> int:
        """See HubProcess."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """See HubProcess."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _command(self) -> list[str]:
        service = parse_uri(self._uri)
        settings = {
            "server_port": self.port,
            "ssl_server_port": self._ssl_port,
            "zk_host": service.connect_string,
            "zk_timeout": SESSION_TIMEOUT_MS,
            "zk_prefix": self._prefix,
            "zkLedgersRootPath": service.root,
            "readTimeout": READ_TIMEOUT_S,
            **self._settings,
        }
        if service.kind is not None:
            settings["ledgerManagerFactoryClass"] = service.kind.value
        conf_path = self._directory / "hub.conf"
        conf_path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return self._jars.command("org.apache.hedwig.server.netty.PubSubServer", conf_path)


def hub_of(kind: str, directory: Path, uri: str, prefix: str, settings: Mapping[str, str] | None = None) -> HubProcess:
    """A hub that does not run yet. kind: OURS, or a release of HUB_VERSIONS; skips the test where there is none.

    prefix: the root of the hubs' records: those of one prefix share topics. settings: more keys, which both kinds know.
    """
    more = dict(settings or {})
    number = next(_numbers)
    below = directory / f"hub-{number}"
    if kind == OURS:
        patience = {"zk_timeout": str(SESSION_TIMEOUT_MS), "readTimeout": str(READ_TIMEOUT_S)}
        settings = {"zk_prefix": prefix, **patience, **more}
        return OurHub(number, below, uri, settings=settings)
    return ApacheHub(find_hedwig("server", kind), below, uri, prefix, more)
