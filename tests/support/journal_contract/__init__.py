"""What every journal does, as one list of facts that run over each implementation.

A fact is a coroutine function of a JournalWorld; `facts()` names them.

    world.py      JournalWorld, the declaration of facts, and the words they share
    writing.py    format guard, start, write, flush, finalise; what is refused, and what sticks
    takeover.py   a writer that died or is replaced; recovery
    reading.py    selecting, gaps, segments in progress, tailing over a roll
    trimming.py   purge and discard

Importing the package imports each module of facts, which declares them.
"""

from tests.support.journal_contract import reading, takeover, trimming, writing
from tests.support.journal_contract.world import (
    NAMESPACE,
    Fact,
    JournalWorld,
    facts,
    finalised_segment,
    formatted,
    opaque,
    raises,
    read_all,
    written,
)

__all__ = [
    "NAMESPACE",
    "Fact",
    "JournalWorld",
    "facts",
    "finalised_segment",
    "formatted",
    "opaque",
    "raises",
    "read_all",
    "reading",
    "takeover",
    "trimming",
    "writing",
    "written",
]
