"""Which error ends a bookie's start with which of BookKeeper's exit codes."""

from __future__ import annotations

import pytest

from bookkeeper.bookie.process.exit_codes import ExitCode, exit_code_of
from bookkeeper.errors import (
    AlreadyRegistered,
    ConfigurationError,
    CookieMismatch,
    CorruptRecord,
    DirectoryInUse,
    DirectoryUnusable,
    MetadataUnavailable,
    NotInitialised,
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
