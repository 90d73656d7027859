"""What a bookie remembers of LACs: it only rises, and is not made up after it was forgotten (I-07)."""

from __future__ import annotations

from bookkeeper.bookie.requests.known_lac import KnownLacs, lac_of_body, lac_of_packet
from tests.support.bookie_fakes import body_of, lac_packet


def test_lacs_are_read_from_bodies_and_packets() -> None:
    assert lac_of_body(body_of(7, 5, lac=4)) == 4
    assert lac_of_body(b"short") == -1
    assert lac_of_packet(lac_packet(7, 3)) == 3
    assert lac_of_packet(None) == -1


def test_a_known_lac_only_rises() -> None:
    lacs = KnownLacs(ledgers_max=10)
    lacs.restore(7, 5)
    for lac, known in ((3, 5), (6, 6), (-1, 6), (6, 6)):
        lacs.raise_to(7, lac)
        assert lacs.get(7) == known
    lacs.restore(7, 2)
    assert lacs.get(7) == 6


def test_an_unremembered_ledger_is_restored_from_the_storage_and_not_from_one_add() -> None:
    lacs = KnownLacs(ledgers_max=4)
    lacs.restore(7, 50)
    for other in range(100, 110):
        lacs.restore(other, 0)
    assert lacs.get(7) is None
    lacs.raise_to(7, 10)  # less than was answered before it was forgotten
    assert lacs.get(7) is None
    lacs.restore(7, 51)
    assert lacs.get(7) == 51
