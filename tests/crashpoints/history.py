"""What a bookie was asked and what it answered, and what must therefore hold after it is gone. Pure.

A `Belief` is made from the events up to a moment:

    never asked            must not be there: no entry, no fence, no ledger
    asked, not answered    may be there or not; if it is, as asked
    damaged, moved         see the events
    answered OK            must be there, as asked; a deferred add after a power cut only once it was forced
    refused                must not be there
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bookkeeper.model import Status
from tests.support.stored_ledgers import entry_body


def key_of(ledger_id: int) -> bytes:
    """The master key of a ledger."""
    return struct.pack(">q12s", ledger_id, b"master key  ")


PAYLOAD = slice(36, None)
"""Of a body with a CRC32C."""


def body_of(ledger_id: int, entry_id: int, version: int = 0, *, lac: int = -1) -> bytes:
    """An entry whose every byte depends on what it is; 50 to 350 bytes."""
    text = f"{ledger_id}/{entry_id}/{version}|".encode()
    size = 20 + (ledger_id * 37 + entry_id * 101) % 300
    return entry_body(ledger_id, entry_id, (text * (size // len(text) + 1))[:size], lac=lac, length=entry_id + 1)


@dataclass(frozen=True, slots=True)
class Add:
    """Entries of one ledger."""

    ledger_id: int
    key: bytes
    bodies: Mapping[int, bytes]
    deferred: bool


@dataclass(frozen=True, slots=True)
class Fence:
    """A fencing read."""

    ledger_id: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Lac:
    """An explicit LAC."""

    ledger_id: int
    key: bytes
    packet: bytes


@dataclass(frozen=True, slots=True)
class Force:
    """A force of what was deferred."""

    ledger_id: int


Request = Add | Fence | Lac | Force


@dataclass(frozen=True, slots=True)
class Asked:
    """A request reached the bookie."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """Its answer left the bookie."""

    number: int
    answer: bytes | Status


@dataclass(frozen=True, slots=True)
class PowerLost:
    """The machine went off: what was not synced may be gone."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The metadata store has the ledger no more."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class Damaged:
    """Bytes of these entries in an entry log have changed at rest: they may be answered as unknown, never denied.

    path: of the file. entry_ids: None for an index file, or where it is gone: so may be the ledger as a whole.
    """

    path: str
    ledger_id: int
    entry_ids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Mended:
    """The ledger's index file was made anew: everything counts again."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class Moved:
    """The metadata store has the ledger, closed, on other bookies only: the copy here may go at any time."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class Repairing:
    """Somebody has locked the ledger and copies it to this bookie: what is acknowledged from now on stays."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class Returned:
    """The metadata store names this bookie again, and the lock is given back."""

    ledger_id: int


Event = Asked | Answered | PowerLost | Deleted | Damaged | Mended | Moved | Repairing | Returned


class History:
    """Events in their order."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)

    @property
    def moment(self) -> int:
        """How many events there were."""
        return len(self.events)

    def ask(self, request: Request) -> Asked:
        """A request."""
        asked = Asked(self.moment, request)
        self.events.append(asked)
        return asked

    def note(self, event: Event) -> None:
        """An answer."""
        self.events.append(event)

    def answer_of(self, asked: Asked) -> bytes | Status | None:
        """The answer to a request, None so far."""
        for event in reversed(self.events):
            if isinstance(event, Answered) and event.number == asked.number:
                return event.answer
        return None


@dataclass(slots=True)
class Entry:
    """One entry id. possible: bodies that it may have. held: it must be there; forced: after a power cut, too.

    agreed: those of the possible ones that say the same as the one that was acknowledged first (I-69).
    asked_last: number of the newest request with it. damaged: its bytes were, and nobody has written it since.
    """

    possible: list[bytes] = field(default_factory=list)
    agreed: list[bytes] = field(default_factory=list)
    held: bool = False
    forced: bool = False
    asked_last: int = -1
    damaged: bool = False


@dataclass(slots=True)
class Ledger:
    """What may and what must be known of a ledger."""

    entries: dict[int, Entry] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    has_key: bool = False
    may_be_fenced: bool = False
    fenced: bool = False
    lacs: list[bytes] = field(default_factory=list)
    lac: bytes | None = None
    asked: int = 0
    """Requests that may have created it."""
    deleted: bool = False
    """From the metadata store: whatever was promised of it, but its fence, is void."""
    index_damaged: bool = False
    elsewhere: bool = False
    """Moved, and nobody copies it back: nothing is promised of it."""
    moved: bool = False
    """It was elsewhere at some time. writers_refused: and its copy here had gone."""
    writers_refused: bool = False

    @property
    def must_have_key(self) -> bool:
        """Something of it was acknowledged; all of it comes with the key."""
        return self.has_key or any(entry.held for entry in self.entries.values())


