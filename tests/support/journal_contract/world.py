"""The world a fact runs in, how facts are declared, and the words they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from bookkeeper.ports import Clock
from journalmgr.contract import EditsTail, JournalManager, SegmentWriter
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.model import OPAQUE, NamespaceInfo, TxId

NAMESPACE = NamespaceInfo(1234567, "CID-contract", "BP-contract")
FOREIGN = NamespaceInfo(7654321, "CID-contract", "BP-contract")

PATIENCE_S = 60.0
"""Timeout of `until`, in seconds of the world's time."""


class JournalWorld(Protocol):
    """One implementation with one journal of its own, which was not formatted yet.

    fences: whether `recover_unfinalized` takes the journal away from a writer that lives; otherwise it is refused
    with JournalUnavailable while that one lives, and the writer goes on.
    """

    clock: Clock
    fences: bool

    async def open(self, namespace: NamespaceInfo = NAMESPACE) -> JournalManager:
        """Another process's view of the one journal; closed when the fact is over."""

    def crash(self, journal: JournalManager) -> None:
        """kill -9 of the process that opened it: nothing that it started completes."""


Fact = Callable[[JournalWorld], Awaitable[None]]
_facts: dict[str, Fact] = {}


def facts() -> dict[str, Fact]:
    """All facts by name, once the package has been imported."""
    return dict(_facts)


def fact(function: Fact) -> Fact:
    """Declare a fact; its name is what its test is called."""
    assert function.__name__ not in _facts, f"two facts are called {function.__name__}"
    _facts[function.__name__] = function
    return function


async def raises(expected: type[Exception], awaitable: Awaitable[object]) -> Any:
    """The exception, which must be of this class."""
    try:
        result = await awaitable
    except expected as error:
        return error
    raise AssertionError(f"{expected.__name__} was not raised; the result is {result!r}")


def refused(expected: type[Exception], call: Callable[[], object]) -> None:
    """The call itself must raise this."""
    try:
        result = call()
    except expected:
        return
    raise AssertionError(f"{expected.__name__} was not raised; the result is {result!r}")


async def some_time(world: JournalWorld, seconds: float) -> None:
    """Let the world go on; for showing that something does not happen."""
    passed: Deferred[None] = Deferred()
    world.clock.callLater(seconds, passed.callback, None)
    await passed


async def until(world: JournalWorld, satisfied: Callable[[], bool], what: str) -> None:
    """Return once `satisfied` returns true. Raises AssertionError after PATIENCE_S of the world's time."""
    deadline_s = world.clock.seconds() + PATIENCE_S
    while not satisfied():
        assert world.clock.seconds() < deadline_s, f"not within {PATIENCE_S:g} s: {what}"
        await some_time(world, 0.1)


def payload(txid: int) -> bytes:
    """What the transaction of this txid says."""
    return b"transaction %d" % txid


def opaque(first: int, last: int) -> list[bytes]:
    """Whole records of the opaque layout, both ends inclusive."""
    return [encode_record(OpCode.OPAQUE, txid, payload(txid)) for txid in range(first, last + 1)]


async def formatted(world: JournalWorld) -> JournalManager:
    """A journal that may be written to."""
    journal = await world.open()
    await journal.format(NAMESPACE)
    await journal.recover_unfinalized()
    return journal


async def flushed(writer: SegmentWriter, first: int, last: int) -> None:
    """Write these transactions and wait until they are durable."""
    writer.write(opaque(first, last))
    writer.set_ready_to_flush()
    assert await writer.flush() == last


async def written(
    journal: JournalManager, first: int, last: int, *, layout: int = OPAQUE, step: int = 10
) -> SegmentWriter:
    """A segment in progress that holds these transactions, flushed in groups of `step`."""
    writer = await journal.start_segment(TxId(first), layout)
    for group in range(first, last + 1, step):
        await flushed(writer, group, min(group + step - 1, last))
    return writer


async def finalised_segment(journal: JournalManager, first: int, last: int) -> None:
    """A finalised segment of these transactions."""
    writer = await written(journal, first, last)
    await writer.close()
    await journal.finalize_segment(TxId(first), TxId(last))


async def read_all(journal: JournalManager, from_txid: int, *, in_progress_ok: bool = False) -> list[int]:
    """The txids that the journal delivers, in its order; their content is checked."""
    found: list[int] = []
    for reader in await journal.select_input_streams(TxId(from_txid), in_progress_ok=in_progress_ok):
        while (batch := await reader.next()) is not None:
            assert batch.records
            for record in batch.records:
                assert record.body == payload(record.txid), record
                found.append(record.txid)
        await reader.close()
    return found


async def tailed(tail: EditsTail, last: int) -> list[int]:
    """What the tail delivers until it has delivered `last`."""
    found: list[int] = []
    while not found or found[-1] < last:
        batch = await tail.next()
        assert batch.records
        found += [record.txid for record in batch.records]
        assert tail.next_txid == found[-1] + 1
    return found


async def bounds(journal: JournalManager) -> list[tuple[int, int | None]]:
    """First and last of each segment."""
    return [(segment.first_txid, segment.last_txid) for segment in await journal.segments()]


def span(first: int, last: int) -> list[int]:
    """Both inclusive."""
    return list(range(first, last + 1))
