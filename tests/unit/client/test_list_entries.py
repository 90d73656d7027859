"""Which entries a bookie holds, as it says itself."""

from typing import Any

import pytest

from bookkeeper.config import ClientSettings
from bookkeeper.errors import (
    BookieUnavailable,
    InvalidArgument,
    NoSuchLedgerOnBookie,
    NotSupportedByBookie,
    RemoteProtocolError,
    RequestTimedOut,
)
from bookkeeper.model import Status
from bookkeeper.wire.availability import encode_availability
from bookkeeper.wire.messages import ListEntries
from tests.support.fake_bookie import CLOSE, SILENCE, FakeCluster


class Listed:
    def __init__(self) -> None:
        self.cluster = FakeCluster(3)
        self.client = self.cluster.client(ClientSettings(explicit_lac_interval_s=0.0, read_timeout_s=1.0))
        ledger = self.cluster.wait(self.client.create(ensemble=3, write_quorum=2, ack_quorum=2))
        self.cluster.wait(ledger.append_many([b"x"] * 6))
        self.ledger_id, self.ensemble = ledger.ledger_id, ledger.metadata.last_fragment.ensemble

    def ask(self, place: int = 0, ledger_id: int | None = None) -> Any:
        asked = self.ledger_id if ledger_id is None else ledger_id
        return self.cluster.wait(self.client.list_entries(asked, self.ensemble[place]))

    def rule(self, verdict: object) -> None:
        bookie = self.cluster.by_id(self.ensemble[0])
        bookie.rule = lambda request: verdict if isinstance(request, ListEntries) else None


def test_each_bookie_lists_what_it_was_given() -> None:
    """E = 3, Qw = 2: bookie 0 has entries 0, 2, 3, 5, bookie 1 has 0, 1, 3, 4, bookie 2 has 1, 2, 4, 5."""
    listed = Listed()
    assert [list(run) for run in listed.ask(0)] == [[0], [2, 3], [5]]
    assert [list(run) for run in listed.ask(1)] == [[0, 1], [3, 4]]
    assert [list(run) for run in listed.ask(2)] == [[1, 2], [4, 5]]


def test_a_bookie_without_the_ledger_says_so() -> None:
    listed = Listed()
    with pytest.raises(NoSuchLedgerOnBookie):
        listed.ask(ledger_id=99)
    with pytest.raises(InvalidArgument):
        listed.ask(ledger_id=-1)


def test_nothing_told_is_nothing_held() -> None:
    listed = Listed()
    listed.rule({})
    assert listed.ask() == []
    listed.rule({"availability": encode_availability([])})
    assert listed.ask() == []


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (Status.BAD_REQUEST, NotSupportedByBookie),
        (Status.BAD_VERSION, NotSupportedByBookie),
        ({"availability": b"garbage"}, RemoteProtocolError),
        (SILENCE, RequestTimedOut),
        (CLOSE, NotSupportedByBookie),
    ],
)
def test_what_is_no_list_is_an_error(verdict: object, error: type[Exception]) -> None:
    listed = Listed()
    listed.rule(verdict)
    with pytest.raises(error):
        listed.ask()


def test_a_bookie_that_is_down_is_unavailable() -> None:
    listed = Listed()
    listed.cluster.by_id(listed.ensemble[0]).crash()
    with pytest.raises(BookieUnavailable):
        listed.ask()
