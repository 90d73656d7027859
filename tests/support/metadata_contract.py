"""What every metadata store does, as one list of facts that run over each implementation.

A fact is a coroutine function of a World; `facts()` names them. The memory store runs them with simulated time (also
with delays, lag and lost connections), the ZooKeeper store against a real server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, gatherResults, succeed

from bookkeeper.errors import (
    AlreadyRegistered,
    ClusterExists,
    ClusterInUse,
    InvalidMetadata,
    LayoutMismatch,
    LedgerExists,
    MetadataCorrupt,
    MetadataTooNew,
    NoSuchLedger,
    NotInitialised,
    VersionConflict,
)
from bookkeeper.metadata.codec import format_ledger
from bookkeeper.metadata.layout import LayoutKind
from bookkeeper.metadata.store import MetadataSettings, MetadataStore, RegistrationEvent, StoreState
from bookkeeper.model import (
    BookieId,
    BookieMode,
    BookieServiceInfo,
    Endpoint,
    EntryId,
    Fragment,
    LedgerId,
    LedgerMetadata,
    LedgerState,
    Versioned,
)
from bookkeeper.ports import Clock

PATIENCE_S = 30.0
"""How long a fact waits for something that must happen."""


class World(Protocol):
    """One implementation with one root of its own, which holds no cluster yet."""

    clock: Clock
    root: str

    async def connect(self, kind: LayoutKind | None = None, settings: MetadataSettings | None = None) -> MetadataStore:
        """Another process's connection; closed when the fact is over."""

    async def expire(self, store: MetadataStore) -> None:
        """Let the server end the store's session."""

    async def put(self, path: str, data: bytes) -> None:
        """Write bytes below the root behind everybody's back; makes the node with its parents, or replaces its data."""

    async def get(self, path: str) -> bytes | None:
        """The bytes below the root."""


Fact = Callable[[World], Awaitable[None]]
_facts: dict[str, Fact] = {}


def facts() -> dict[str, Fact]:
    """All facts by name."""
    return dict(_facts)


def fact(function: Fact) -> Fact:
    _facts[function.__name__] = function
    return function


class Heard:
    """A callback that remembers what it was told, and can be waited for."""

    def __init__(self, clock: Clock) -> None:
        self.calls: list[Any] = []
        self._clock = clock
        self._waiting: list[tuple[Callable[[list[Any]], object], Deferred[None]]] = []

    def __call__(self, *args: Any) -> None:
        self.calls.append(args[0] if len(args) == 1 else args)
        for waiting in list(self._waiting):
            if waiting[0](self.calls) and waiting in self._waiting:
                self._waiting.remove(waiting)
                waiting[1].callback(None)

    async def until(self, satisfied: Callable[[list[Any]], object], what: str) -> None:
        """Return when `satisfied(calls)`; AssertionError after PATIENCE_S."""
        if satisfied(self.calls):
            return
        done: Deferred[None] = Deferred()
        waiting = (satisfied, done)
        self._waiting.append(waiting)

        def too_late() -> None:
            self._waiting.remove(waiting)
            done.errback(AssertionError(f"not within {PATIENCE_S:g} s: {what}; heard {self.calls}"))

        timer = self._clock.callLater(PATIENCE_S, too_late)
        await done
        timer.cancel()


async def raises(expected: type[Exception], awaitable: Awaitable[object]) -> Any:
    """The exception, which must be of exactly this class."""
    try:
        result = await awaitable
    except expected as error:
        raised = error
    else:
        raise AssertionError(f"{expected.__name__} was not raised; the result is {result!r}")
    assert type(raised) is expected, repr(raised)
    return raised


def ledger(*, version: int = 3, bookies: str = "abc") -> LedgerMetadata:
    """Metadata of a new ledger."""
    ensemble = tuple(BookieId(f"bookie-{name}:3181") for name in bookies)
    return LedgerMetadata(
        ensemble_size=len(ensemble),
        write_quorum=len(ensemble),
        ack_quorum=len(ensemble),
        fragments=(Fragment(EntryId(0), ensemble),),
        format_version=version,
    )


