"""Who stores a ledger: random choice that spreads each write set over racks.

Pure: candidates, racks and the random generator come from the caller. A choice never names a bookie twice (I-10), takes
quarantined bookies only when there are not enough others, and prefers, position by position, a bookie whose rack is not
yet in the write sets that contain the position. Among those that are equal in this the choice is random: each as likely
as the other, or by free disk space where `weights` are given. With one rack and no weights it is a plain random choice.

Source: Apache 4.18 client/RackawareEnsemblePlacementPolicyImpl.java for the aim (two racks per write quorum where the
cluster has them). Differs from Apache: spreads over as many racks as the write quorum allows, not just two.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence

from bookkeeper.client.bookies.weights import DiskWeights
from bookkeeper.errors import ConfigurationError, NotEnoughBookies
from bookkeeper.model import BookieId

DEFAULT_RACK = "/default-rack"
"""Where a bookie stands that nobody placed."""

RackOf = Callable[[BookieId], str]


def one_rack(bookie_id: BookieId) -> str:
    """Everything in the default rack: placement is plain random."""
    return DEFAULT_RACK


def mapped_racks(racks: Mapping[str, str]) -> RackOf:
    """Racks from a table of bookie ids, `host:port` or `host`; the most exact key wins, DEFAULT_RACK for the rest."""

    def rack_of(bookie_id: BookieId) -> str:
        host = bookie_id.rsplit(":", 1)[0]
        return racks.get(bookie_id) or racks.get(host) or DEFAULT_RACK

    return rack_of


def parse_topology(text: str, source: str) -> dict[str, str]:
    """Read lines of `bookie-or-host rack`; `#` starts a comment. Raises ConfigurationError naming `source` and line."""
    racks: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("#", 1)[0].split()
        if not fields:
            continue
        if len(fields) != 2 or not fields[1].startswith("/"):
            raise ConfigurationError(
                f"{source} line {number}: {line.strip()!r} is not 'bookie rack' with a rack like /rack-1"
            )
        racks[fields[0]] = fields[1]
    return racks


def choose_ensemble(
    *,
    ensemble_size: int,
    write_quorum: int,
    candidates: Collection[BookieId],
    quarantined: Collection[BookieId],
    rack_of: RackOf,
    rng: random.Random,
    weights: DiskWeights | None = None,
) -> tuple[BookieId, ...]:
    """Choose the first ensemble of a ledger. Raises NotEnoughBookies, naming what is there and what is needed."""
    if len(candidates) < ensemble_size:
        raise NotEnoughBookies(
            f"the ledger needs {ensemble_size} bookies and {len(candidates)} are writable "
            f"({', '.join(sorted(candidates)) or 'none'}): start more bookies or ask for a smaller ensemble"
        )
    chosen: list[BookieId | None] = [None] * ensemble_size
    left = _shuffled(candidates, rng)
    for index in range(ensemble_size):
        best = _best(index, chosen, left, write_quorum, quarantined, rack_of, rng, weights)
        chosen[index] = best
        left.remove(best)
    return tuple(bookie for bookie in chosen if bookie is not None)


def spans_racks(ensemble: Sequence[BookieId], write_quorum: int, rack_of: RackOf, racks_min: int) -> bool:
    """Whether each write set spans `racks_min` racks, or as many as it has members."""
    size, needed = len(ensemble), min(racks_min, write_quorum)
    racks = [rack_of(bookie) for bookie in ensemble]
    return all(
        len({racks[(start + distance) % size] for distance in range(write_quorum)}) >= needed for start in range(size)
    )


def choose_replacement(
    *,
    index: int,
    ensemble: Sequence[BookieId],
    write_quorum: int,
    candidates: Collection[BookieId],
    excluded: Collection[BookieId],
    quarantined: Collection[BookieId],
    rack_of: RackOf,
    rng: random.Random,
    weights: DiskWeights | None = None,
) -> BookieId | None:
    """Who takes over position `index`; neither a member nor one of `excluded` (I-10). None when no bookie is left."""
    left = [bookie for bookie in _shuffled(candidates, rng) if bookie not in ensemble and bookie not in excluded]
    if not left:
        return None
    others: list[BookieId | None] = list(ensemble)
    others[index] = None
    return _best(index, others, left, write_quorum, quarantined, rack_of, rng, weights)


def choose_replacements(
    *,
    indexes: Collection[int],
    ensemble: Sequence[BookieId],
    write_quorum: int,
    candidates: Collection[BookieId],
    excluded: Collection[BookieId],
    quarantined: Collection[BookieId],
    rack_of: RackOf,
    rng: random.Random,
    weights: DiskWeights | None = None,
) -> dict[int, BookieId]:
    """Who takes over each of these positions, as far as there is anybody; each knows of those chosen before it."""
    members, chosen = list(ensemble), dict[int, BookieId]()
    for index in sorted(indexes):
        found = choose_replacement(
            index=index,
            ensemble=members,
            write_quorum=write_quorum,
            candidates=candidates,
            excluded=excluded,
            quarantined=quarantined,
            rack_of=rack_of,
            rng=rng,
            weights=weights,
        )
        if found is not None:
            chosen[index] = members[index] = found
    return chosen


def _shuffled(candidates: Collection[BookieId], rng: random.Random) -> list[BookieId]:
    """Candidates in random order; sorted first, so that one seed gives one order whatever the mapping's history."""
    shuffled = sorted(candidates)
    rng.shuffle(shuffled)
    return shuffled


def _best(
    index: int,
    members: Sequence[BookieId | None],
    left: Sequence[BookieId],
    write_quorum: int,
    quarantined: Collection[BookieId],
    rack_of: RackOf,
    rng: random.Random,
    weights: DiskWeights | None,
) -> BookieId:
    """One of `left` with the fewest rack mates among the positions that share a write set with `index`.

    The first of those, since `left` is in random order; or the one that the weights pick.
    """
    size = len(members)
    near = {(index + distance) % size for distance in range(1 - write_quorum, write_quorum)} - {index}
    racks = [rack_of(member) for position in near if (member := members[position]) is not None]

    def cost(bookie: BookieId) -> tuple[bool, int]:
        return bookie in quarantined, racks.count(rack_of(bookie))

    if weights is None:
        return min(left, key=cost)
    costs = [cost(bookie) for bookie in left]
    least = min(costs)
    return weights.pick([bookie for bookie, at in zip(left, costs, strict=True) if at == least], rng)
