"""The smallest world the protocol machines can run in: bookies that are dictionaries, one metadata cell, mailboxes.

A `Writer` and a `Recoverer` drive the real machines. Every message they send waits in their `mail` until a test
delivers or loses it, so that a trace is a list of deliveries. Nothing here decides what the machines should decide.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bookkeeper.errors import BookKeeperError
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState, Status
from bookkeeper.protocol.add_decisions import Decision
from bookkeeper.protocol.adds import AddWindow
from bookkeeper.protocol.reads import ReadRequest
from bookkeeper.protocol.recovery import (
    Aborted,
    Action,
    Close,
    Fence,
    Finished,
    MarkInRecovery,
    Read,
    Recovered,
    Recovery,
    ReplaceBookies,
    WriteBack,
)
from bookkeeper.protocol.schedule import spread, write_set
from bookkeeper.protocol.transitions import (
    Change,
    NoUpdate,
    Refused,
    Replacement,
    Reselect,
    change_ensemble,
    close_by_recovery,
    close_by_writer,
    start_recovery,
)

LEDGER = 7


@dataclass
class Body:
    payload: bytes
    length: int
    lac: int


@dataclass
class Bookie:
    """Everything a bookie must remember; it answers as I-22, I-25 and I-27 demand."""

    entries: dict[int, Body] = field(default_factory=dict)
    fenced: bool = False

    def add(self, entry_id: int, body: Body, *, recovery: bool) -> Status:
        if self.fenced and not recovery:
            return Status.FENCED
        self.entries[entry_id] = body
        return Status.OK

    def read(self, entry_id: int, *, fence: bool) -> Body | None:
        self.fenced |= fence
        return self.entries.get(entry_id)

    def read_last(self, *, fence: bool) -> tuple[int, Body] | None:
        self.fenced |= fence
        last = max(self.entries, default=None)
        return None if last is None else (last, self.entries[last])


class Cluster:
    """Bookies b0, b1, ... and the metadata of one ledger on the first of them."""

    def __init__(self, bookies: int, ensemble: int, write_quorum: int, ack_quorum: int) -> None:
        self.bookies = {BookieId(f"b{number}"): Bookie() for number in range(bookies)}
        self.up = set(self.bookies)
        self.history = [fresh_metadata([f"b{number}" for number in range(ensemble)], write_quorum, ack_quorum)]

    @property
    def metadata(self) -> LedgerMetadata:
        return self.history[-1]

    @property
    def version(self) -> int:
        return len(self.history) - 1

    def compare_and_set(self, version: int, value: LedgerMetadata) -> bool:
        if version != self.version:
            return False
        self.history.append(value)
        return True

    def update(self, decide: Callable[[LedgerMetadata], Change | Reselect]) -> Change | Reselect:
        """A compare-and-set loop without competition."""
        outcome = decide(self.metadata)
        if isinstance(outcome, LedgerMetadata):
            assert self.compare_and_set(self.version, outcome)
        return outcome

    def spare(self, excluded: set[BookieId]) -> BookieId | None:
        return next((bookie_id for bookie_id in sorted(self.up) if bookie_id not in excluded), None)

    def holders(self, entry_id: int, ensemble: Sequence[BookieId] | None = None) -> int:
        """Members of the entry's write set, as committed, that hold it."""
        metadata = self.metadata
        members = ensemble or metadata.fragment_of(entry_id).ensemble
        return sum(
            entry_id in self.bookies[members[index]].entries
            for index in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
        )


def fresh_metadata(ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=len(ensemble),
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        fragments=(Fragment(EntryId(0), tuple(BookieId(name) for name in ensemble)),),
    )


@dataclass
class Message:
    """Something on its way. kind: add, read, fence, or mark, close, replace, change, which have no bookie_id."""

    kind: str
    bookie_id: BookieId | None
    entry_ids: list[int]
    deliver: Callable[[], None]
    lose: Callable[[], None]


