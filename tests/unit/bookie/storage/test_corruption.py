"""A sample of the corruption sweep (`make corruption` is all of it): no damage of any file is silent (I-31, I-67)."""

import pytest

from tests.corruption import stored_bookie
from tests.corruption.random_damage import Life
from tests.corruption.stored_bookie import build, probe
from tests.corruption.sweep import Damage, Outcome, Tally, damages_of, files_of, judge, kind_of, sweep

KINDS = {
    *("entry log", "its checksums", "index file", "index checksums", "journal", "lastMark", "lastId", "cookie"),
    *("session file", "tombstones"),
}
EVERY = 701
SMALL_FILES = ("lastMark", "lastId", "tombstones")


@pytest.mark.parametrize("orderly", [True, False])
def test_an_undamaged_bookie_keeps_all_its_promises(orderly: bool) -> None:
    fs, promises = build(orderly=orderly)
    assert {kind_of(path) for path in files_of(fs)} == KINDS
    found = probe(stored_bookie.Life(fs.clone()), promises)
    assert (found.silent, found.lost_with_report, found.unknown) == ([], [], 0)


@pytest.mark.parametrize("orderly", [True, False])
def test_no_damage_of_any_file_is_silent(orderly: bool) -> None:
    """Every 701st damage of all, and every 7th of the small files."""
    fs, promises = build(orderly=orderly)

    def chosen(number: int, damage: Damage) -> bool:
        return number % (7 if kind_of(damage.path) in SMALL_FILES else EVERY) == 0

    tally = sweep(fs, promises, chosen)
    assert not tally.silent
    assert tally.total(Outcome.DETECTED) > 30


@pytest.mark.parametrize("orderly", [True, False])
def test_every_damaged_byte_of_a_record_or_of_a_page_is_detected(orderly: bool) -> None:
    """Not only harmless by luck: entry logs behind their header, index files behind theirs. A sample of each."""
    fs, promises = build(orderly=orderly)
    for path in files_of(fs):
        if kind_of(path) not in ("entry log", "index file"):
            continue
        for number, damage in enumerate(damages_of(fs, path)):
            if number % 401 == 0 and damage.offset >= 1024:
                assert judge(fs, promises, damage)[0] is Outcome.DETECTED, damage


@pytest.mark.parametrize("seed", [*range(40), 194, 589, 719, 984, 1048])
def test_no_random_damage_denies_mistakes_or_forgets_an_entry(seed: int) -> None:
    """719, 984 and 1048: a log was compacted by what a damaged index page said. 194, 589: locations of a damaged page,
    twice the same or out of all bounds, made reads of runs fail."""
    Life(seed).run()


def test_a_tally_counts_by_kind_and_keeps_what_was_silent() -> None:
    tally = Tally()
    tally.add(Damage("/ledgers/current/1.log", 5, b"x"), Outcome.SILENT, "served")
    tally.add(Damage("/ledgers/current/2.log", 5, None), Outcome.DETECTED, "")
    assert tally.counts["entry log"] == {Outcome.SILENT: 1, Outcome.DETECTED: 1}
    assert tally.silent == ["/ledgers/current/1.log at 5: 78: served"]
