"""By what ledgers are put together, and which thresholds of compaction are looked at. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper.config.table import nearest
from bookkeeper.errors import ConfigurationError

GROUPINGS: dict[str, str] = {
    "owner": "owner",
    "application": "application",
    "component": "component",
    "state": "state",
    "digest": "digest_type",
    "quorum": "concat(ensemble_size, '/', write_quorum, '/', ack_quorum)",
}
"""Word -> SQL over the columns of the table `ledgers`. quorum: ensemble, write quorum, ack quorum."""

THRESHOLDS = tuple(tenth / 10 for tenth in range(1, 10))
"""Live shares below which a log is rewritten (minorCompactionThreshold, majorCompactionThreshold)."""


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Groups together. known: how many of them have a size; bytes are of what is known."""

    groups: int
    known: int
    ledgers: int
    payload_bytes: int
    stored_bytes: int

    def without(self, rows: Sequence[Mapping[str, Any]]) -> GroupSums:
        """Those but the ones in `rows`, which have the columns of `report.Space.groups`."""
        return GroupSums(
            self.groups - len(rows),
            self.known - sum(row["stored_bytes"] is not None for row in rows),
            self.ledgers - sum(row["ledgers"] for row in rows),
            self.payload_bytes - sum(row["payload_bytes"] or 0 for row in rows),
            self.stored_bytes - sum(row["stored_bytes"] or 0 for row in rows),
        )


def grouping_called(word: str) -> str:
    """The SQL of one of GROUPINGS. Raises ConfigurationError, which names the nearest."""
    found = GROUPINGS.get(word.strip().lower())
    if found is None:
        raise ConfigurationError(
            f"ledgers cannot be put together by {word!r}{nearest(word, GROUPINGS)}; there are {', '.join(GROUPINGS)}"
        )
    return found
