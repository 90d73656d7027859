"""How far bookies are from a client: which copy of an entry is asked for first where reorderReadSequenceEnabled is on.

    distance    a bookie that stands
       0        on this machine
       1        in this rack; or nobody told in which rack this machine is
       2 ...    in another: one more for each part of this rack's name, from its end, that is not shared

So from /eu/r1 it is 2 to /eu/r2, and 3 to /us/r1 and to a bookie of which no rack is known. A machine stands in one
rack: what is said to stand in another than this one is not here, whatever its address looks like.

Pure: the racks, and whether a host is this machine, come from the caller.
Source: the distances of Hadoop's network topology, which Apache's placement policies are made on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bookkeeper.client.bookies.placement import DEFAULT_RACK
from bookkeeper.model import BookieId

IsHere = Callable[[str], bool]
"""Whether a host, by name or address, is the machine that asks."""


class Nearness:
    """Distances from one machine. racks: of bookies and hosts, also such without bookies, as `parse_topology` has them.

    What was found is kept: bounded by the bookies that the cluster ever had.
    """

    def __init__(self, racks: Mapping[str, str], is_here: IsHere) -> None:
        self._racks, self._is_here = racks, is_here
        self.rack = own_rack(racks, is_here)
        """Where this machine stands; None where nobody told, or not clearly."""
        self._distances: dict[tuple[BookieId, str | None], int] = {}

    def distance(self, bookie_id: BookieId, host: str | None) -> int:
        """To a bookie that listens on `host`; None: where is not known."""
        found = self._distances.get((bookie_id, host))
        if found is None:
            found = self._distances[bookie_id, host] = self._measure(bookie_id, host)
        return found

    def _measure(self, bookie_id: BookieId, host: str | None) -> int:
        named = bookie_id.rsplit(":", 1)[0]
        rack = self._racks.get(bookie_id) or self._racks.get(named) or self._racks.get(host or "")
        may_be_here = rack is None or self.rack is None or rack == self.rack
        if may_be_here and host is not None and self._is_here(host):
            return 0
        return 1 if self.rack is None else 1 + levels_up(self.rack, rack or DEFAULT_RACK)


def levels_up(own: str, other: str) -> int:
    """How many parts of the name of one's own rack another does not share, from its end: 0 for the same rack."""
    if own == other:
        return 0
    mine, theirs = own.strip("/").split("/"), other.strip("/").split("/")
    shared = 0
    while shared < min(len(mine), len(theirs)) and mine[shared] == theirs[shared]:
        shared += 1
    return max(1, len(mine) - shared)


def own_rack(racks: Mapping[str, str], is_here: IsHere) -> str | None:
    """The rack of this machine: as its name or address has it, else as its bookies do; None if those do not agree."""
    hosts = {rack for key, rack in racks.items() if is_here(key)}
    if not hosts:
        hosts = {rack for key, rack in racks.items() if ":" in key and is_here(key.rsplit(":", 1)[0])}
    return hosts.pop() if len(hosts) == 1 else None


def same_name(name: str, other: str) -> bool:
    """Whether two names of hosts are one: alike, or one is the other without its domain."""
    one, two = name.lower().rstrip("."), other.lower().rstrip(".")
    is_short = "." not in one or "." not in two
    return one == two or (is_short and one.partition(".")[0] == two.partition(".")[0])
