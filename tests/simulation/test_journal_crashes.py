"""A journal's process that dies, or sleeps and wakes up, at each of its changes of metadata (I-80..I-86).

Method: the process's session is wrapped, so that its n-th change (of ledgers' metadata too) is its last one: it never
leaves, or it takes effect and its answer is never heard; or it is held back until another server has taken over. For
every n until the story is not cut short any more. Each server's transactions name it. Then another server recovers: it
finds everything that any of them was told is durable, in order and once, and goes on.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import JournalClosed, JournalError, WriterReplaced
from journalmgr.ledger.journal import LedgerJournal
from journalmgr.model import OPAQUE, TxId
from tests.simulation.journals import NAMESPACE, ROOT, journal_of, listed
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import SimulatedClient, World

STEPS_MAX = 80
"""Changes that no story reaches: the loop over n ends before."""


class Doom(enum.Enum):
    """What becomes of the n-th change."""

    BEFORE = "dies before it"
    AFTER = "dies after it"
    SLEEP = "sleeps before it"


class Fate:
    """The n-th change of a process's metadata."""

    def __init__(self, client: SimulatedClient, number: int, doom: Doom) -> None:
        self.struck = self._awake = False
        self.over: Deferred[None] = Deferred()
        self._client, self._left, self._doom = client, number, doom
        self._held: list[Callable[[], object]] = []
        tree = client.store.tree
        for name in ("create", "write", "delete", "transact"):
            setattr(tree, name, self._wrapped(getattr(tree, name)))

    def _wrapped(self, original: Callable[..., Deferred[Any]]) -> Callable[..., Deferred[Any]]:
        def call(*args: Any, **named: Any) -> Deferred[Any]:
            self._left -= 1
            if self._left > 0 or self._awake:
                return original(*args, **named)
            never: Deferred[Any] = Deferred()
            if self._left == 0 and self._doom is Doom.AFTER:
                original(*args, **named).addBoth(lambda _: self._strike())
            elif self._doom is Doom.SLEEP:
                self._held.append(lambda: original(*args, **named).addBoth(never.callback))
            if self._left == 0 and self._doom is not Doom.AFTER:
                self._strike()
            return never

        return call

    def _strike(self) -> None:
        self.struck = True
        if self._doom is not Doom.SLEEP:
            self._client.crash()
        self.over.callback(None)

    def wake_up(self) -> None:
        """Let the changes go that are held back."""
        self._awake = True
        for call in self._held:
            call()


class Server:
    """One metadata server: a journal, and what it was told is durable."""

    def __init__(self, world: World, durable: dict[int, bytes]) -> None:
        self.client = world.add_client()
        self.journal = journal_of(self.client)
        self._durable = durable

    async def write(self, writer: Any, first: int, last: int) -> None:
        """Write transactions in two flushes; what was acknowledged is noted."""
        for txids in (range(first, last), range(last, last + 1)):
            bodies = {txid: f"{self.client.name} {txid}".encode() for txid in txids}
            writer.write([encode_record(OpCode.OPAQUE, txid, body) for txid, body in bodies.items()])
            writer.set_ready_to_flush()
            await writer.flush()
            for txid, body in bodies.items():
                assert self._durable.setdefault(txid, body) == body, f"two writers were told that {txid} is theirs"

    async def segment(self, first: int, last: int) -> None:
        """A finalised segment."""
        writer = await self.journal.start_segment(TxId(first), OPAQUE)
        await self.write(writer, first, last)
        await writer.close()
        await self.journal.finalize_segment(TxId(first), TxId(last))

    def forget(self, first: int) -> None:
        """What is durable from there on may go."""
        for txid in [txid for txid in self._durable if txid >= first]:
            del self._durable[txid]

    async def take_over(self) -> Any:
        """Recover, and write three transactions behind the end; the writer."""
        await self.journal.recover_unfinalized()
        segments = await self.journal.segments()
        last = segments[-1].last_txid if segments else 0
        if last is None:
            raise JournalError("another server became the writer after recovery")  # as EditLog.open says
        writer = await self.journal.start_segment(TxId(last + 1), OPAQUE)
        await self.write(writer, last + 1, last + 3)
        return writer


