"""Entries as a reader gets them: one by one with their ids, or consecutive ones together. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bookkeeper.wire.entry_size import payload_size_max

__all__ = ["Entry", "PayloadBatch", "entries_of", "payload_size_max"]


class Entry(NamedTuple):
    """One entry as it was appended."""

    entry_id: int
    payload: bytes


_new_entry: Callable[[tuple[int, bytes]], Entry] = functools.partial(tuple.__new__, Entry)
"""Half the time of `Entry(...)`, which is a function in Python that calls this."""


def entries_of(first_entry_id: int, payloads: Sequence[bytes]) -> list[Entry]:
    """Consecutive entries one by one."""
    entry_ids = range(first_entry_id, first_entry_id + len(payloads))
    return list(map(_new_entry, zip(entry_ids, payloads, strict=True)))


@dataclass(frozen=True, slots=True)
class PayloadBatch:
    """Consecutive entries as they were appended, without an object for each: entry `first_entry_id` + n is payload n.

    For who reads very many of them: a third less time than entries one by one. Without any it is false.
    """

    first_entry_id: int
    payloads: Sequence[bytes]

    @property
    def entry_ids(self) -> range:
        """The ids of the entries."""
        return range(self.first_entry_id, self.first_entry_id + len(self.payloads))

    def __len__(self) -> int:
        return len(self.payloads)