def service_info(name: str) -> BookieServiceInfo:
    """What a bookie publishes."""
    return BookieServiceInfo((Endpoint("bookie", name, 3181, "bookie-rpc"),))


async def cluster(world: World, kind: LayoutKind | None = None) -> MetadataStore:
    """A new cluster and a connection to it."""
    store = await world.connect(kind)
    await store.admin.initialise()
    return store


async def all_ids(store: MetadataStore) -> list[int]:
    ids: AsyncIterator[list[LedgerId]] = store.ledgers.ids()
    return [ledger_id async for batch in ids for ledger_id in batch]


BOOKIE = BookieId("bookie-a:3181")

# --- ledgers --------------------------------------------------------------------------------------------------------


@fact
async def a_created_ledger_is_read_back_by_everybody(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    ledger_id, created = await store.ledgers.create(ledger())
    assert created.version == 0
    assert created.value.creator_token is not None
    assert dataclasses.replace(created.value, creator_token=None) == ledger()
    await other.sync()
    assert await other.ledgers.read(ledger_id) == created


@fact
async def generated_ids_are_never_given_twice(world: World) -> None:
    """I-04: not to two clients at once either, and not again after deletion."""
    store, other = await cluster(world), await world.connect()
    created = await gatherResults([side.ledgers.create(ledger()) for side in (store, other) for _ in range(10)])
    ids = [ledger_id for ledger_id, _ in created]
    assert len(set(ids)) == 20
    for ledger_id, versioned in created:
        await store.ledgers.delete(ledger_id, versioned.version)
    again, _ = await store.ledgers.create(ledger())
    assert again not in ids


@fact
async def a_chosen_id_is_taken_once(world: World) -> None:
    store = await cluster(world)
    chosen = LedgerId(12345)
    assert (await store.ledgers.create(ledger(), chosen))[0] == chosen
    error = await raises(LedgerExists, store.ledgers.create(ledger(), chosen))
    assert "12345" in str(error)


@fact
async def a_generated_id_that_somebody_chose_is_passed_over(world: World) -> None:
    store = await cluster(world)
    first, _ = await store.ledgers.create(ledger())
    for chosen in range(first + 1, first + 4):
        await store.ledgers.create(ledger(), LedgerId(chosen))
    assert (await store.ledgers.create(ledger()))[0] > first + 3


@fact
async def every_format_version_is_kept_on_rewrite(world: World) -> None:
    store = await cluster(world)
    for version in (1, 2, 3):
        ledger_id, created = await store.ledgers.create(ledger(version=version))
        written = await store.ledgers.write(ledger_id, created.value.in_recovery(), created.version)
        assert written.version == 1
        found = await store.ledgers.read(ledger_id)
        assert found == written
        assert found.value.format_version == version
        assert found.value.state is LedgerState.IN_RECOVERY
        assert (found.value.creator_token is not None) == (version == 3)


@fact
async def version_1_refuses_what_it_cannot_hold(world: World) -> None:
    store = await cluster(world)
    metadata = dataclasses.replace(ledger(version=1), ack_quorum=2)
    error = await raises(InvalidMetadata, store.ledgers.create(metadata))
    assert "ack quorum" in str(error)
    assert await all_ids(store) == []


@fact
async def a_write_at_an_old_version_changes_nothing(world: World) -> None:
    """I-15."""
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger())
    closed = await store.ledgers.write(ledger_id, created.value.closed(EntryId(4), 40), created.version)
    await raises(VersionConflict, store.ledgers.write(ledger_id, created.value.in_recovery(), created.version))
    await raises(VersionConflict, store.ledgers.delete(ledger_id, created.version))
    assert await store.ledgers.read(ledger_id) == closed


