"""A process of its own that lives a writer's whole turn on a journal in ledgers, and gets SIGKILL at one step of it.

    python -m tests.support.doomed_ledger_journal ZOOKEEPER ROOT LEDGERS_ROOT STEP MOMENT

STEP: the number of the change of the metadata at which it dies, from 1; 0 for none: it lives, and says how many there
were ("steps N"). MOMENT: "before" the change is sent, or "after" it was answered. Standard output: "acked TXID BODY"
for each transaction that was acknowledged, flushed one by one: what it said before it died counts.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from journalmgr.edit_log import EditLog
from journalmgr.ledger.connecting import connect
from journalmgr.ledger.settings import LedgerJournalSettings, default_client_settings
from journalmgr.model import FIRST_TXID, NamespaceInfo
from journalmgr.replaying import replay
from tests.support.cluster import with_long_timeouts

NAMESPACE = NamespaceInfo(7, "CID-7", "BP-7")
CHANGES = ("create", "write", "delete", "transact")
GROUP = 5
CLIENT = replace(with_long_timeouts(default_client_settings()), zk_session_timeout_s=30.0)
"""Long timeouts: no state of a journal depends on a session."""


class Doom:
    """Counts the changes of a session's metadata, and strikes at one of them."""

    def __init__(self, tree: Any, step: int, moment: str) -> None:
        self.steps = 0
        self._step, self._moment = step, moment
        for name in CHANGES:
            setattr(tree, name, self._counted(getattr(tree, name)))

    def _counted(self, call: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.steps += 1
            doomed = self.steps == self._step
            if doomed and self._moment == "before":
                self._strike(None)
            result = call(*arguments, **named)
            return result.addBoth(self._strike) if doomed else result

        return counted

    def _strike(self, result: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
        return result


async def _main(reactor: Any, zookeeper: str, root: str, ledgers_root: str, step: str, moment: str) -> None:
    settings = LedgerJournalSettings(available_path=f"{ledgers_root}/available")
    journal = await connect([zookeeper], root, reactor, NAMESPACE, settings, CLIENT, ledgers_root=ledgers_root)
    doom = Doom(journal.tree, int(step), moment)
    edits = EditLog(journal)

    async def write(count: int) -> None:
        for _ in range(count):
            bodies = [b"%d of process %d" % (edits.next_txid + offset, os.getpid()) for offset in range(GROUP)]
            adding = [edits.append(body) for body in bodies]
            for body, added in zip(bodies, adding, strict=True):
                sys.stdout.write(f"acked {await added} {body.decode()}\n")
                sys.stdout.flush()

    await edits.recover()
    last = 0
    async for batch in replay(journal, FIRST_TXID):
        last = batch.records[-1].txid
    await edits.open(last + 1)
    await write(2)
    await edits.roll()
    await write(1)
    await journal.purge_older_than(edits.segment_first_txid or FIRST_TXID)
    await edits.roll()
    await write(1)
    await edits.close()
    sys.stdout.write(f"steps {doom.steps}\n")
    await journal.close()


if __name__ == "__main__":
    react(lambda reactor, *words: Deferred.fromCoroutine(_main(reactor, *words)), sys.argv[1:])
