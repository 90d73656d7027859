"""The bookie's registration follows its mode, also if no further event causes a retry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from bookkeeper.bookie.identity.registration import RETRY_MAX_S, Registered
from bookkeeper.bookie.process.mode import ModeSwitch, ReadOnlyReason
from bookkeeper.bookie.process.process_context import Surroundings
from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.store import RegistrationEvent
from bookkeeper.metrics import Metrics
from bookkeeper.model import BookieId, BookieMode, BookieServiceInfo, Endpoint

ID = BookieId("b:3181")
INFO = BookieServiceInfo((Endpoint("b", "b", 3181, "bookie-rpc"),))


class Store:
    """A store in which the test can make registrations fail. registered_mode: what clients see."""

    def __init__(self) -> None:
        self.registered_mode: BookieMode | None = None
        self.reachable = True
        self.tries = 0
        self.listener: Any = None

    def keep_sessions(self, record: object) -> None:
        pass

    def register(self, bookie_id: BookieId, info: BookieServiceInfo, mode: BookieMode) -> Deferred[None]:
        self.tries += 1
        if not self.reachable:
            return fail(MetadataUnavailable("no answer within 15 s"))
        self.registered_mode = mode
        return succeed(None)

    def unregister(self, bookie_id: BookieId) -> Deferred[None]:
        return succeed(None)

    def check_renewals(self, check: object) -> None:
        pass

    def watch(self, listener: Any) -> None:
        self.listener = listener


class Scene:
    def __init__(self) -> None:
        self.clock, self.mode, self.store = Clock(), ModeSwitch(), Store()
        self.chronicle = mock.Mock()
        around = cast("Surroundings", SimpleNamespace(mode=self.mode, metrics=Metrics(), reactor=self.clock))
        self.registered = Registered(
            around,
            cast("Any", SimpleNamespace(registration=self.store)),
            mock.Mock(),
            ID,
            INFO,
            self.chronicle,
            lambda: succeed(None),
            mock.Mock(side_effect=AssertionError),
        )
        Deferred.fromCoroutine(self.registered.register(mock.Mock()))


def test_a_registration_that_could_not_follow_the_mode_is_retried_by_a_timer() -> None:
    """Neither session nor mode need change again: without a timer the bookie stays read-only for all clients."""
    scene = Scene()
    scene.mode.forbid(ReadOnlyReason.NO_ROOM)
    assert scene.store.registered_mode is BookieMode.READ_ONLY
    scene.store.reachable = False
    scene.mode.allow(ReadOnlyReason.NO_ROOM)
    before = scene.store.tries
    scene.clock.pump([1.0] * 3600)
    assert 3600 / RETRY_MAX_S <= scene.store.tries - before <= 3600 / RETRY_MAX_S + 6, (
        "the delay doubles up to RETRY_MAX_S"
    )
    assert scene.chronicle.on_registration.call_args.args[0] == "lagging"
    scene.store.reachable = True
    scene.clock.advance(RETRY_MAX_S)
    assert scene.store.registered_mode is BookieMode.WRITABLE
    assert scene.chronicle.on_registration.call_args.args == ("registered",)
    assert not scene.clock.getDelayedCalls()


def test_a_renewed_registration_or_the_end_stops_the_retries() -> None:
    scene = Scene()
    scene.store.reachable = False
    scene.mode.forbid(ReadOnlyReason.DISK_FULL)
    scene.store.reachable = True
    scene.store.listener(RegistrationEvent.RENEWED, None)  # a new session, registered in the current mode
    assert not scene.clock.getDelayedCalls()
    scene.store.reachable = False
    scene.mode.allow(ReadOnlyReason.DISK_FULL)
    scene.mode.forbid(ReadOnlyReason.DISK_FULL)
    assert len(scene.clock.getDelayedCalls()) == 1
    scene.registered.expect_end()
    assert not scene.clock.getDelayedCalls()