@fact
async def an_absent_ledger_is_no_such_ledger(world: World) -> None:
    """I-18."""
    store = await cluster(world)
    await raises(NoSuchLedger, store.ledgers.read(LedgerId(7)))
    await raises(NoSuchLedger, store.ledgers.write(LedgerId(7), ledger(), 0))


@fact
async def deleting_a_deleted_ledger_succeeds(world: World) -> None:
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger())
    await store.ledgers.delete(ledger_id, created.version)
    await store.ledgers.delete(ledger_id, created.version)
    await raises(NoSuchLedger, store.ledgers.read(ledger_id))


@fact
async def empty_directories_go_with_their_last_ledger(world: World) -> None:
    store = await cluster(world)
    for chosen in (5, 6, 123456789012):
        await store.ledgers.create(ledger(), LedgerId(chosen))
    await store.ledgers.delete(LedgerId(5), 0)
    assert await world.get("/00/0000") is not None
    await store.ledgers.delete(LedgerId(6), 0)
    await store.ledgers.delete(LedgerId(123456789012), 0)
    for path in ("/00/0000", "/00", "/000/0000/0123/4567", "/000/0000", "/000"):
        assert await world.get(path) is None, path
    await store.ledgers.create(ledger(), LedgerId(5))


@fact
async def an_unreadable_ledger_is_neither_absent_nor_overwritten(world: World) -> None:
    """I-18: the error names the path; deleting and writing by a wrong version stay impossible."""
    store = await cluster(world)
    for data in (b"", b"garbage"):
        await world.put("/00/0000/L0007", data)
        await store.sync()
        error = await raises(MetadataCorrupt, store.ledgers.read(LedgerId(7)))
        assert f"{world.root}/00/0000/L0007" in str(error)
        await raises(LedgerExists, store.ledgers.create(ledger(), LedgerId(7)))
    newer = format_ledger(ledger()).replace(b"Version\t3", b"Version\t4")
    await world.put("/00/0000/L0007", newer)
    await store.sync()
    await raises(MetadataTooNew, store.ledgers.read(LedgerId(7)))


@fact
async def ledgers_have_apaches_paths_in_every_layout(world: World) -> None:
    places = {
        LayoutKind.FLAT: "/L0000012345",
        LayoutKind.HIERARCHICAL: "/00/0001/L2345",
        LayoutKind.LEGACY_HIERARCHICAL: "/00/0001/L2345",
        LayoutKind.LONG_HIERARCHICAL: "/000/0000/0000/0001/L2345",
    }
    for kind, path in places.items():
        store = await world.connect(kind)
        await store.admin.format()
        _, created = await store.ledgers.create(ledger(), LedgerId(12345))
        assert await world.get(path) == format_ledger(created.value), kind
        generated, _ = await store.ledgers.create(ledger())
        assert await all_ids(store) == sorted([12345, generated]), kind


@fact
async def a_listing_is_complete_ascending_and_in_batches(world: World) -> None:
    store = await cluster(world)
    ids = [0, 1, 9_999, 10_000, 123_456_789, 2147483646, 2147483647, 2**32, 2**62 + 5]
    ids += range(20_000, 20_040)
    await gatherResults([store.ledgers.create(ledger(), LedgerId(ledger_id)) for ledger_id in ids])
    assert await all_ids(store) == sorted(ids)


@fact
async def a_listing_that_meets_a_stranger_fails(world: World) -> None:
    """I-18: a listing that may be short must not look complete."""
    store = await cluster(world)
    await store.ledgers.create(ledger(), LedgerId(1))
    await world.put("/00/0000/stranger", b"")
    await store.sync()
    error = await raises(MetadataCorrupt, all_ids(store))
    assert "/00/0000/stranger" in str(error)


@fact
async def ids_go_long_once_the_long_scheme_has_begun(world: World) -> None:
    store = await cluster(world)
    short, _ = await store.ledgers.create(ledger())
    await world.put("/idgen-long", b"")
    other = await world.connect()
    await other.sync()
    first, _ = await other.ledgers.create(ledger())
    second, _ = await other.ledgers.create(ledger())
    assert short < 2147483647
    assert 1 << 32 <= first < second < 2 << 32
    assert await world.get(f"/000/0000/0042/9496/L{first % 10_000:04d}") is not None
    assert await all_ids(other) == [short, first, second]