class Belief:
    """What must hold, from the events so far."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self.damaged_paths: set[str] = set()
        self._open: dict[int, Request] = {}
        for event in events:
            if isinstance(event, Asked):
                self._ask(event.number, event.request)
            elif isinstance(event, Deleted):
                self.ledgers[event.ledger_id].deleted = True
            elif isinstance(event, Damaged | Mended):
                self._damage(self.ledgers[event.ledger_id], event)
            elif isinstance(event, Moved):
                _void(self.ledgers[event.ledger_id])
            elif isinstance(event, Repairing | Returned):
                self.ledgers[event.ledger_id].elsewhere = False
            elif isinstance(event, PowerLost):
                for ledger in self.ledgers.values():
                    for entry in ledger.entries.values():
                        entry.held = entry.forced
                        if not entry.held:
                            entry.agreed = []
            else:
                request = self._open.pop(event.number)
                if isinstance(event.answer, bytes) or event.answer in _DONE[type(request)]:
                    self._grant(event.number, request)
                elif event.answer in _REFUSED:
                    self._refuse(request)
                    ledger = self.ledgers[request.ledger_id]
                    ledger.writers_refused |= ledger.moved and event.answer is Status.FENCED

    def _damage(self, ledger: Ledger, event: Damaged | Mended) -> None:
        if isinstance(event, Mended):
            ledger.index_damaged = False
            return
        self.damaged_paths.add(event.path)
        if event.entry_ids is not None:
            for entry_id in event.entry_ids:
                ledger.entries[entry_id].damaged = True
        else:
            # Whoever makes the file anew cannot know whether there was a fence, nor which explicit LAC was the last.
            ledger.index_damaged = ledger.may_be_fenced = True
            ledger.lac = None

    def _ask(self, number: int, request: Request) -> None:
        self._open[number] = request
        ledger = self.ledgers.setdefault(request.ledger_id, Ledger())
        if isinstance(request, Force):
            return
        ledger.asked += 1
        ledger.keys.append(request.key)
        if isinstance(request, Add):
            for entry_id, body in request.bodies.items():
                entry = ledger.entries.setdefault(entry_id, Entry())
                entry.possible.append(body)
                entry.asked_last = number
        elif isinstance(request, Fence):
            ledger.may_be_fenced = True
        else:
            ledger.lacs.append(request.packet)

    def _grant(self, number: int, request: Request) -> None:
        ledger = self.ledgers[request.ledger_id]
        if isinstance(request, Force):
            for entry in ledger.entries.values():
                entry.forced = entry.forced or (entry.held and entry.asked_last < number)
            return
        if isinstance(request, Add):
            if not request.deferred:
                ledger.has_key = True
            for entry_id, body in request.bodies.items():
                entry = ledger.entries[entry_id]
                if not entry.held:
                    # An add before it that failed without saying "no" may have stored the same, never another payload.
                    entry.agreed = [other for other in entry.possible if other[PAYLOAD] == body[PAYLOAD]]
                entry.held = True
                entry.forced = entry.forced or not request.deferred
                entry.damaged = False
            return
        ledger.has_key = True
        if isinstance(request, Fence):
            ledger.fenced = True
        elif ledger.lac is None or ledger.lac < request.packet:
            ledger.lac = request.packet

    def _refuse(self, request: Request) -> None:
        ledger = self.ledgers[request.ledger_id]
        if isinstance(request, Force):
            return
        ledger.asked -= 1
        ledger.keys.remove(request.key)
        if isinstance(request, Add):
            for entry_id, body in request.bodies.items():
                ledger.entries[entry_id].possible.remove(body)
        elif isinstance(request, Lac):
            ledger.lacs.remove(request.packet)


def _void(ledger: Ledger) -> None:
    """It is elsewhere: what was acknowledged so far need not be here, but for the fence, which all of it must have."""
    ledger.elsewhere = ledger.moved = ledger.may_be_fenced = True
    ledger.has_key, ledger.lac = False, None
    for entry in ledger.entries.values():
        entry.held = entry.forced = False


_DONE: dict[type, frozenset[Status]] = {
    Add: frozenset({Status.OK}),
    Fence: frozenset({Status.NO_ENTRY, Status.NO_LEDGER}),
    Lac: frozenset({Status.OK}),
    Force: frozenset({Status.OK}),
}
"""Answers that promise something; a fencing read may also bring a body."""

_REFUSED = frozenset({Status.FENCED, Status.UNAUTHORIZED, Status.BAD_REQUEST, Status.READ_ONLY})
"""Answers that promise the contrary; any other status says nothing."""
