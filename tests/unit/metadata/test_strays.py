"""Stray znodes among the ledgers, in every layout: all ledgers are listed, and each stray is named."""

import random

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata import bad_records as module
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.metadata.cluster.layout import Layout, LayoutKind
from bookkeeper.metadata.ledgers.paths import LEDGER_ID_LIMITS, ledger_path
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import LedgerId
from tests.support.logged import logged
from tests.support.simulated_clock import SimulatedClock

IDS = (0, 1, 9999, 10_000, 2_147_483_646, 2_147_483_647, 5_000_000_000)

STRAYS = {
    # names that spell no id
    "/x": None,
    "/notaledger": None,
    "/00/00zz": None,
    "/00/0000/notaledger": None,
    "/000/0000/zz": None,
    "/000/0000/0000/0000/L00x1": None,
    # ledgers too high, too low, and directories in their place
    "/00/L0005": 5,
    "/000/0000/L0007": 7,
    "/00/0000/0003": 3,
    "/00/0000/L00011": 11,
    "/12345": 12_345,
    # paths of other layouts
    "/L0000000033": 33,
    "/00/0000/L0044": 44,
    "/000/0000/0000/0000/L0055": 55,
}
"""Path below the root -> the ledger id that it spells."""


class Listed:
    """A cluster of one layout, and the ledgers that a walk lists."""

    def __init__(self, kind: LayoutKind) -> None:
        self.kind = kind
        self.shared = MemoryMetadata(clock=SimulatedClock())
        self.store = MemoryMetadataStore(self.shared, SimulatedClock(), random.Random(1), layout=kind)
        self.put("/LAYOUT")
        self.shared.damage("/ledgers/LAYOUT", Layout(kind).format())
        self.ids = [each for each in IDS if each <= LEDGER_ID_LIMITS[kind]]
        for ledger_id in self.ids:
            self.put(ledger_path(kind, ledger_id))

    def put(self, path: str) -> None:
        self.shared.plant(f"/ledgers{path}")

    def walk(self, bad_records: BadRecords | None = None) -> tuple[list[int], BaseException | None]:
        found: list[int] = []
        outcome: list[object] = []

        async def walk() -> None:
            async for batch in self.store.ledgers.ids(bad_records):
                found.extend(batch)

        Deferred.fromCoroutine(walk()).addBoth(outcome.append)
        assert outcome, "the memory store answers at once"
        return found, getattr(outcome[0], "value", None)


def _is_ledger(kind: LayoutKind, stray: str) -> bool:
    spelled = STRAYS[stray]
    return spelled is not None and ledger_path(kind, spelled) == stray


@pytest.mark.parametrize(
    ("kind", "stray"), [(kind, stray) for kind in LayoutKind for stray in STRAYS if not _is_ledger(kind, stray)]
)
def test_a_stray_is_named_beside_all_ledgers(kind: LayoutKind, stray: str) -> None:
    listed = Listed(kind)
    listed.put(stray)
    bad_records = BadRecords()
    assert listed.walk(bad_records) == (listed.ids, None)
    assert [each.path for each in bad_records.named] == [f"/ledgers{stray}"]
    assert bad_records.ledger_ids == ({STRAYS[stray]} - {None})
    found, error = listed.walk()
    assert found == listed.ids, "without a place for strays the walk fails, after the last ledger"
    assert isinstance(error, MetadataCorrupt)
    assert f"/ledgers{stray}" in str(error)


def test_all_strays_together_hide_no_ledger() -> None:
    listed = Listed(LayoutKind.HIERARCHICAL)
    for stray in STRAYS:
        listed.put(stray)
    bad_records = BadRecords()
    ids = sorted([*listed.ids, 44])  # 44 is not a stray in this layout
    assert listed.walk(bad_records) == (ids, None)
    assert {each.path for each in bad_records.named} == {f"/ledgers{each}" for each in STRAYS} - {
        "/ledgers/00/0000/L0044"
    }


def test_ledgers_of_another_layout_are_bad_records_with_their_ids() -> None:
    """As after LAYOUT was rewritten: a garbage collector must not take these ledgers for deleted."""
    listed = Listed(LayoutKind.LONG_HIERARCHICAL)
    listed.shared.damage("/ledgers/LAYOUT", Layout(LayoutKind.FLAT).format())
    listed.store = MemoryMetadataStore(listed.shared, SimulatedClock(), random.Random(1))
    bad_records = BadRecords()
    assert listed.walk(bad_records) == ([], None)
    assert bad_records.ledger_ids == set(listed.ids)


def test_bad_records_beyond_the_bounds_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEDGER_IDS_MAX", 2)
    found = BadRecords()
    for number in range(module.NAMED_MAX + 3):
        found.add(f"/ledgers/{number}", "is not a ledger", LedgerId(number % 3))
    assert (found.count, len(found.named), len(found.ledger_ids)) == (module.NAMED_MAX + 3, module.NAMED_MAX, 2)
    assert not found.ledger_ids_known
    assert found.lines()[-1] == "3 more bad records are not named here"


def test_a_bad_record_is_logged_once_for_as_long_as_it_stays() -> None:
    reported, none, one, both = ReportedRecords(), BadRecords(), BadRecords(), BadRecords()
    one.add("/ledgers/x", "is not a ledger")
    both.add("/ledgers/x", "is not a ledger")
    both.add("/ledgers/y", "is not a ledger")
    with logged() as lines:
        for found in (one, one, both, one, none, one, one):
            reported.report(found, "it is passed over")
    x, y = (f"/ledgers/{name}: is not a ledger; it is passed over" for name in "xy")
    assert lines == [x, y, x]


def test_a_bad_record_found_by_several_walks_is_logged_once() -> None:
    reported, one, both = ReportedRecords(), BadRecords(), BadRecords()
    one.add("/ledgers/x", "is not a ledger")
    both.add("/ledgers/x", "is not a ledger")
    both.add("/ledgers/y", "is not a ledger")
    with logged() as lines:
        for _ in range(3):
            reported.report(one, "it is passed over", "ledgers")
            reported.report(both, "it is passed over", "ledgers and marks")
    assert lines == [f"/ledgers/{name}: is not a ledger; it is passed over" for name in "xy"]