@fact
async def old_high_order_directories_are_removed(world: World) -> None:
    store = await cluster(world, LayoutKind.LONG_HIERARCHICAL)
    for number in (1, 2, 3, 4):
        await world.put(f"/idgen-long/HOB-{number:010d}", b"")
    await store.sync()
    ledger_id, _ = await store.ledgers.create(ledger())
    assert ledger_id >> 32 == 4


# --- watching ledgers -----------------------------------------------------------------------------------------------


@fact
async def a_ledger_watch_tells_rising_versions_and_the_end(world: World) -> None:
    store, writer = await cluster(world), await world.connect()
    ledger_id, created = await writer.ledgers.create(ledger())
    heard = Heard(world.clock)
    store.ledgers.watch(ledger_id, heard)
    await heard.until(lambda calls: created in calls, "the first version")
    recovering = await writer.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await heard.until(lambda calls: recovering in calls, "the second version")
    closed = await writer.ledgers.write(ledger_id, recovering.value.closed(EntryId(1), 2), 1)
    await heard.until(lambda calls: closed in calls, "the third version")
    await writer.ledgers.delete(ledger_id, 2)
    await heard.until(lambda calls: calls[-1] is None, "the end")
    versions = [call.version for call in heard.calls[:-1]]
    assert versions == sorted(set(versions))


@fact
async def a_ledger_watch_tells_only_what_is_newer_than_known(world: World) -> None:
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger())
    heard = Heard(world.clock)
    store.ledgers.watch(ledger_id, heard, after_version=created.version)
    recovering = await store.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await heard.until(lambda calls: recovering in calls, "the second version")
    assert created not in heard.calls


@fact
async def a_cancelled_ledger_watch_is_silent(world: World) -> None:
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger())
    cancelled, heard = Heard(world.clock), Heard(world.clock)
    watch = store.ledgers.watch(ledger_id, cancelled, after_version=0)
    store.ledgers.watch(ledger_id, heard, after_version=0)
    watch.cancel()
    watch.cancel()
    recovering = await store.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await heard.until(lambda calls: recovering in calls, "the change")
    assert cancelled.calls == []


@fact
async def a_ledger_watch_survives_the_session(world: World) -> None:
    store, writer = await cluster(world), await world.connect()
    ledger_id, created = await writer.ledgers.create(ledger())
    heard, states = Heard(world.clock), Heard(world.clock)
    store.ledgers.watch(ledger_id, heard)
    await heard.until(lambda calls: created in calls, "the first version")
    store.watch_state(states)
    await world.expire(store)
    recovering = await writer.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await heard.until(lambda calls: recovering in calls, "the change")
    assert StoreState.LOST in states.calls


@fact
async def a_watched_ledger_that_becomes_unreadable_is_an_error_not_an_end(world: World) -> None:
    """I-18."""
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger(), LedgerId(7))
    heard, errors = Heard(world.clock), Heard(world.clock)
    store.ledgers.watch(ledger_id, heard, on_error=errors)
    await heard.until(lambda calls: created in calls, "the first version")
    await world.put("/00/0000/L0007", b"garbage")
    await errors.until(len, "the error")
    assert isinstance(errors.calls[0], MetadataCorrupt)
    assert None not in heard.calls
    await world.put("/00/0000/L0007", format_ledger(created.value))
    await heard.until(lambda calls: calls[-1] == Versioned(created.value, 2), "the repaired record")


# --- bookies --------------------------------------------------------------------------------------------------------


