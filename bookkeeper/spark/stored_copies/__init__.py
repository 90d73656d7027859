"""The copies that a bookie holds, verified in place: from its directories, ours or Apache's, without a running bookie.

    bookie          a bookie that does not run: opened, planned, verified
    columns         calculations with whole columns; pure
    directories     directories of a bookie: identity, completeness, locks
    journaled       copies behind the marks of the journals
    kernel          the inner loop of the verification; pure
    model           questions, plans and answers; pure, can be pickled
    places          index pages -> places in an entry log
    planning        journals and indexes -> units, and what is unknown
    verification    one unit -> good, damaged and unknown copies

A copy is what a starting bookie would serve: what the journal has behind the mark, else what the index names. Older
copies in entry logs are none. Reads only. Imports neither pyspark nor a reactor.
"""

from bookkeeper.spark.stored_copies.bookie import StoredBookie, open_bookie
from bookkeeper.spark.stored_copies.directories import BookieDirectories, named_directories
from bookkeeper.spark.stored_copies.model import (
    BadCopies,
    CopyFault,
    GoodCopies,
    JournalUnit,
    LedgerToVerify,
    LogUnit,
    OtherLedger,
    Plan,
    Unit,
    UnitResult,
    UnknownCopies,
)

__all__ = [
    "BadCopies",
    "BookieDirectories",
    "CopyFault",
    "GoodCopies",
    "JournalUnit",
    "LedgerToVerify",
    "LogUnit",
    "OtherLedger",
    "Plan",
    "StoredBookie",
    "Unit",
    "UnitResult",
    "UnknownCopies",
    "named_directories",
    "open_bookie",
]
