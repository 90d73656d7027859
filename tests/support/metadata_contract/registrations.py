"""Bookies: registration, modes, epochs, session loss and rivals."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed

from bookkeeper.errors import (
    AlreadyRegistered,
    BookKeeperError,
    CookieMismatch,
    MetadataUnavailable,
)
from bookkeeper.metadata.store import MetadataSettings, RegistrationEvent, StoreState
from bookkeeper.model import (
    BookieId,
    BookieMode,
)
from tests.support.logged import logged
from tests.support.metadata_contract.world import (
    BOOKIE,
    Heard,
    World,
    cluster,
    fact,
    raises,
    service_info,
)


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
    assert found.unusable.keys() == {"no-address", "10.0.0.2:3181"}


@fact
async def a_registration_that_cannot_be_read_is_listed_as_unusable(world: World) -> None:
    """Its bookie is registered, so it must not count as lost. The registration is logged once while it stays."""
    store, bookie = await cluster(world), await world.connect()
    heard = Heard(world.clock)
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    contents = {b"\xff": "not a protobuf", b"garbage": "", b"\x28\x01": "names no bookie-rpc endpoint"}
    with logged() as lines:
        for number, data in enumerate(contents):
            await world.put(f"/available/10.0.1.{number}:3181", data)
        store.bookies.watch(heard)
        await heard.until(lambda calls: calls and len(calls[-1].unusable) == 3, "the registrations")
        for _ in range(3):
            await store.sync()
            await store.bookies.current()
    found = heard.calls[-1]
    assert found.writable.keys() == {BOOKIE, *found.unusable}
    for number, problem in enumerate(contents.values()):
        path = f"{world.root}/available/10.0.1.{number}:3181"
        assert found.unusable[BookieId(f"10.0.1.{number}:3181")].startswith(f"{path}: {problem}")
        assert sum(line.startswith(f"{path}: ") for line in lines) == 1


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
async def a_renewal_is_checked_first_and_given_up_if_the_check_refuses(world: World) -> None:
    """The store may have been restored or emptied. A change of mode does not avoid the check."""
    store, bookie = await cluster(world), await world.connect()
    events = Heard(world.clock)
    outcomes: list[BookKeeperError | None] = [MetadataUnavailable("not now"), None, *[CookieMismatch("gone")] * 5]

    async def check() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    bookie.registration.check_renewals(check)
    bookie.registration.watch(events)
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.READ_ONLY)
    assert len(outcomes) == 7  # no check within a session
    await world.expire(bookie)
    await events.until(lambda calls: (RegistrationEvent.RENEWED, None) in calls, "the renewal")
    while outcomes and outcomes[0] is None:  # a fault may have ended a session, with a check of its own
        outcomes.pop(0)
    await world.expire(bookie)
    await events.until(lambda calls: calls[-1][0] is RegistrationEvent.FAILED, "the refusal")
    assert isinstance(events.calls[-1][1], CookieMismatch)
    await store.sync()
    assert not await store.registration.is_registered(BOOKIE)


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