@fact
async def a_registered_bookie_is_seen_with_its_address(world: World) -> None:
    store, bookie = await cluster(world), await world.connect()
    heard = Heard(world.clock)
    store.bookies.watch(heard)
    await heard.until(lambda calls: calls and calls[-1].writable == {}, "the empty cluster")
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    await heard.until(lambda calls: BOOKIE in calls[-1].writable, "the bookie")
    assert heard.calls[-1].writable[BOOKIE].address() == ("bookie-a", 3181)
    await store.sync()
    assert (await store.bookies.current()).writable == {BOOKIE: service_info("bookie-a")}
    assert await store.registration.is_registered(BOOKIE)


@fact
async def a_bookie_changes_its_mode_without_ever_being_absent(world: World) -> None:
    store, bookie = await cluster(world), await world.connect()
    heard = Heard(world.clock)
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    store.bookies.watch(heard)
    await heard.until(lambda calls: calls and BOOKIE in calls[-1].writable, "the writable bookie")
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.READ_ONLY)
    await heard.until(lambda calls: BOOKIE in calls[-1].read_only and not calls[-1].writable, "the read-only bookie")
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    await heard.until(lambda calls: BOOKIE in calls[-1].writable and not calls[-1].read_only, "the writable bookie")
    started = next(index for index, call in enumerate(heard.calls) if BOOKIE in call.writable)
    assert all(BOOKIE in {**call.writable, **call.read_only} for call in heard.calls[started:])


@fact
async def a_new_registration_has_a_higher_epoch(world: World) -> None:
    """Only a newer registration says that a killed bookie serves again."""
    store, bookie = await cluster(world), await world.connect()
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    heard = Heard(world.clock)
    store.bookies.watch(heard)
    await heard.until(lambda calls: calls and BOOKIE in calls[-1].writable, "the bookie")
    before = store.bookies.epoch(BOOKIE)
    assert before is not None
    await bookie.registration.unregister(BOOKIE)
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    await heard.until(lambda _: (store.bookies.epoch(BOOKIE) or 0) > before, "the newer registration")
    assert store.bookies.epoch(BookieId("nobody:1")) is None


@fact
async def a_bookie_that_publishes_nothing_is_found_by_its_id(world: World) -> None:
    store = await cluster(world)
    await world.put("/available/10.0.0.1:3181", b"")
    await world.put("/available/readonly/no-address", b"")
    await world.put("/available/readonly/10.0.0.2:3181", b"\xff")
    await store.sync()
    found = await store.bookies.current()
    assert found.writable[BookieId("10.0.0.1:3181")].address() == ("10.0.0.1", 3181)
    assert found.read_only[BookieId("no-address")].address() is None
    assert found.read_only[BookieId("10.0.0.2:3181")].address() is None


@fact
async def a_closed_store_takes_its_registration_along(world: World) -> None:
    store, bookie = await cluster(world), await world.connect()
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    heard = Heard(world.clock)
    store.bookies.watch(heard)
    await heard.until(lambda calls: calls and BOOKIE in calls[-1].writable, "the bookie")
    await bookie.close()
    assert bookie.state is StoreState.CLOSED
    await heard.until(lambda calls: BOOKIE not in calls[-1].writable, "its end")


@fact
async def a_registration_is_renewed_after_session_loss(world: World) -> None:
    store, bookie = await cluster(world), await world.connect()
    events, heard = Heard(world.clock), Heard(world.clock)
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.READ_ONLY)
    store.bookies.watch(heard)
    await heard.until(lambda calls: calls and BOOKIE in calls[-1].read_only, "the bookie")
    before = store.bookies.epoch(BOOKIE) or 0
    bookie.registration.watch(events)
    await world.expire(bookie)
    await events.until(lambda calls: (RegistrationEvent.RENEWED, None) in calls, "the renewal")
    assert events.calls[0] == (RegistrationEvent.LOST, None)
    await heard.until(lambda calls: (store.bookies.epoch(BOOKIE) or 0) > before, "the new registration")
    assert BOOKIE in heard.calls[-1].read_only


