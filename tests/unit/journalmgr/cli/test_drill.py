"""A failover drill waits until a stopped server knows that its turn is over."""

from __future__ import annotations

from typing import Any, cast

import pytest

from journalmgr.cli.drill import _wait_for_end_of_turn


class Woken:
    """A server that reports one status after the other. None: the server does not answer."""

    number = 1

    def __init__(self, *says: tuple[str, int] | None) -> None:
        self.left = list(says)

    def status(self) -> dict[str, Any] | None:
        said = self.left.pop(0)
        return None if said is None else {"role": said[0], "turns": said[1]}


@pytest.mark.parametrize(
    "says",
    [
        [("active", 3), ("loading", 3), None, ("standby", 3)],
        [None, ("active", 3), ("active", 4)],  # its successor has lost the role already
    ],
)
def test_a_turn_ends_as_standby_or_with_the_next_turn(says: list[tuple[str, int] | None]) -> None:
    server = Woken(*says)
    _wait_for_end_of_turn(cast(Any, server), 3)
    assert not server.left
