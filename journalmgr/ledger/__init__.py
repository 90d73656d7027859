"""The journal on ledgers: one ledger per segment, a list of them in ZooKeeper, as Hadoop 2's journal manager.

    connecting.py        a URI's parts and a reactor -> a journal
        |
    journal.py           LedgerJournal: start, finalise, recover, select, purge, discard, upgrade
      |    |    \\
      |    |     writer.py  reader.py  tail.py     transactions -> entries; entries -> transactions; as they come
      |    |            \\        |        /
      |  recovery.py  removal.py  end.py            segments whose writer died; deleting; where a ledger ends
      |  selection.py  upgrade.py  images.py        what to read; the state before an upgrade; a server's checkpoints
      |       \\           |         /
      +----- znodes.py                              version, list, maxtxid, CurrentInprogress: everything by version
                |
    settings.py  outcome.py                         replication and buffers; the store's and client's errors -> ours

Znodes, ledger parameters and entries are those of Hadoop 2.7 (journalmgr/FORMATS.md 2 to 4), so either continues what
the other wrote. What is done otherwise, on purpose, says `Differs from Apache:` beside it.
"""

from journalmgr.ledger.connecting import connect
from journalmgr.ledger.journal import LedgerJournal
from journalmgr.ledger.settings import LedgerJournalSettings

__all__ = ["LedgerJournal", "LedgerJournalSettings", "connect"]
