"""Queries over open ledgers log the entries that they leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.spark.ledgers.extents import plan_extents
from bookkeeper.spark.ledgers.options import LedgerReadOptions, parse_ledgers, parse_positions
from bookkeeper.spark.ledgers.sight import LedgerSight
from bookkeeper.spark.ledgers.unconfirmed import NAMED_MAX, Unconfirmed
from bookkeeper.spark.options.bounds import Bounds
from tests.support.fake_bookie import FakeCluster

QUIET = ClientSettings(explicit_lac_interval_s=0.0)


class OpenLedger:
    """An open ledger with ten entries, the last one unconfirmed, and a blocking client."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.client = self.cluster.client(QUIET)
        self.ledger = self.cluster.wait(self.client.create(ensemble=3, write_quorum=2, ack_quorum=2))
        for number in range(9):
            self.cluster.wait(self.ledger.append(b"%d" % number))
        self.cluster.wait(self.ledger.append(b"9"))

    def run(self, start: Callable[[LedgerClient], Deferred[Any]]) -> Any:
        return self.cluster.wait(start(self.client))


def warnings(logs: list[Any]) -> list[str]:
    return [event["reports"] for event in logs if "may be acknowledged" in event["log_format"]]


@pytest.mark.parametrize(
    ("ends", "bounds", "reads_to_the_end"),
    [
        ({}, Bounds(), True),
        ({"end": "latest"}, Bounds(), True),
        ({"end": '{"LEDGER": -1}'}, Bounds(), True),
        ({"end": '{"LEDGER": 9}'}, Bounds(), False),
        ({"end": '{"LEDGER": 3}'}, Bounds(), False),
        ({}, Bounds().at_most(8), False),
        ({}, Bounds().at_most(9), True),
    ],
)
def test_a_batch_read_that_leaves_out_unconfirmed_entries_warns(
    ends: dict[str, str], bounds: Bounds, reads_to_the_end: bool
) -> None:
    opened: Any = OpenLedger()
    ledger_id = opened.ledger.id
    positions: Any = {name: parse_positions(each.replace("LEDGER", str(ledger_id))) for name, each in ends.items()}
    options = LedgerReadOptions(ledgers=parse_ledgers(str(ledger_id)), **positions)
    with capturedLogs() as logs:
        [extent] = plan_extents(opened, options, Bounds(), bounds)
    assert extent.last_entry_id <= 8, "nothing is read past the last add confirmed"
    logged = warnings(list(logs))
    assert bool(logged) == reads_to_the_end
    if logged:
        assert f"ledger {ledger_id} is not closed" in logged[0]
        assert "entry 9 is stored" in logged[0]


def test_a_closed_ledger_needs_no_warning() -> None:
    opened: Any = OpenLedger()
    opened.cluster.wait(opened.ledger.close())
    with capturedLogs() as logs:
        [extent] = plan_extents(
            opened, LedgerReadOptions(ledgers=parse_ledgers(str(opened.ledger.id))), Bounds(), Bounds()
        )
    assert extent.last_entry_id == 9
    assert warnings(list(logs)) == []


def test_a_stream_warns_at_its_end_and_not_while_it_follows() -> None:
    opened: Any = OpenLedger()
    sight = LedgerSight(opened, fail_on_data_loss=True)
    with capturedLogs() as logs:
        assert sight.see([opened.ledger.id])[opened.ledger.id].end == 8
    assert warnings(list(logs)) == []
    with capturedLogs() as logs:
        sight.see([opened.ledger.id], is_last=True)
    assert len(warnings(list(logs))) == 1


def test_a_warning_names_a_few_and_counts_the_others() -> None:
    unconfirmed = Unconfirmed()
    for number in range(NAMED_MAX + 3):
        unconfirmed.note(f"ledger {number} ...")
    unconfirmed.note(None)
    with capturedLogs() as logs:
        unconfirmed.warn()
        unconfirmed.warn()
    [event] = [each for each in logs if "may be acknowledged" in each["log_format"]]
    assert event["reports"].count("ledger") == NAMED_MAX
    assert "3 more" in event["more"]