@fact
async def a_rival_registration_is_waited_for_and_then_refused(world: World) -> None:
    first = await cluster(world)
    await first.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    rival = await world.connect(settings=MetadataSettings(registration_wait_s=0.5))
    error = await raises(
        AlreadyRegistered, rival.registration.register(BOOKIE, service_info("bookie-b"), BookieMode.WRITABLE)
    )
    assert BOOKIE in str(error)
    await rival.sync()
    assert (await rival.bookies.current()).writable == {BOOKIE: service_info("bookie-a")}


@fact
async def a_predecessors_registration_is_waited_for(world: World) -> None:
    """As after kill -9 and a quick restart: the old node is there until its session ends."""
    old, new = await cluster(world), await world.connect()
    await old.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    registering = new.registration.register(BOOKIE, service_info("new"), BookieMode.WRITABLE)
    await old.close()
    await registering
    await new.sync()
    assert (await new.bookies.current()).writable == {BOOKIE: service_info("new")}


class Sessions:
    """A SessionRecord in memory."""

    def __init__(self, *known: int) -> None:
        self.sessions = list(known)

    def known(self) -> list[int]:
        return self.sessions

    def add(self, session_id: int) -> Deferred[None]:
        self.sessions.append(session_id)
        return succeed(None)


@fact
async def a_dead_predecessors_registration_is_removed_at_once(world: World) -> None:
    """Its session is recorded, so its process is dead; in the other mode too."""
    await cluster(world)
    for mode in BookieMode:
        old = await world.connect()
        new = await world.connect(settings=MetadataSettings(registration_wait_s=0.0))
        old_sessions = Sessions()
        old.registration.keep_sessions(old_sessions)
        await old.registration.register(BOOKIE, service_info("bookie-a"), mode)
        new_sessions = Sessions(*old_sessions.sessions)
        new.registration.keep_sessions(new_sessions)
        await new.registration.register(BOOKIE, service_info("new"), BookieMode.WRITABLE)
        assert len(new_sessions.sessions) == len(old_sessions.sessions) + 1
        await new.sync()
        found = await new.bookies.current()
        assert (found.writable, found.read_only) == ({BOOKIE: service_info("new")}, {})
        await new.close()
        await old.close()


@fact
async def a_registration_of_a_session_that_is_not_recorded_is_left_alone(world: World) -> None:
    """I-18: only its own record proves that the other process is dead."""
    first = await cluster(world)
    await first.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    rival = await world.connect(settings=MetadataSettings(registration_wait_s=0.5))
    rival.registration.keep_sessions(Sessions(4711))
    await raises(AlreadyRegistered, rival.registration.register(BOOKIE, service_info("b"), BookieMode.WRITABLE))
    await rival.sync()
    assert (await rival.bookies.current()).writable == {BOOKIE: service_info("bookie-a")}


@fact
async def unregistering_is_repeatable(world: World) -> None:
    store = await cluster(world)
    await store.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    await store.registration.unregister(BOOKIE)
    await store.registration.unregister(BOOKIE)
    assert not await store.registration.is_registered(BOOKIE)


# --- cookies --------------------------------------------------------------------------------------------------------


@fact
async def cookies_are_raw_and_versioned(world: World) -> None:
    """I-70, I-15."""
    store = await cluster(world)
    assert await store.cookies.read(BOOKIE) is None
    assert await store.cookies.all() == {}
    assert await store.cookies.write(BOOKIE, b"5\none", None) == Versioned(b"5\none", 0)
    await raises(VersionConflict, store.cookies.write(BOOKIE, b"5\nother", None))
    assert await store.cookies.write(BOOKIE, b"5\ntwo", 0) == Versioned(b"5\ntwo", 1)
    await raises(VersionConflict, store.cookies.write(BOOKIE, b"5\nthree", 0))
    await raises(VersionConflict, store.cookies.delete(BOOKIE, 0))
    assert await store.cookies.all() == {BOOKIE: Versioned(b"5\ntwo", 1)}
    assert await world.get(f"/cookies/{BOOKIE}") == b"5\ntwo"
    await store.cookies.delete(BOOKIE, 1)
    await store.cookies.delete(BOOKIE, 1)
    assert await store.cookies.read(BOOKIE) is None
    await raises(VersionConflict, store.cookies.write(BOOKIE, b"5\nfour", 1))


