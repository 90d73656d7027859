"""A process of its own that writes an edit log into a directory until it is killed, and says what was acknowledged.

    python -m tests.support.doomed_journal_writer URI

A line per news: the last txid that is durable. Whoever kills it reads on to the end: what it said counts.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from journalmgr.edit_log import EditLog
from journalmgr.files.opening import open_journal
from tests.support.journal_contract import NAMESPACE
from tests.support.journal_contract.world import payload

IN_FLIGHT = 32
ROLL_EVERY = 40
"""Groups after which a segment ends."""


async def _main(reactor: Any, uri: str) -> None:
    journal = await open_journal(uri, reactor, NAMESPACE, {})
    edits = EditLog(journal)
    await edits.recover()
    segments = await journal.segments()
    await edits.open(segments[-1].last_txid + 1 if segments and segments[-1].last_txid else 1)
    for group in range(1, 1_000_000):
        adding = [edits.append(payload(edits.next_txid)) for _ in range(IN_FLIGHT)]
        for added in adding:
            sys.stdout.write(f"{await added}\n")
        sys.stdout.flush()
        if group % ROLL_EVERY == 0:
            await edits.roll()


if __name__ == "__main__":
    react(lambda reactor, uri: Deferred.fromCoroutine(_main(reactor, uri)), sys.argv[1:])
