"""Collecting good copies of some entries from whoever has them. Events in, requests out; pure.

    wanted --asked of the next source--> good body       kept
       ^                                    |
       `--- denied, damaged, no verdict ----'            the next source; after the last one the entry is unreadable

Each entry has an order of sources of its own; none of them is asked twice. Values are whatever the driver makes of a
body whose digest was good; a value of None says that the copy is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from bookkeeper.model import BookieId
from bookkeeper.protocol.reads import ReadRequest, as_answer

V = TypeVar("V")

DAMAGED = "the digest does not match"
"""What is noted of a copy that failed its digest."""


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """An entry that no source delivered, and what each of them said."""

    entry_id: int
    answers: Mapping[BookieId, object]


class Gather(Generic[V]):
    """Entries of one ledger, each wanted once.

    sources: of an entry, whom to ask in which order. Memory: the values, and what sources answered that did not
    deliver.
    """

    def __init__(self, entry_ids: Sequence[int], sources: Callable[[int], Sequence[BookieId]]) -> None:
        self._entry_ids = entry_ids
        self._sources = sources
        self._values: dict[int, V] = {}
        self._asked: dict[int, int] = {}  # how many sources were asked, of entries that needed more than one
        self._answers: dict[int, dict[BookieId, object]] = {}
        self._unreadable: list[int] = []

    def start(self) -> list[ReadRequest]:
        """Ask the first source of every entry."""
        requests: dict[BookieId, list[int]] = {}
        for entry_id in self._entry_ids:
            self._ask(entry_id, 0, requests)
        return _joined(requests)

    def on_bodies(self, bookie_id: BookieId, entry_ids: Sequence[int], values: Sequence[V | None]) -> list[ReadRequest]:
        """`bookie_id` delivered these; a value of None is a damaged copy."""
        kept = self._values
        damaged = []
        for entry_id, value in zip(entry_ids, values, strict=True):
            if value is None:
                damaged.append(entry_id)
            elif entry_id not in kept:
                kept[entry_id] = value
        return self.on_failed(bookie_id, damaged, DAMAGED) if damaged else []

    def on_failed(self, bookie_id: BookieId, entry_ids: Iterable[int], why: object) -> list[ReadRequest]:
        """`bookie_id` does not deliver these, whatever the reason."""
        requests: dict[BookieId, list[int]] = {}
        for entry_id in entry_ids:
            answers = self._answers.setdefault(entry_id, {})
            if entry_id in self._values or bookie_id in answers:
                continue
            answers[bookie_id] = why
            self._ask(entry_id, self._asked.get(entry_id, 1), requests)
        return _joined(requests)

    @property
    def done(self) -> bool:
        """Nothing is waited for."""
        return len(self._values) + len(self._unreadable) == len(self._entry_ids)

    @property
    def unreadable(self) -> UnreadableEntry | None:
        """The first entry that no source delivers."""
        if not self._unreadable:
            return None
        entry_id = min(self._unreadable)
        answers = self._answers.get(entry_id, {})
        return UnreadableEntry(entry_id, {bookie: as_answer(why) for bookie, why in answers.items()})

    @property
    def failures(self) -> Mapping[int, Mapping[BookieId, object]]:
        """By entry, who did not deliver it and why."""
        return self._answers

    def take(self) -> list[V]:
        """All values in the order of the entries. Only when `done` and nothing is unreadable; nothing is kept."""
        assert not self._unreadable, "an entry is unreadable"
        values, self._values = self._values, {}
        return [values[entry_id] for entry_id in self._entry_ids]

    def _ask(self, entry_id: int, position: int, requests: dict[BookieId, list[int]]) -> None:
        sources = self._sources(entry_id)
        if position >= len(sources):
            self._unreadable.append(entry_id)
            return
        if position:
            self._asked[entry_id] = position + 1
        requests.setdefault(sources[position], []).append(entry_id)


def _joined(requests: Mapping[BookieId, list[int]]) -> list[ReadRequest]:
    return [ReadRequest(bookie_id, entry_ids) for bookie_id, entry_ids in requests.items()]
