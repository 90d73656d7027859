"""Which places of a log lie in its damaged bytes, or are the last before them: against a look at every byte."""

from __future__ import annotations

import random

from bookkeeper.bookie.integrity.damage.wanted_bytes import Place, WantedBytes, batches
from bookkeeper.bookie.storage.entry_log.format import SIZE, location


def test_neighbouring_pieces_are_one_run() -> None:
    assert len(WantedBytes((page * 4096, page * 4096 + 4096) for page in range(100_000))) == 1
    assert len(WantedBytes([(8192, 12288), (0, 4096), (16384, 20480), (4096, 8192), (5000, 6000)])) == 2


def test_the_places_found_are_those_whose_record_has_bytes_in_a_run_and_the_last_ones_before_each() -> None:
    rng = random.Random(7)
    for _ in range(200):
        pieces = [
            (start := rng.randrange(1024, 4000), start + rng.randrange(1, 300)) for _ in range(rng.randrange(1, 8))
        ]
        wanted, before = WantedBytes(pieces), dict[int, Place]()
        records = []  # offset of the record, body size
        offset = 1024
        while offset < 4500:
            records.append((offset, rng.randrange(16, 400)))
            offset += SIZE.size + records[-1][1]
        mine = [record for record in enumerate(records) if rng.random() < 0.7]
        places = [(location(3, offset + SIZE.size), entry_id) for entry_id, (offset, _) in mine]
        rng.shuffle(places)
        found = set[Place]()
        for start in range(0, len(places), 4):  # page by page, in any order
            found.update(wanted.inside(places[start : start + 4], before))
        assert not found & set(before.values())
        touched = {
            (location(3, offset + SIZE.size), entry_id)
            for entry_id, (offset, size) in mine
            if any(start < offset + SIZE.size + size and offset < stop for start, stop in pieces)
        }
        assert touched <= found | set(before.values())
        assert len(before) <= len(wanted)
        assert all(
            any(start <= (place[0] & 0xFFFFFFFF) < stop + SIZE.size for start, stop in pieces) for place in found
        )


def test_a_batch_begins_within_its_bytes_and_has_no_more_places_than_may_be() -> None:
    places = [(location(1, offset), offset) for offset in (1028, 5000, 2000, 600_000, 600_100, 600_200)]
    assert [[entry_id for _, entry_id in batch] for batch in batches(places, bytes_max=500_000, count_max=2)] == [
        [1028, 2000],
        [5000],
        [600_000, 600_100],
        [600_200],
    ]
