"""The edit log of a metadata server that fails over, in ledgers or files; compatible with HDFS's.

    your state machine                       journalmgr.namenode: one of ours, in the manner of HDFS's
          |
    group          join_group: one journal, several servers, one of them active
      replica      standby, taking over, active; bookkeeper.metadata.election says whose turn it is
      edit_log     txids, segments, one flush for many callers
          |
    contract       JournalManager: what every journal does, and promises
      ledger       on ledgers, as Hadoop's BookKeeper journal manager keeps them
      files        in a directory, as HDFS's name nodes keep them
      journal_set  several journals as one
      plugins      others, found by the scheme of their URI
          |
    edits          transactions as bytes: HDFS's operations, opaque ones of other servers; XML and JSON
    segment        names and payloads of the znodes
    model errors   values; everything that can go wrong

    aio            join_group for asyncio             cli       the `journalmgr` command
    config         settings under Hadoop's keys       metrics   what a name node counts

Rules (bookkeeper/INVARIANTS.md, Edit journals): one effective writer (I-80), txids without gap or overlap (I-81), a
stream that failed once stays failed (I-82), a finalised end is the content's end (I-83), nothing is deleted that is
needed (I-86), a journal belongs to one namespace (I-87). Importing this package loads neither a reactor nor the parts
that are not used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from journalmgr.edit_log import EditLog
    from journalmgr.group import Member, join_group, payloads
    from journalmgr.model import NamespaceInfo
    from journalmgr.plugins import open_journal
    from journalmgr.replaying import replay
    from journalmgr.replica import Role

__all__ = ["EditLog", "Member", "NamespaceInfo", "Role", "join_group", "open_journal", "payloads", "replay"]

_WHERE = {
    "EditLog": "journalmgr.edit_log",
    "Member": "journalmgr.group",
    "NamespaceInfo": "journalmgr.model",
    "Role": "journalmgr.replica",
    "join_group": "journalmgr.group",
    "open_journal": "journalmgr.plugins",
    "payloads": "journalmgr.group",
    "replay": "journalmgr.replaying",
}


def __getattr__(name: str) -> object:
    import importlib

    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
