"""One thing that is wrong with a bookie's files, for whoever checks them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.errors import CorruptRecord, StorageError


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. offset: in the file, None for the file as a whole."""

    path: str
    offset: int | None
    why: str
    ledger_id: int | None = None
    entry_id: int | None = None

    def __str__(self) -> str:
        place = self.path if self.offset is None else f"{self.path} at offset {self.offset}"
        return f"{place}: {self.why}"


def fault_of(error: StorageError, path: str, ledger_id: int | None) -> Fault:
    """The fault that an error tells; `path` where it names none."""
    if isinstance(error, CorruptRecord):
        return Fault(error.path, error.offset, error.why, ledger_id)
    return Fault(path, None, str(error), ledger_id)
