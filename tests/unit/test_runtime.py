"""The longest turn of a reactor, with a fake epoll object."""

from __future__ import annotations

import inspect
import math
import re
from types import SimpleNamespace

import pytest
from twisted.internet import epollreactor

from bookkeeper.runtime import watch_turns
from tests.support.simulated_clock import SimulatedClock


class Poller:
    """An epoll object that waits 10 s."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.registered: list[int] = []
        self.register = self.modify = self.unregister = self.registered.append
        self.breaks = False

    def poll(self, timeout: float, count_max: int) -> list[tuple[int, int]]:
        self.clock.spend(10.0)
        if self.breaks:
            raise OSError("interrupted")
        return [(int(timeout), count_max)]


def test_the_longest_turn_since_the_last_call_is_what_lies_between_two_waits() -> None:
    clock = SimulatedClock()
    poller = Poller(clock)
    reactor = SimpleNamespace(_poller=poller)
    take = watch_turns(reactor, clock.seconds)
    for turn_s in (0.5, 3.0, 0.25):
        assert vars(reactor)["_poller"].poll(1.0, 7) == [(1, 7)]
        clock.spend(turn_s)
    assert take() == 3.0, "the last one is not over"
    vars(reactor)["_poller"].poll(1.0, 7)
    assert watch_turns(reactor)() == 0.25, "watched once only"
    assert take() == 0.0
    poller.breaks = True
    with pytest.raises(OSError, match="interrupted"):
        vars(reactor)["_poller"].poll(1.0, 7)
    clock.spend(0.125)
    poller.breaks = False
    vars(reactor)["_poller"].poll(1.0, 7)
    assert take() == 0.125, "no wait is part of a turn"


def test_twisted_uses_of_the_epoll_object_only_what_stands_in_for_it() -> None:
    source = inspect.getsource(epollreactor)
    assert set(re.findall(r"self\._poller\.(\w+)", source)) == {"register", "modify", "unregister", "poll"}


def test_the_turns_of_a_reactor_without_epoll_are_not_known() -> None:
    assert math.isnan(watch_turns(SimpleNamespace())())
