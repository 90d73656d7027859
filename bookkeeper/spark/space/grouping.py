"""By what ledgers are put together, and which thresholds of compaction are looked at. Pure."""

from __future__ import annotations

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


def grouping_called(word: str) -> str:
    """The SQL of one of GROUPINGS. Raises ConfigurationError, which names the nearest."""
    found = GROUPINGS.get(word.strip().lower())
    if found is None:
        raise ConfigurationError(
            f"ledgers cannot be put together by {word!r}{nearest(word, GROUPINGS)}; there are {', '.join(GROUPINGS)}"
        )
    return found
