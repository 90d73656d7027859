"""Explicit LACs: journaled before they are served, never falling, never too long to be stored (I-07)."""

from __future__ import annotations

import pytest

from bookkeeper.model import Status
from tests.support.bookie_fakes import KEY, BookieBench, body_of, ids_of, lac_packet

EXPLICIT_LAC_ENTRY = -0x8000


def test_the_known_lac_is_the_highest_embedded_or_explicit_and_never_falls() -> None:
    bench = BookieBench()
    bench.add([5], lac=4)
    assert bench.read(5, with_lac=True)[0][1] == 4
    bench.add([6], lac=3)
    assert bench.read(5, with_lac=True)[0][1] == 4  # I-07
    bench.write_lac(6)
    bench.settle()
    assert bench.read(5, with_lac=True)[0][1] == 6
    bench.write_lac(2)
    bench.settle()
    assert bench.read(5, with_lac=True)[0][1] == 6
    assert bench.storage.lacs[7] == lac_packet(7, 6)


def test_the_known_lac_is_found_again_after_it_was_forgotten() -> None:
    bench = BookieBench()
    bench.storage.entries[7] = {5: body_of(7, 5, lac=4)}
    bench.storage.keys[7] = KEY
    bench.storage.lacs[7] = lac_packet(7, 5)
    bench.storage.cold_ledgers.add(7)
    bench.storage.cold_entries.add((7, 5))
    answers = bench.read(3, with_lac=True)
    bench.settle()
    assert answers == [([Status.NO_ENTRY], 5)]


def test_an_explicit_lac_is_answered_after_its_sync_even_when_it_is_old() -> None:
    bench = BookieBench()
    first, older = bench.write_lac(5), bench.write_lac(3)
    assert (first, older) == ([], [])
    bench.journal.sync()
    assert (first, older) == ([Status.OK], [Status.OK])
    records = [record for record in bench.journal.durable if ids_of([record]) == [(7, EXPLICIT_LAC_ENTRY)]]
    assert [record[20:] for record in records] == [lac_packet(7, 5), lac_packet(7, 3)]
    assert bench.storage.lacs[7] == lac_packet(7, 5)
    assert bench.write_lac(4) == [Status.OK]  # nothing to store
    assert bench.journal.queued == []


def test_an_explicit_lac_is_served_only_once_it_is_durable() -> None:
    """I-07: otherwise a crash would take it back from readers who saw it."""
    bench = BookieBench()
    bench.add([5], lac=1)
    bench.settle()
    bench.read(5, with_lac=True)
    answers = bench.write_lac(4)
    assert bench.read_lac() == [(Status.OK, None, body_of(7, 5, lac=1))]
    assert bench.read(5, with_lac=True)[0][1] == 1
    bench.journal.sync()
    assert answers == [Status.OK]
    assert bench.read_lac() == [(Status.OK, lac_packet(7, 4), body_of(7, 5, lac=1))]
    assert bench.read(5, with_lac=True)[0][1] == 4


@pytest.mark.parametrize("digest_size", [241, 5000])
def test_an_explicit_lac_too_long_to_be_stored_never_reaches_the_journal(digest_size: int) -> None:
    """Its replay would fail at every start."""
    bench = BookieBench()
    answers = bench.write_lac(4, digest=b"d" * digest_size)
    assert answers == [Status.BAD_REQUEST]
    bench.settle()
    assert answers == [Status.BAD_REQUEST]
    assert bench.journal.durable == []
    assert bench.bookie.in_flight == 0


def test_a_fenced_ledger_still_takes_an_explicit_lac() -> None:
    bench = BookieBench()
    bench.fence()
    answers = bench.write_lac(3)
    bench.settle()
    assert answers == [Status.OK]


def test_read_lac_answers_both_parts_or_no_entry() -> None:
    bench = BookieBench()
    # not NO_LEDGER: as Apache answers it (bookkeeper/wire/FORMATS.md 2.4)
    assert bench.read_lac() == [(Status.NO_ENTRY, None, None)]
    bench.write_lac(3)
    bench.settle()
    assert bench.read_lac() == [(Status.OK, lac_packet(7, 3), None)]
    bench.add([4])
    assert bench.read_lac() == [(Status.OK, lac_packet(7, 3), body_of(7, 4))]


def test_read_lac_says_io_error_when_the_last_entry_cannot_be_read() -> None:
    bench = BookieBench()
    bench.add([4])
    bench.storage.cold_entries.add((7, 4))
    bench.storage.cold_error = OSError(5, "Input/output error")
    answers = bench.read_lac()
    bench.worker.run_all()
    assert answers == [(Status.IO_ERROR, None, None)]  # I-31
