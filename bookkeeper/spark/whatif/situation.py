"""The bookies as they would be: who is lost, who takes copies, in which rack each stands. Pure.

Bookies that are added are called new-1, new-2, ... and join the racks that have the fewest writable bookies then; they
take copies as everybody else does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.client.bookies.placement import DEFAULT_RACK
from bookkeeper.client.bookies.weights import DiskWeights
from bookkeeper.config.table import nearest
from bookkeeper.errors import ConfigurationError
from bookkeeper.model import BookieId
from bookkeeper.spark.whatif.question import AS_THEY_ARE, Question, Quorums
from bookkeeper.texts import parse_json

ADDED = "new-{}"


@dataclass(frozen=True, slots=True)
class KnownBookie:
    """A bookie as the cluster has it. Not registered: its copies can neither be read nor taken for lost."""

    bookie_id: BookieId
    rack: str
    is_registered: bool
    is_writable: bool
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """What tasks need to know.

    lost: their copies are gone. registered: copies of these can be read; none is lost. takers: writable ones and those
    that join. racks: of all these. racks_min: a write quorum that spans fewer is not made; 0: any is.
    weights: by which takers are chosen besides, None: all alike. quorums: for which all ledgers are written anew.
    """

    lost: frozenset[BookieId]
    registered: frozenset[BookieId]
    takers: tuple[BookieId, ...]
    added: tuple[BookieId, ...]
    racks: Mapping[BookieId, str]
    racks_min: int = 0
    weights: DiskWeights | None = None
    quorums: Quorums = AS_THEY_ARE

    def rack_of(self, bookie_id: BookieId) -> str:
        """Where it stands."""
        return self.racks.get(bookie_id, DEFAULT_RACK)


def situation_of(
    question: Question, bookies: Sequence[KnownBookie], *, racks_min: int = 0, weight_multiple_max: int | None = None
) -> Situation:
    """The situation that is asked for. weight_multiple_max: of DiskWeights, None where free space does not count.

    Raises ConfigurationError for a bookie or rack that there is not.
    """
    by_id = {each.bookie_id: each for each in bookies}
    in_rack = Counter(each.rack for each in bookies)
    for name in question.lose:
        if BookieId(name) not in by_id:
            raise ConfigurationError(
                f"bookie {name}: nobody of this name is registered or has a cookie{nearest(name, by_id)}; there are "
                f"{_few(sorted(by_id))}"
            )
    for rack in question.lose_racks:
        if rack not in in_rack:
            named = ", ".join(f"{name} ({count})" for name, count in sorted(in_rack.items())) or "none"
            raise ConfigurationError(
                f"rack {rack}: no bookie stands in it{nearest(rack, in_rack)}; racks and their bookies: {named}. "
                "networkTopologyFile (or networkTopology) says which rack a bookie is in"
            )
    lost = frozenset(
        each.bookie_id for each in bookies if each.bookie_id in question.lose or each.rack in question.lose_racks
    )
    takers = [each.bookie_id for each in bookies if each.is_writable and each.bookie_id not in lost]
    racks = {each.bookie_id: each.rack for each in bookies}
    there = Counter(dict.fromkeys(sorted(in_rack.keys() - set(question.lose_racks)) or [DEFAULT_RACK], 0))
    there.update(racks[each] for each in takers)
    added = []
    for number in range(1, question.add + 1):
        bookie_id = BookieId(ADDED.format(number))
        rack = min(there, key=lambda name: (there[name], name))
        there[rack] += 1
        racks[bookie_id] = rack
        added.append(bookie_id)
    weights = None
    if weight_multiple_max is not None:
        free = {each.bookie_id: each.free_bytes for each in bookies if each.free_bytes is not None}
        weights = DiskWeights(free, weight_multiple_max)
    return Situation(
        lost=lost,
        registered=frozenset(each.bookie_id for each in bookies if each.is_registered) - lost,
        takers=(*takers, *added),
        added=tuple(added),
        racks=racks,
        racks_min=racks_min,
        weights=weights,
        quorums=question.quorums,
    )


def situation_text(situation: Situation) -> str:
    """A situation as an option of a data source: JSON."""
    weights, asked = situation.weights, situation.quorums
    return json.dumps(
        {
            "lost": sorted(situation.lost),
            "registered": sorted(situation.registered),
            "takers": situation.takers,
            "added": situation.added,
            "racks": situation.racks,
            "racks_min": situation.racks_min,
            "weights": None if weights is None else [dict(weights.free_bytes), weights.multiple_max],
            "quorums": [asked.ensemble, asked.write_quorum, asked.ack_quorum],
        }
    )


def situation_from(given: str) -> Situation:
    """The situation that `situation_text` wrote."""
    found = parse_json(given)
    weights = found["weights"]
    return Situation(
        lost=frozenset(found["lost"]),
        registered=frozenset(found["registered"]),
        takers=tuple(found["takers"]),
        added=tuple(found["added"]),
        racks=found["racks"],
        racks_min=found["racks_min"],
        weights=None if weights is None else DiskWeights(*weights),
        quorums=Quorums(*found["quorums"]),
    )


def levelling_bytes(loads: Sequence[int]) -> int:
    """What would have to move for all of these to hold the same: a proportional model, which knows of no racks."""
    mean = sum(loads) // max(1, len(loads))
    return sum(max(0, load - mean) for load in loads)


def _few(names: Sequence[str], at_most: int = 10) -> str:
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")
