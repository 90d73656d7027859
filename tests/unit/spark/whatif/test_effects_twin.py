"""Random clusters under random situations, beside a twin that goes copy by copy.

Who takes copies is asked of the client's own choice, with the dice of `effects`; everything else is counted anew.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from bookkeeper.client.bookies.placement import choose_ensemble, choose_replacements
from bookkeeper.model import BookieId
from bookkeeper.protocol.schedule import write_set
from bookkeeper.spark.whatif.effects import Effects, FragmentRow
from bookkeeper.spark.whatif.question import Question, Quorums
from bookkeeper.spark.whatif.situation import KnownBookie, Situation, situation_of

KINDS = ("before", "gone", "received")


@dataclass
class Copies:
    """Entries that each bookie has, loses, receives and gives of one fragment, and what becomes of the entries."""

    of: dict[str, Counter[BookieId]] = field(default_factory=lambda: {name: Counter() for name in (*KINDS, "given")})
    entries: Counter[str] = field(default_factory=Counter)


def lose(row: FragmentRow, situation: Situation) -> Copies:
    """Entry by entry, as auto-recovery goes about it."""
    found = Copies()
    lost = [index for index, each in enumerate(row.ensemble) if each in situation.lost]
    chosen = choose_replacements(
        indexes=lost,
        ensemble=row.ensemble,
        write_quorum=row.write_quorum,
        candidates=situation.takers,
        excluded=situation.lost,
        quarantined=(),
        rack_of=situation.rack_of,
        rng=random.Random(f"{row.ledger_id}/{row.first_entry_id}"),
        weights=situation.weights,
    )
    assert not set(chosen.values()) & (set(row.ensemble) | situation.lost)
    for entry_id in range(row.first_entry_id, row.last_entry_id + 1):
        members = write_set(entry_id, row.ensemble_size, row.write_quorum)
        found.of["before"].update(row.ensemble[index] for index in members)
        gone = [index for index in members if index in lost]
        found.of["gone"].update(row.ensemble[index] for index in gone)
        if not gone:
            continue
        left = [row.ensemble[index] for index in members if index not in lost]
        readable = [each for each in left if each in situation.registered]
        found.entries["affected"] += 1
        found.entries["lost_copies"] += len(gone)
        found.entries["no_copy"] += not left
        found.entries["one_copy"] += len(left) == 1
        found.entries["below_ack_quorum"] += len(left) < row.ack_quorum
        found.entries["no_readable_copy"] += bool(left) and not readable
        if readable:
            takers = [chosen[index] for index in gone if index in chosen]
            found.of["received"].update(takers)
            found.entries["written_copies"] += len(takers)
            found.entries["unplaced_copies"] += len(gone) - len(takers)
            found.of["given"].update(readable[:1] if takers else ())
    return found


def rewrite(row: FragmentRow, situation: Situation) -> Copies:
    """Every entry read once, written to its new write set, and deleted where it was."""
    found = Copies()
    asked = situation.quorums.of(row.ensemble_size, row.write_quorum, row.ack_quorum)
    changes = asked != (row.ensemble_size, row.write_quorum, row.ack_quorum)
    new = choose_ensemble(
        ensemble_size=asked[0],
        write_quorum=asked[1],
        candidates=situation.takers,
        quarantined=(),
        rack_of=situation.rack_of,
        rng=random.Random(f"{row.ledger_id}"),
        weights=situation.weights,
    )
    for entry_id in range(row.first_entry_id, row.last_entry_id + 1):
        old = [row.ensemble[index] for index in write_set(entry_id, row.ensemble_size, row.write_quorum)]
        found.of["before"].update(old)
        if changes:
            found.of["gone"].update(old)
            found.of["received"].update(new[index] for index in write_set(entry_id, asked[0], asked[1]))
            found.of["given"].update(old[:1])
            found.entries["affected"] += 1
            found.entries["written_copies"] += asked[1]
    return found


def ledgers_of(rng: random.Random, bookies: list[BookieId]) -> list[FragmentRow]:
    """Fragments of some ledgers, of every shape."""
    rows = []
    for ledger_id in range(rng.randint(1, 6)):
        ensemble_size = rng.randint(1, min(4, len(bookies)))
        write_quorum = rng.randint(1, ensemble_size)
        ack_quorum = rng.randint(1, write_quorum)
        end = rng.randint(-1, 40)
        length = rng.randint(0, 1000)
        borders = sorted({0, *(rng.randint(0, max(0, end)) for _ in range(rng.randint(0, 2)))})
        for first, after in zip(borders, [*borders[1:], end + 1], strict=True):
            ensemble = tuple(rng.sample(bookies, ensemble_size))
            rows.append(
                FragmentRow(ledger_id, first, after - 1, ensemble, ensemble_size, write_quorum, ack_quorum, end, length)
            )
    return rows


def check(rows: list[FragmentRow], situation: Situation, twins: list[Copies]) -> None:
    effects = Effects(situation)
    loads: dict[tuple[str, BookieId], int] = Counter()
    for row, twin in zip(rows, twins, strict=True):
        found = effects.of(row)
        counts = {} if found is None else {name: getattr(found, name) for name in twin.entries}
        assert {name: count for name, count in counts.items() if count} == {
            name: count for name, count in twin.entries.items() if count
        }
        assert found is not None or not +twin.entries
        received = sum(row.size_of(count) for count in twin.of["received"].values())
        assert (0 if found is None else found.written_bytes) == received
        for name in KINDS:
            for bookie_id, count in twin.of[name].items():
                loads[f"{name}_copies", bookie_id] += count
                loads[f"{name}_bytes", bookie_id] += row.size_of(count)
        for bookie_id, count in twin.of["given"].items():
            loads["given_bytes", bookie_id] += row.size_of(count)
    told = {
        (name, bookie_id): value
        for bookie_id, load in effects.loads.items()
        for name in (*(f"{kind}_{unit}" for kind in KINDS for unit in ("copies", "bytes")), "given_bytes")
        if (value := getattr(load, name))
    }
    assert told == {key: value for key, value in loads.items() if value}


@pytest.mark.parametrize("seed", range(200))
def test_what_a_loss_takes_and_who_receives_it_is_what_each_copy_says(seed: int) -> None:
    rng = random.Random(seed)
    names = [BookieId(f"b{number}") for number in range(rng.randint(1, 7))]
    known = [KnownBookie(each, f"/r{rng.randint(0, 2)}", rng.random() < 0.9, rng.random() < 0.8) for each in names]
    question = Question(lose=tuple(rng.sample(names, rng.randint(1, len(names)))), add=rng.randint(0, 2))
    situation = situation_of(question, known)
    rows = ledgers_of(rng, names)
    check(rows, situation, [lose(row, situation) for row in rows])


@pytest.mark.parametrize("seed", range(100))
def test_what_other_quorums_write_is_what_each_copy_says(seed: int) -> None:
    rng = random.Random(seed)
    names = [BookieId(f"b{number}") for number in range(rng.randint(4, 7))]
    known = [KnownBookie(each, f"/r{rng.randint(0, 2)}", is_registered=True, is_writable=True) for each in names]
    quorums = rng.choice([Quorums(4, 4), Quorums(4, None, 1), Quorums(ack_quorum=1)])
    situation = situation_of(Question(quorums=quorums), known)
    rows = ledgers_of(rng, names)
    check(rows, situation, [rewrite(row, situation) for row in rows])