# --- the cluster ----------------------------------------------------------------------------------------------------


@fact
async def a_new_cluster_has_apaches_nodes(world: World) -> None:
    store = await world.connect()
    assert not await store.admin.exists()
    instance_id = await store.admin.initialise()
    assert await store.admin.exists()
    assert await store.admin.instance_id() == instance_id
    assert len(instance_id) == 36
    assert await world.get("/INSTANCEID") == instance_id.encode()
    assert await world.get("/LAYOUT") == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert await world.get("/available") == await world.get("/available/readonly") == b""
    await raises(ClusterExists, store.admin.initialise())


@fact
async def without_a_cluster_everything_says_so(world: World) -> None:
    store = await world.connect()
    for refused in (
        store.ledgers.prepare(),
        store.ledgers.create(ledger()),
        store.ledgers.read(LedgerId(1)),
        store.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE),
        store.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.READ_ONLY),
        store.cookies.write(BOOKIE, b"5\n", None),
        store.admin.instance_id(),
    ):
        error = await raises(NotInitialised, refused)
        assert world.root in str(error)
    assert await store.admin.layout() is None


@fact
async def the_stored_layout_must_be_the_one_asked_for(world: World) -> None:
    await cluster(world, LayoutKind.FLAT)
    indifferent = await world.connect()
    assert (await indifferent.ledgers.prepare()).kind is LayoutKind.FLAT
    particular = await world.connect(LayoutKind.HIERARCHICAL)
    error = await raises(LayoutMismatch, particular.ledgers.prepare())
    assert "FLAT" in str(error)
    await world.put("/LAYOUT", b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1")
    await raises(LayoutMismatch, (await world.connect()).ledgers.prepare())
    await world.put("/LAYOUT", b"")
    await raises(MetadataCorrupt, (await world.connect()).ledgers.prepare())


@fact
async def formatting_removes_ledgers_and_cookies_and_renews_the_instance_id(world: World) -> None:
    store = await world.connect()
    old = await store.admin.format()
    await gatherResults([store.ledgers.create(ledger()) for _ in range(5)])
    await store.ledgers.create(ledger(), LedgerId(2**40))
    await store.cookies.write(BOOKIE, b"5\n", None)
    await world.put("/underreplication/ledgers/0000/0000/0000/0001/urL0000000001", b"")
    new = await store.admin.format()
    assert new != old
    assert await store.admin.instance_id() == new
    assert await all_ids(store) == []
    assert await store.cookies.all() == {}
    assert await world.get("/underreplication/ledgers") is None
    assert await world.get("/idgen") is None
    await store.ledgers.create(ledger())


@fact
async def a_cluster_in_use_is_not_nuked(world: World) -> None:
    store = await cluster(world)
    instance_id = await store.admin.instance_id()
    error = await raises(ClusterInUse, store.admin.nuke("another"))
    assert instance_id in str(error)
    await store.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.READ_ONLY)
    error = await raises(ClusterInUse, store.admin.nuke(instance_id))
    assert BOOKIE in str(error)
    await store.registration.unregister(BOOKIE)
    await world.put("/stranger", b"")
    await store.sync()
    error = await raises(ClusterInUse, store.admin.nuke(instance_id))
    assert "stranger" in str(error)
    assert await store.admin.instance_id() == instance_id


@fact
async def a_nuked_cluster_is_gone_root_and_all(world: World) -> None:
    store = await cluster(world)
    await store.ledgers.create(ledger())
    await store.cookies.write(BOOKIE, b"5\n", None)
    await store.admin.nuke(await store.admin.instance_id())
    assert not await store.admin.exists()
    await store.admin.initialise()
    assert await all_ids(store) == []
