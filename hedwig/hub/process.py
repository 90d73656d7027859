"""A hub as a process: its configuration in, a registered and serving hub, an exit code out.

SIGTERM and SIGINT, which whoever runs the reactor turns into its end, stop the hub in order. A hub whose session with
ZooKeeper ends goes on, registers anew and acquires its topics again as they are asked for.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import ConfigurationError
from bookkeeper.system.fatal import log_fatal
from bookkeeper.system.sd_notify import notify
from hedwig.errors import StaleVersion
from hedwig.hub.server import Hub
from hedwig.hub.tuning import hub_settings

if TYPE_CHECKING:
    from hedwig.config.hub import HubConfig

log = Logger()


class ExitCode(enum.IntEnum):
    """How a hub's process ended; a bookie's codes, where they mean the same."""

    OK = 0
    BAD_CONFIGURATION = 1
    SERVER_ERROR = 2
    REGISTRATION_FAILED = 4
    NOT_RELEASED = 5


def exit_code_of(error: BaseException) -> ExitCode:
    """Which exit code tells of `error` at start."""
    if isinstance(error, ConfigurationError):
        return ExitCode.BAD_CONFIGURATION
    if isinstance(error, StaleVersion):
        return ExitCode.REGISTRATION_FAILED
    return ExitCode.SERVER_ERROR


class HubProcess:
    """One hub process. Thread: reactor, which the caller runs; this one stops it at the end.

    texts: key -> effective value, secrets hidden; shown over HTTP.
    """

    def __init__(self, config: HubConfig, reactor: Any, texts: Callable[[], Mapping[str, str]] | None = None) -> None:
        self._config, self._reactor, self._texts = config, reactor, texts
        self._hub: Hub | None = None
        self._exit_code = ExitCode.OK
        self._serving = False
        self._stopping: Deferred[None] | None = None

    @property
    def exit_code(self) -> int:
        """What the process should exit with, once the reactor has stopped."""
        return int(self._exit_code)

    def start(self) -> None:
        """Begin; to be called when the reactor runs. Whoever stops the reactor (a signal, say) stops the hub."""
        self._reactor.addSystemEventTrigger("before", "shutdown", self._stop)
        Deferred.fromCoroutine(self._start()).addErrback(self._start_failed)

    async def _start(self) -> None:
        settings = hub_settings(self._config)
        hub = self._hub = Hub(self._reactor, settings, self._texts)
        await hub.start()
        if self._stopping is not None:
            return
        log.info(
            "Hub {address} serves region {region} of {metadata_uri}",
            address=hub.address,
            region=settings.region,
            metadata_uri=settings.metadata_uri,
        )
        self._serving = True
        _tell("READY=1")

    def _start_failed(self, failure: Failure) -> None:
        if self._stopping is not None:
            return  # told to stop while starting; what was under way fails, and nobody cares
        error = failure.value
        assert error is not None
        log_fatal(log, "The hub did not start", failure)
        self._exit_code = exit_code_of(error)
        with contextlib.suppress(ReactorNotRunning):
            self._reactor.stop()

    def _stop(self) -> Deferred[None]:
        if self._stopping is None:
            self._stopping = Deferred.fromCoroutine(self._stop_hub())
            self._stopping.addErrback(self._stop_failed)
        return self._stopping

    async def _stop_hub(self) -> None:
        hub = self._hub
        if hub is None:
            return
        if self._serving:
            log.info("Stopping")
            _tell("STOPPING=1")
        await hub.stop()
        if hub.overdue:
            self._exit_code = ExitCode.NOT_RELEASED
        elif self._serving:
            log.info("Stopped")

    def _stop_failed(self, failure: Failure) -> None:
        log_fatal(log, "The hub did not stop cleanly; its topics are taken over as after a crash", failure)
        self._exit_code = ExitCode.NOT_RELEASED


def _tell(state: str) -> None:
    try:
        notify(state)
    except OSError as error:
        log.debug(
            "Nobody listens on NOTIFY_SOCKET={address}: {error}", address=os.environ.get("NOTIFY_SOCKET"), error=error
        )
