"""Which entries go to which file."""

from __future__ import annotations

import random

from bookkeeper.spark.exports.packing import LEDGER_BYTES, LedgerSize, Piece, packed

MB = 1_000_000


def test_small_ledgers_share_files_and_large_ones_are_cut() -> None:
    ledgers = [
        *(LedgerSize(5, 9, 10 * MB), LedgerSize(6, 299, 300 * MB)),
        *(LedgerSize(7, 0, MB), LedgerSize(8, 1, 2 * MB), LedgerSize(9, -1, 0)),
    ]
    assert list(packed(ledgers, 128 * MB)) == [
        Piece(0, 5, 0, 9),
        Piece(1, 6, 0, 127),
        Piece(2, 6, 128, 255),
        Piece(3, 6, 256, 299),
        Piece(3, 7, 0, 0),
        Piece(3, 8, 0, 1),
    ]


def test_a_day_without_entries_has_no_file() -> None:
    assert list(packed([], MB)) == list(packed([LedgerSize(5, -1, 0)], MB)) == []


def test_an_entry_that_is_larger_than_a_file_has_one_of_its_own() -> None:
    assert list(packed([LedgerSize(5, 1, 8 * MB), LedgerSize(6, 0, 1)], MB)) == [
        *(Piece(0, 5, 0, 0), Piece(1, 5, 1, 1)),
        Piece(2, 6, 0, 0),
    ]


def test_ledgers_of_hardly_a_byte_weigh_what_opening_them_takes() -> None:
    pieces = list(packed([LedgerSize(number, 0, 1) for number in range(1000)], 100 * LEDGER_BYTES))
    assert [piece.file for piece in pieces] == [number // 100 for number in range(1000)]


def test_every_entry_is_in_one_piece_in_order_and_files_are_full() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        ledgers = []
        for number in range(dice.randrange(1, 40)):
            count = dice.randrange(0, 500)
            ledgers.append(LedgerSize(number, count - 1, count * dice.choice((0, 1, 1000, 100_000))))
        limit = dice.choice((MB, 3 * MB, 20 * MB))
        shuffled = list(ledgers)
        dice.shuffle(shuffled)
        pieces = list(packed(shuffled, limit))
        assert pieces == list(packed(ledgers, limit)), seed
        found: dict[int, list[int]] = {}
        for piece in pieces:
            found.setdefault(piece.ledger_id, []).extend(range(piece.first_entry_id, piece.last_entry_id + 1))
        assert found == {
            each.ledger_id: list(range(each.last_entry_id + 1)) for each in ledgers if each.last_entry_id >= 0
        }
        files = [piece.file for piece in pieces]
        assert files == sorted(files), seed
        assert set(files) == set(range(len(set(files)))), seed
        weights: dict[int, int] = {}
        by_id = {each.ledger_id: each for each in ledgers}
        for piece in pieces:
            ledger = by_id[piece.ledger_id]
            mean = ledger.size / (ledger.last_entry_id + 1)
            size = mean * (piece.last_entry_id - piece.first_entry_id + 1)
            weights[piece.file] = weights.get(piece.file, 0) + max(int(size), LEDGER_BYTES)
        assert all(weight <= limit for weight in weights.values()), seed
        # What begins the next file did not fit into this one.
        assert all(weights[file] + weights[file + 1] > limit for file in range(len(weights) - 1)), seed