class Party:
    """A mailbox of messages in the order they were sent."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.mail: list[Message] = []

    def deliver(self, kind: str | None = None, bookie: str | None = None) -> int:
        """Deliver the waiting messages of this kind to this bookie (default: any), not what follows from them."""
        return self._each(kind, bookie, lambda message: message.deliver())

    def lose(self, kind: str | None = None, bookie: str | None = None) -> int:
        """The request never arrives and the sender notices."""
        return self._each(kind, bookie, lambda message: message.lose())

    def run(self, chance: random.Random | None = None, steps: int = 10_000) -> None:
        """Deliver until nothing waits; messages to bookies that are down are lost. In random order with `chance`."""
        while self.mail and steps:
            steps -= 1
            message = self.mail.pop(chance.randrange(len(self.mail)) if chance else 0)
            if message.bookie_id is None or message.bookie_id in self.cluster.up:
                message.deliver()
            else:
                message.lose()
        assert not self.mail, "the party never comes to rest"

    def _each(self, kind: str | None, bookie: str | None, act: Callable[[Message], None]) -> int:
        chosen = [m for m in self.mail if kind in (None, m.kind) and bookie in (None, m.bookie_id)]
        for message in chosen:
            self.mail.remove(message)
        for message in chosen:
            act(message)
        return len(chosen)


class Writer(Party):
    """Appends through an AddWindow; changes ensembles and closes by compare-and-set."""

    def __init__(self, cluster: Cluster, *, delay_ensemble_change: bool = False) -> None:
        super().__init__(cluster)
        metadata = cluster.metadata
        self.version = cluster.version
        self.view = metadata
        self.window = AddWindow(
            ledger_id=LEDGER,
            ensemble=metadata.last_fragment.ensemble,
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
            entries_max=64,
            bytes_max=1 << 20,
            delay_ensemble_change=delay_ensemble_change,
        )
        self.bodies: dict[int, Body] = {}
        self.acknowledged: list[int] = []

    @property
    def error(self) -> BookKeeperError | None:
        return self.window.error

    def append(self, count: int = 1) -> None:
        if self.window.accepts([3] * count) < count:
            return
        before, lac = self.window.pushed_length, self.window.lac
        first = self.window.push([3] * count, 0.0)
        for entry_id in range(first, first + count):
            before += 3
            self.bodies[entry_id] = Body(b"%03d" % entry_id, before, lac)
        held = spread(first, first + count - 1, self.view.ensemble_size, self.view.write_quorum)
        for index, entry_ids in enumerate(held):
            self._send(index, list(entry_ids))

    def _send(self, index: int, entry_ids: list[int]) -> None:
        bookie_id = self.window.ensemble[index]

        def deliver() -> None:
            bookie = self.cluster.bookies[bookie_id]
            verdicts = [bookie.add(entry_id, self.bodies[entry_id], recovery=False) for entry_id in entry_ids]
            refused = [status for status in verdicts if status is not Status.OK]
            if refused:
                self._failed(index, bookie_id, refused[0], entry_ids)
            else:
                self._note(self.window.on_responses(index, bookie_id, entry_ids))

        if entry_ids:
            self.mail.append(
                Message("add", bookie_id, entry_ids, deliver, lambda: self._failed(index, bookie_id, None, entry_ids))
            )

    def _note(self, acknowledged: range) -> None:
        for entry_id in acknowledged:
            assert entry_id == len(self.acknowledged), "acknowledged in order, once (I-06)"
            assert self.cluster.holders(entry_id) >= self.view.ack_quorum, f"entry {entry_id} lacks copies (I-05)"
            self.acknowledged.append(entry_id)

    def _failed(self, index: int, bookie_id: BookieId, status: Status | None, entry_ids: list[int]) -> None:
        decision = self.window.on_failure(index, bookie_id, status, entry_ids)
        if decision is Decision.FATAL:
            assert self.window.error is not None
            self.window.fail(self.window.error)
        elif decision is Decision.CHANGE:
            self._begin_change()

    def _begin_change(self) -> None:
        self.window.begin_change()
        self.mail.append(Message("change", None, [], self._change, self._change))

    def _change(self) -> None:
        """One turn of the compare-and-set loop; a conflict re-reads and takes another turn."""
        if self.window.error is not None:
            return
        excluded = set(self.window.ensemble) | set(self.view.last_fragment.ensemble)
        replacements = {}
        for index, failed in self.window.failed.items():
            chosen = self.cluster.spare(excluded)
            if chosen is not None:
                excluded.add(chosen)
                replacements[index] = Replacement(failed, chosen)
        if not replacements:
            self.window.fail(BookKeeperError("not enough bookies"))
            return
        outcome = change_ensemble(
            self.view,
            ledger_id=LEDGER,
            first_entry_id=EntryId(self.window.last_acknowledged + 1),
            replacements=replacements,
        )
        if isinstance(outcome, Refused):
            self.window.fail(outcome.error)
            return
        if isinstance(outcome, LedgerMetadata):
            if not self.cluster.compare_and_set(self.version, outcome):
                self.view, self.version = self.cluster.metadata, self.cluster.version
                self.mail.append(Message("change", None, [], self._change, self._change))
                return
            self.view, self.version = outcome, self.cluster.version
        result = self.window.end_change(self.view.last_fragment.ensemble, 0.0)
        for index, entry_ids in result.resend.items():
            self._send(index, entry_ids)
        self._note(result.acknowledged)
        if result.further:
            self._begin_change()

    def close(self) -> Change | Reselect:
        last, length = self.window.last_acknowledged, self.window.acknowledged_length
        self.window.fail(BookKeeperError("closed"))
        return self.cluster.update(
            lambda current: close_by_writer(current, ledger_id=LEDGER, last_entry_id=last, length=length)
        )


class Recoverer(Party):
    """Drives a Recovery. `fencing_reads=False` and `spares=False` are the mutants and the shortage some traces need."""

    def __init__(self, cluster: Cluster, *, batch: int = 4, fencing_reads: bool = True, spares: bool = True) -> None:
        super().__init__(cluster)
        self.machine = Recovery(LEDGER, read_batch_max=batch)
        self.fencing_reads = fencing_reads
        self.spares = spares
        self.closed: LedgerMetadata | None = None
        self.error: BookKeeperError | None = None
        self.reads_asked: list[ReadRequest] = []
        self.written: list[WriteBack] = []
        self.ended = 0

    def start(self) -> None:
        self._do(self.machine.start())

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            assert not self.ended, "nothing follows the end"
            match action:
                case MarkInRecovery():
                    self._post("mark", None, [], self._mark, self._mark)
                case Fence(bookies):
                    for bookie_id in bookies:
                        self._fence(bookie_id)
                case Read(requests):
                    for request in requests:
                        self._read(request)
                case WriteBack():
                    self.written.append(action)
                    self._write(action)
                case ReplaceBookies(failed, ensemble):
                    self._replace(failed, ensemble)
                case Close():
                    attempt = functools.partial(self._close, action)
                    self._post("close", None, [], attempt, attempt)
                case Finished(metadata):
                    self.closed, self.ended = metadata, 1
                case Aborted(error):
                    self.error, self.ended = error, 1

    def _post(
        self,
        kind: str,
        bookie_id: BookieId | None,
        entry_ids: list[int],
        deliver: Callable[[], None],
        lose: Callable[[], None],
    ) -> None:
        self.mail.append(Message(kind, bookie_id, entry_ids, deliver, lose))

    def _mark(self) -> None:
        self.cluster.update(start_recovery)
        self._do(self.machine.on_marked(self.cluster.metadata, 0.0))

    def _fence(self, bookie_id: BookieId) -> None:
        def deliver() -> None:
            answer = self.cluster.bookies[bookie_id].read_last(fence=True)
            if answer is None:
                self._do(self.machine.on_fence_negative(bookie_id, 0.0))
            else:
                entry_id, body = answer
                self._do(
                    self.machine.on_fence_body(bookie_id, entry_id=entry_id, lac=body.lac, length=body.length, now=0.0)
                )

        self._post(
            "fence", bookie_id, [], deliver, lambda: self._do(self.machine.on_fence_unknown(bookie_id, "lost", 0.0))
        )

    def _read(self, request: ReadRequest) -> None:
        self.reads_asked.append(request)
        bookie_id = request.bookie_id

        def deliver() -> None:
            bookie = self.cluster.bookies[bookie_id]
            found = {e: bookie.read(e, fence=self.fencing_reads) for e in request.entry_ids}
            bodies = {e: Recovered(e, body.payload, body.length) for e, body in found.items() if body is not None}
            negatives = [e for e, body in found.items() if body is None]
            self._do(self.machine.on_bodies(bookie_id, list(bodies), list(bodies.values()), 0.0))
            self._do(self.machine.on_negative(bookie_id, negatives, Status.NO_ENTRY, 0.0))

        def lose() -> None:
            self._do(self.machine.on_unknown(bookie_id, request.entry_ids, "lost", 0.0))

        self._post("read", bookie_id, request.entry_ids, deliver, lose)

    def _write(self, action: WriteBack) -> None:
        entries = {entry.entry_id: entry for entry in action.entries}
        for index, entry_ids in action.targets.items():
            self._write_to(index, action.ensemble[index], [entries[entry_id] for entry_id in entry_ids], action.lac)

    def _write_to(self, index: int, bookie_id: BookieId, entries: list[Recovered], lac: int) -> None:
        entry_ids = [entry.entry_id for entry in entries]

        def deliver() -> None:
            bookie = self.cluster.bookies[bookie_id]
            for entry in entries:
                bookie.add(entry.entry_id, Body(entry.payload, entry.length, lac), recovery=True)
            self._do(self.machine.on_added(index, bookie_id, entry_ids, 0.0))

        def lose() -> None:
            self._do(self.machine.on_add_failed(index, bookie_id, None, entry_ids, 0.0))

        self._post("add", bookie_id, entry_ids, deliver, lose)

    def _replace(self, failed: dict[int, BookieId], ensemble: tuple[BookieId, ...]) -> None:
        def deliver() -> None:
            excluded = set(ensemble)
            chosen: dict[int, BookieId] = {}
            for index in failed:
                spare = self.cluster.spare(excluded) if self.spares else None
                if spare is not None:
                    excluded.add(spare)
                    chosen[index] = spare
            self._do(self.machine.on_replaced(chosen, 0.0))

        self._post("replace", None, [], deliver, deliver)

    def _close(self, close: Close) -> None:
        outcome = self.cluster.update(
            lambda current: close_by_recovery(
                current,
                ledger_id=LEDGER,
                last_entry_id=close.last_entry_id,
                length=close.length,
                fragments=close.fragments,
            )
        )
        if isinstance(outcome, Refused):
            self._do(self.machine.abort(outcome.error))
        else:
            assert isinstance(outcome, LedgerMetadata | NoUpdate)
            self._do(self.machine.on_closed(self.cluster.metadata))


def check_end(cluster: Cluster, acknowledged: Sequence[int]) -> None:
    """Closed at or after every acknowledged entry, each entry held by Qa bookies, the length right (I-40)."""
    metadata = cluster.metadata
    assert metadata.state is LedgerState.CLOSED
    assert metadata.last_entry_id is not None
    assert metadata.last_entry_id >= len(acknowledged) - 1, "an acknowledged entry is cut off"
    for entry_id in range(metadata.last_entry_id + 1):
        assert cluster.holders(entry_id) >= metadata.ack_quorum, f"entry {entry_id} lacks copies"
    assert metadata.length == 3 * (metadata.last_entry_id + 1)
    for earlier, later in zip(cluster.history, cluster.history[1:], strict=False):
        assert earlier.state.value <= later.state.value, "the state went back (I-13)"
        assert earlier.state is not LedgerState.CLOSED, "a closed ledger was changed"
