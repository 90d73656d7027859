"""The copies that a bookie holds, verified in place: from its directories, ours or Apache's, without a running bookie.

    directories    whose they are, all there, nobody uses them       <- bookie.open_bookie
    planning       journals and indexes -> units, what is unknown    <- StoredBookie.plan
      journaled      what is behind the marks of the journals
    verification   one unit -> good, bad and unknown copies          <- StoredBookie.verify
      places         index pages -> places in an entry log
      kernel         pure: the inner loop
    model          pure: what is asked, planned and answered; all of it can be pickled

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
