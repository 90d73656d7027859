"""Which error ends a bookie's start with which of BookKeeper's exit codes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bookkeeper.bookie import exits
from bookkeeper.bookie.exits import ExitCode, exit_code_of, fatal_text
from bookkeeper.config import ServerSettings
from bookkeeper.errors import (
    AlreadyRegistered,
    ConfigurationError,
    CookieMismatch,
    CorruptRecord,
    DirectoryInUse,
    DirectoryUnusable,
    MetadataUnavailable,
    NotInitialised,
    NoWritableDisk,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("port 3181 is taken"), ExitCode.BAD_CONFIGURATION),
        (MetadataUnavailable("no server"), ExitCode.SERVER_ERROR),
        (NotInitialised("no cluster"), ExitCode.SERVER_ERROR),
        (RuntimeError("a fault of ours"), ExitCode.SERVER_ERROR),
        (AlreadyRegistered("taken"), ExitCode.REGISTRATION_FAILED),
        (CookieMismatch("foreign"), ExitCode.BOOKIE_ERROR),
        (DirectoryInUse("locked"), ExitCode.BOOKIE_ERROR),
        (DirectoryUnusable("not a directory"), ExitCode.BOOKIE_ERROR),
        (CorruptRecord("1.txn", 512, "bad checksum"), ExitCode.BOOKIE_ERROR),
        (OSError(5, "Input/output error"), ExitCode.BOOKIE_ERROR),
    ],
)
def test_exit_codes_are_bookkeepers(error: BaseException, code: ExitCode) -> None:
    assert exit_code_of(error) is code


def settings() -> ServerSettings:
    return ServerSettings(
        journal_directories=(Path("/data/j"),),
        ledger_directories=(Path("/data/l1"), Path("/data/l2")),
        metadata_service_uri="zk+null://zk1/ledgers",
    )


def test_a_fatal_error_of_a_device_names_file_setting_and_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits, "mount_of", lambda path: f"/dev/sdb1 at /data ({path})")
    path = "/data/l2/current/0.log"
    text = fatal_text(OSError(errno.EIO, "Input/output error", path), settings())
    expected = f"[Errno 5] Input/output error: '{path}'; ledgerDirectories=/data/l2; indexDirectories=/data/l2"
    assert text == f"{expected}; file system: /dev/sdb1 at /data ({path})"


def test_a_fatal_error_names_the_file_of_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits, "mount_of", lambda _: None)
    error = NoWritableDisk("no ledger directory takes entries")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/data/j/current/1.txn")
    text = fatal_text(error, settings())
    assert text == "no ledger directory takes entries; /data/j/current/1.txn; journalDirectories=/data/j"


def test_a_fatal_error_of_rights_names_the_user() -> None:
    text = fatal_text(PermissionError(errno.EACCES, "Permission denied", "/data/j/current"), settings())
    assert text.endswith(f"'/data/j/current'; journalDirectories=/data/j; user id {os.geteuid()} needs access to it")


def test_another_fatal_error_stays_as_it_is() -> None:
    assert fatal_text(ConfigurationError("port 3181 is taken"), settings()) == "port 3181 is taken"