async def content(journal: LedgerJournal, first: int) -> dict[int, bytes]:
    """All transactions from there on; there must be no gap."""
    found: dict[int, bytes] = {}
    for reader in await journal.select_input_streams(TxId(first)):
        while (batch := await reader.next()) is not None:
            for record in batch.records:
                assert record.txid == first + len(found)
                found[record.txid] = record.body
        await reader.close()
    return found


class Follower:
    """A standby that follows the journal from its beginning, whatever happens to its writers (I-85)."""

    def __init__(self, world: World) -> None:
        self.found: dict[int, bytes] = {}
        self._tail = journal_of(world.add_client(), namespace=None).tail(TxId(1))
        world.spawn(self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                batch = await self._tail.next()
            except JournalClosed:
                return
            for record in batch.records:
                assert record.txid == len(self.found) + 1, "a txid is missing, or comes twice"
                self.found[record.txid] = record.body

    async def stop(self) -> None:
        """No more of it."""
        await self._tail.stop()


async def check(world: World, durable: dict[int, bytes], follower: Follower | None = None) -> None:
    """Another server takes over: everything is there, nothing dangles, and it goes on."""
    server = Server(world, durable)
    await server.take_over()
    [segment] = await server.journal.recover_unfinalized()
    assert segment.last_txid is not None
    segments = await server.journal.segments()
    first = segments[0].first_txid
    found = await content(server.journal, first)
    assert {txid: body for txid, body in durable.items() if txid >= first and found.get(txid) != body} == {}
    assert list(found) == list(range(first, segment.last_txid + 1))
    if follower is not None:
        for _ in range(100):
            if len(follower.found) < len(found):
                await world.pause(0.5)
        await follower.stop()
        assert follower.found == found
    for each, following in pairwise(segments):
        assert each.last_txid is not None
        assert each.last_txid + 1 == following.first_txid
    await server.journal.purge_older_than(TxId(1))
    notes = world.metadata.znodes.leader.nodes.get(f"{ROOT}/deleting")
    kept = {str(each.ledger_id) for each in segments}
    assert notes is None or set(notes.children) <= kept, "a note of a ledger that is not listed any more"
    assert not [name for name in listed(world) if name.startswith("inprogress_")]


Story = Callable[[Server], Awaitable[object]]


async def _turn(server: Server) -> None:
    await server.journal.recover_unfinalized()
    await server.segment(1, 5)
    await server.segment(6, 9)
    writer = await server.journal.start_segment(TxId(10), OPAQUE)
    await server.write(writer, 10, 12)


async def _take_over(server: Server) -> None:
    await server.take_over()


async def _purge(server: Server) -> None:
    await server.journal.purge_older_than(TxId(10))


async def _finalise(server: Server) -> None:
    await server.journal.finalize_segment(TxId(5), TxId(9))


async def _discard(server: Server) -> None:
    server.forget(5)
    await server.journal.discard_from(TxId(5))


async def _roll_back(server: Server) -> None:
    server.forget(5)
    if await server.journal.can_roll_back():
        await server.journal.roll_back()


async def _format(server: Server) -> None:
    server.forget(1)
    await server.journal.format(NAMESPACE, force=True)


async def _nothing(server: Server) -> None:
    """Before the story: an empty journal."""


async def _unfinished(server: Server) -> None:
    """... a finalised segment and one whose writer died."""
    await server.segment(1, 4)
    writer = await server.journal.start_segment(TxId(5), OPAQUE)
    await server.write(writer, 5, 9)


async def _started(server: Server) -> None:
    """... a finalised segment and one without a transaction."""
    await server.segment(1, 4)
    await server.journal.start_segment(TxId(5), OPAQUE)


async def _finished(server: Server) -> None:
    """... three finalised segments."""
    for first in (1, 5, 10):
        await server.segment(first, first + 4 - (first == 1))


async def _write_if_still_the_writer(server: Server, writer: Any) -> None:
    try:
        await server.write(writer, writer.last_txid + 1, writer.last_txid + 2)
    except JournalError:
        return  # who slept took over in turn


async def _upgraded(server: Server) -> None:
    """... four transactions, an upgrade, and more of them, the last ones unfinished."""
    await server.segment(1, 4)
    await server.journal.pre_upgrade()
    await server.journal.upgrade(replace(NAMESPACE, ctime=5, layout_version=-64))
    await server.segment(5, 9)
    writer = await server.journal.start_segment(TxId(10), OPAQUE)
    await server.write(writer, 10, 12)


STORIES = {
    "a server's turn": (_nothing, _turn),
    "recovery": (_unfinished, _take_over),
    "recovery of an empty segment": (_started, _take_over),
    "purge": (_finished, _purge),
    "finalisation by another": (_unfinished, _finalise),
}
DESTROYING = {
    "discard": (_finished, _discard),
    "discard of what is unfinished": (_unfinished, _discard),
    "going back from an upgrade": (_upgraded, _roll_back),
    "format": (_unfinished, _format),
}
"""An operator does these while no server writes: there is no taking over meanwhile."""


async def _play(world: World, before: Story, story: Story, number: int, doom: Doom) -> bool:
    """One n; whether it struck."""
    durable: dict[int, bytes] = {}
    first = Server(world, durable)
    await first.journal.format(NAMESPACE)
    follower = None if story is _purge else Follower(world)
    await before(first)
    first.client.crash()
    server = Server(world, durable)
    fate = Fate(server.client, number, doom)

    async def act() -> None:
        try:
            await story(server)
        except JournalError:
            if not fate.struck:
                raise
        if not fate.over.called:
            fate.over.callback(None)

    acting = world.spawn(act())
    await fate.over
    if fate.struck and doom is Doom.SLEEP:
        other = Server(world, durable)
        writer = await other.take_over()
        fate.wake_up()
        await acting
        await _write_if_still_the_writer(other, writer)
        other.client.crash()
    server.client.crash()
    await check(world, durable, follower)
    return fate.struck


@pytest.mark.parametrize("doom", list(Doom), ids=lambda doom: doom.value)
@pytest.mark.parametrize("name", STORIES)
def test_a_process_that_stops_at_any_change_loses_nothing_and_blocks_nobody(name: str, doom: Doom) -> None:
    before, story = STORIES[name]
    for number in range(1, STEPS_MAX):
        world = started_world(3)
        if not run(world, _play(world, before, story, number, doom), seconds=300.0):
            assert number > 5, "the story makes fewer changes than it should"
            return
    raise AssertionError("the story never ends")


@pytest.mark.parametrize("doom", [Doom.BEFORE, Doom.AFTER], ids=lambda doom: doom.value)
@pytest.mark.parametrize("name", DESTROYING)
def test_a_process_that_dies_while_it_deletes_leaves_what_is_to_stay(name: str, doom: Doom) -> None:
    before, story = DESTROYING[name]
    for number in range(1, STEPS_MAX):
        world = started_world(3)
        if not run(world, _destroy(world, before, story, number, doom), seconds=300.0):
            assert number > 5, "the story makes fewer changes than it should"
            return
    raise AssertionError("the story never ends")


async def _destroy(world: World, before: Story, story: Story, number: int, doom: Doom) -> bool:
    """One n; whether it struck. What was cut short is repeated by another process, and completes."""
    durable: dict[int, bytes] = {}
    first = Server(world, durable)
    await first.journal.format(NAMESPACE)
    await before(first)
    first.client.crash()
    server = Server(world, durable)
    fate = Fate(server.client, number, doom)
    acting = world.spawn(story(server))
    acting.addCallback(lambda _: None if fate.over.called else fate.over.callback(None))
    await fate.over
    if fate.struck:
        await story(Server(world, durable))
    server.client.crash()
    await check(world, durable)
    ledgers = [found async for batch in world.add_client().ledgers.ids() for found in batch]
    segments = await journal_of(world.add_client()).segments()
    leaked = set(ledgers) - {segment.ledger_id for segment in segments}
    assert not leaked, f"ledgers that nobody will delete: {leaked}"
    return fate.struck


def hold(client: SimulatedClient, operation: str, path: str) -> Callable[[], None]:
    """Hold back the next change of this kind whose (first or last) path is this; call the result to let it go."""
    tree = client.store.tree
    original = getattr(tree, operation)
    held: list[Callable[[], object]] = []

    def call(*args: Any, **named: Any) -> Deferred[Any]:
        paths = [step.path for step in args[0]] if operation == "transact" else [args[0]]
        if held or path not in paths:
            done: Deferred[Any] = original(*args, **named)
            return done
        asleep: Deferred[Any] = Deferred()
        held.append(lambda: original(*args, **named).addBoth(asleep.callback))
        return asleep

    def let_go() -> None:
        [go] = held
        go()

    setattr(tree, operation, call)
    return let_go


async def _fails_with(expected: type[JournalError], working: Deferred[Any]) -> None:
    try:
        await working
    except expected:
        return
    raise AssertionError(f"{expected.__name__} was expected")


def test_who_slept_before_his_segment_was_listed_leaves_nothing_behind() -> None:
    """Its name is free again, for the segment that another server wrote meanwhile is finalised."""
    world = started_world(3)
    durable: dict[int, bytes] = {}
    sleeper, other = Server(world, durable), Server(world, durable)

    async def story() -> None:
        await sleeper.journal.format(NAMESPACE)
        wake_up = hold(sleeper.client, "transact", f"{ROOT}/ledgers/inprogress_1")
        starting = sleeper.journal.start_segment(TxId(1), OPAQUE)
        await world.pause(1.0)
        await other.segment(1, 5)
        wake_up()
        await _fails_with(WriterReplaced, starting)
        assert listed(world) == ["edits_000000000000000001_000000000000000005"]
        ledgers = [found async for batch in other.client.ledgers.ids() for found in batch]
        assert len(ledgers) == 1
        await check(world, durable)

    run(world, story())


def test_who_was_recovered_while_he_started_does_not_use_up_the_txid() -> None:
    """Else nobody could ever start there: the txid would be noted as seen, and there would be nothing to recover."""
    world = started_world(3)
    durable: dict[int, bytes] = {}
    sleeper, other = Server(world, durable), Server(world, durable)

    async def story() -> None:
        await sleeper.journal.format(NAMESPACE)
        await sleeper.segment(1, 5)
        wake_up = hold(sleeper.client, "write", f"{ROOT}/maxtxid")
        starting = sleeper.journal.start_segment(TxId(6), OPAQUE)
        await world.pause(1.0)
        assert listed(world)[1:] == ["inprogress_6"]
        await other.journal.recover_unfinalized()
        wake_up()
        await _fails_with(WriterReplaced, starting)
        await other.segment(6, 9)
        await check(world, durable)

    run(world, story())


def test_who_slept_in_a_recovery_while_its_segment_was_discarded_and_begun_anew_changes_nothing() -> None:
    world = started_world(3)
    durable: dict[int, bytes] = {}
    dead, sleeper, other = (Server(world, durable) for _ in range(3))

    async def story() -> None:
        await dead.journal.format(NAMESPACE)
        writer = await dead.journal.start_segment(TxId(1), OPAQUE)
        await dead.write(writer, 1, 5)
        dead.client.crash()
        wake_up = hold(sleeper.client, "transact", f"{ROOT}/ledgers/inprogress_1")
        recovering = sleeper.journal.recover_unfinalized()
        await world.pause(1.0)
        other.forget(1)
        await other.journal.discard_from(TxId(1))
        writer = await other.journal.start_segment(TxId(1), OPAQUE)
        await other.write(writer, 1, 3)
        wake_up()
        assert await recovering == []
        await other.write(writer, 4, 6)
        assert listed(world) == ["inprogress_1"]
        await check(world, durable)

    run(world, story())
