"""What offsets of a stream carry besides its position, so that a micro-batch that is planned again is the same. Pure.

    {"done": "1-500", "501": 77, "/stream": {"cluster": "...", "minPartitions": 2, "maxPartitionBytes": 67108864}}

Spark writes the end of a micro-batch into its checkpoint, plans it, and plans it from there once more if the query is
restarted before it is done. What it does not write down, and asks for again, may be another answer by then. So these go
along with the end:

    minPartitions, maxPartitionBytes   how the rows are divided among tasks, whatever the options say at the restart:
                                       a sink may know a row again by its partition and its place there
    from                               where the first micro-batch begins: Spark asks for the initial offset whenever it
                                       plans that one, and `latest` is another place each time
    first                              of the initial offset itself, which ends a first micro-batch that has no rows
    cluster                            instance id: positions mean nothing in a cluster that was made anew

A checkpoint of an earlier release has none of them; then the options count, and the start that Spark gives.
The word begins with a slash, which names of ledgers and topics do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bookkeeper.errors import InvalidArgument

NOTE = "/stream"

_FIRST, _FROM, _CLUSTER = "first", "from", "cluster"
_PARTITIONS, _BYTES = "minPartitions", "maxPartitionBytes"

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Division:
    """How the rows of a micro-batch are divided: the options minPartitions and maxPartitionBytes."""

    partitions_min: int
    partition_bytes_max: int


@dataclass(frozen=True, slots=True)
class Planned:
    """What a micro-batch is planned from: the positions where it begins and ends, and its division."""

    start: Any
    end: Any
    division: Division


def position_of(offset: Any) -> Any:
    """The position alone, to be judged by the source; what is no offset as it is."""
    return _split(offset)[0]


def initial_offset(position: Mapping[str, Any], cluster: str | None = None) -> Offset:
    """Of a new query, which begins at a position. cluster: None where the position says itself what it is of."""
    return _noted(position, {_FIRST: True}, cluster)


def next_offset(
    start: Mapping[str, Any], position: Mapping[str, Any], division: Division, cluster: str | None = None
) -> Offset:
    """The end of the micro-batch from the offset `start` to a position; `start` itself if there is nothing between."""
    begin, note = _split(start)
    if begin == position:
        return dict(start)
    found: Offset = {_PARTITIONS: division.partitions_min, _BYTES: division.partition_bytes_max}
    if _FIRST in note:
        found[_FROM] = begin
    return _noted(position, found, cluster)


def _noted(position: Mapping[str, Any], note: Offset, cluster: str | None) -> Offset:
    if cluster is not None:
        note[_CLUSTER] = cluster
    return {**position, NOTE: note} if note else dict(position)


def start_of(start: Any, end: Any) -> Any:
    """The position where the micro-batch between two offsets begins."""
    finish, note = _split(end)
    if _FIRST in note or start == end:
        return finish
    return note[_FROM] if _FROM in note else position_of(start)


def planned(start: Any, end: Any, division: Division) -> Planned:
    """What lies between two offsets, and how it is divided; `division` where the checkpoint does not say.

    Raises InvalidArgument.
    """
    finish, note = _split(end)
    partitions_min = _whole(note, _PARTITIONS, division.partitions_min)
    partition_bytes_max = _whole(note, _BYTES, division.partition_bytes_max)
    return Planned(start_of(start, end), finish, Division(partitions_min, partition_bytes_max))


def check_cluster(offset: Any, cluster: str) -> None:
    """Raise InvalidArgument for an offset that was taken of another cluster."""
    found = _split(offset)[1].get(_CLUSTER, cluster)
    if found != cluster:
        raise InvalidArgument(
            f"the checkpoint of this query is of the cluster with instance id {found}; this one is {cluster}: another, "
            "or formatted since. Begin with a new checkpointLocation"
        )


def _split(offset: Any) -> tuple[Any, Mapping[str, Any]]:
    if not isinstance(offset, Mapping):
        return offset, {}
    note = offset.get(NOTE, {})
    if not isinstance(note, Mapping):
        raise InvalidArgument(
            f"the checkpoint holds {note!r} as {NOTE}; it was changed: use another checkpointLocation"
        )
    return {name: value for name, value in offset.items() if name != NOTE}, note


def _whole(note: Mapping[str, Any], name: str, otherwise: int) -> int:
    found = note.get(name, otherwise)
    if type(found) is not int or found < 1:
        raise InvalidArgument(
            f"the checkpoint holds {found!r} as {name} of {NOTE}; it was changed: use another checkpointLocation"
        )
    return found
