"""The last log line of a server that ends by an error names the file, its setting and its device."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from bookkeeper.cli import autorecovery
from bookkeeper.config import ClientSettings, ConfText, ServerSettings, load_server
from bookkeeper.console import auto_recovery
from bookkeeper.errors import ConfigurationError, NoWritableDisk
from bookkeeper.replication.daemon import AutoRecovery
from bookkeeper.system import fatal
from bookkeeper.system.fatal import fatal_text, log_fatal
from hedwig.config.load import load_hub
from hedwig.hub import process as hub_process

SETTINGS = ServerSettings(
    journal_directories=(Path("/data/j"),),
    ledger_directories=(Path("/data/l1"), Path("/data/l2")),
    metadata_service_uri="zk+null://zk1/ledgers",
)


@pytest.fixture
def critical() -> Any:
    """Return the lines that are logged at level critical."""
    lines: list[str] = []

    def take(event: LogEvent) -> None:
        if event["log_level"] is LogLevel.critical:
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(take)
    yield lines
    globalLogPublisher.removeObserver(take)


def test_an_error_of_a_device_names_file_setting_and_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatal, "mount_of", lambda path: f"/dev/sdb1 at /data ({path})")
    path = "/data/l2/current/0.log"
    text = fatal_text(OSError(errno.EIO, "Input/output error", path), SETTINGS.directories)
    expected = f"[Errno 5] Input/output error: '{path}'; ledgerDirectories=/data/l2; indexDirectories=/data/l2"
    assert text == f"{expected}; file system: /dev/sdb1 at /data ({path})"


def test_an_error_names_the_file_of_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatal, "mount_of", lambda _: None)
    error = NoWritableDisk("no ledger directory takes entries")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/data/j/current/1.txn")
    text = fatal_text(error, SETTINGS.directories)
    assert text == "no ledger directory takes entries; /data/j/current/1.txn; journalDirectories=/data/j"


def test_an_error_of_rights_names_the_user() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "/data/j/current")
    text = fatal_text(error, SETTINGS.directories)
    assert text.endswith(f"'/data/j/current'; journalDirectories=/data/j; user id {os.geteuid()} needs access to it")


def test_another_error_stays_as_it_is() -> None:
    assert fatal_text(ConfigurationError("port 3181 is taken"), SETTINGS.directories) == "port 3181 is taken"


def test_a_fault_of_ours_is_logged_with_its_traceback(critical: list[str]) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        _ = 1 // 0
    with_failure: list[LogEvent] = []
    globalLogPublisher.addObserver(with_failure.append)
    try:
        log_fatal(Logger(), "The server did not start", Failure(raised.value))
    finally:
        globalLogPublisher.removeObserver(with_failure.append)
    assert critical == ["The server did not start"]
    assert with_failure[0]["log_failure"].value is raised.value


# --- each server


class FakeReactor(Clock):
    """A clock that stands in for a server's reactor."""

    stopped = False

    def addSystemEventTrigger(self, *_: object) -> None:
        """Do nothing: no trigger fires."""

    def stop(self) -> None:
        """Note that the server ends."""
        self.stopped = True


CERTIFICATE = "/etc/ssl/hub.pem"


class Broken:
    """A part with a start that meets a file that this user must not read."""

    def __init__(self, *_: object) -> None: ...

    async def start(self) -> None:
        """Fail."""
        error = ConfigurationError(f"cert_path={CERTIFICATE} cannot be read: Permission denied")
        raise error from PermissionError(errno.EACCES, "Permission denied", CERTIFICATE)


def start_hub(monkeypatch: pytest.MonkeyPatch, reactor: FakeReactor) -> int:
    monkeypatch.setattr(hub_process, "Hub", Broken)
    hub = hub_process.HubProcess(load_hub(ConfText("hw.conf", ""), {}, {}).settings, reactor)
    hub.start()
    return hub.exit_code


def start_auto_recovery(monkeypatch: pytest.MonkeyPatch, reactor: FakeReactor) -> int:
    monkeypatch.setattr(auto_recovery, "make_auto_recovery", Broken)
    loaded = load_server(ConfText("bk.conf", "metadataServiceUri=zk+null://zk1/ledgers"), {}, {})
    process = autorecovery.Process(loaded, ClientSettings(), reactor)
    process.start()
    return process.exit_code


@pytest.mark.parametrize("start", [start_hub, start_auto_recovery])
def test_a_server_that_does_not_start_names_the_user_who_may_not_read_a_file(
    start: Callable[[pytest.MonkeyPatch, FakeReactor], int], monkeypatch: pytest.MonkeyPatch, critical: list[str]
) -> None:
    reactor = FakeReactor()
    assert start(monkeypatch, reactor) == 1
    assert reactor.stopped
    (line,) = critical
    assert line.endswith(f"{CERTIFICATE} cannot be read: Permission denied; user id {os.geteuid()} needs access to it")


def test_auto_recovery_beside_a_bookie_names_the_mount_of_a_failed_device(
    monkeypatch: pytest.MonkeyPatch, critical: list[str]
) -> None:
    monkeypatch.setattr(fatal, "mount_of", lambda path: f"/dev/sdb1 at /data ({path})")

    async def connect() -> Any:
        raise OSError(errno.EIO, "Input/output error", CERTIFICATE)

    AutoRecovery(connect, lambda _: [], Clock()).keep_starting()
    expected = f"[Errno 5] Input/output error: '{CERTIFICATE}'; file system: /dev/sdb1 at /data ({CERTIFICATE})"
    assert critical == [f"Auto-recovery does not run: {expected}"]
