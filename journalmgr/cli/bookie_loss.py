"""Several writers on one cluster while a bookie is killed: what each got acknowledged, before and after, is read back.

Each writer is an edit log on a journal of its own, with callers that append one transaction after the other. In the
middle the bookie that holds segments of the most writers gets SIGKILL. Every transaction says who wrote it and as
what number; in the end each journal is recovered and read by another client: what was acknowledged must be there
exactly once, under the txid that was told.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.console.output import CommandFailed
from journalmgr.edit_log import EditLog
from journalmgr.edits.frame import FRAME_SIZE
from journalmgr.edits.opcodes import OpCode
from journalmgr.model import FIRST_TXID, TxId
from journalmgr.replaying import replay

if TYPE_CHECKING:
    from journalmgr.contract import JournalManager
    from journalmgr.ledger import LedgerJournal

_LABEL = struct.Struct(">IQ")  # caller, number
LABEL_SIZE = _LABEL.size


@dataclass(slots=True)
class Writer:
    """One of them. acknowledged: txid and label of each transaction; pause_s: the longest time between two of them.

    after: how many were acknowledged after the kill.
    """

    journal: LedgerJournal
    edit_log: EditLog
    acknowledged: list[tuple[TxId, bytes]] = field(default_factory=list)
    last_s: float = 0.0
    pause_s: float = 0.0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """What one writer got. before_per_s, after_per_s: acknowledged edits a second before the kill and after it.

    pause_s: the longest time without an acknowledgement.
    """

    writer: int
    acknowledged: int
    before_per_s: float
    after_per_s: float
    pause_s: float

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "writer": self.writer,
            "acknowledged": self.acknowledged,
            "missing": 0,
            "doubled": 0,
            "edits_per_s_before": round(self.before_per_s),
            "edits_per_s_after": round(self.after_per_s),
            "longest_pause_ms": round(self.pause_s * 1e3),
        }


async def open_writers(journals: list[LedgerJournal]) -> list[Writer]:
    """An edit log on each of these, which are formatted and empty."""
    writers = []
    for journal in journals:
        edit_log = EditLog(journal)
        await edit_log.recover()
        await edit_log.open(FIRST_TXID)
        writers.append(Writer(journal, edit_log))
    return writers


async def most_used_bookie(writers: list[Writer]) -> str:
    """The id of the bookie that holds what the most of them write now."""
    used: Counter[str] = Counter()
    for writer in writers:
        segment = (await writer.journal.segments())[-1]
        assert segment.ledger_id is not None
        metadata = await writer.journal.client.metadata(segment.ledger_id)
        used.update(metadata.fragments[-1].ensemble)
    return used.most_common(1)[0][0]


async def write_through(
    writers: list[Writer], callers: int, size: int, seconds: float, kill: Callable[[], object]
) -> list[Loss]:
    """Append records of `size` bytes with `callers` callers per writer; call `kill` once, after half of `seconds`.

    `kill` is delayed until each writer has an acknowledged record, so that each has a rate before and after the kill.
    """
    padding = bytes(max(0, size - FRAME_SIZE - LABEL_SIZE))
    half_s = seconds / 2
    begun = time.perf_counter()
    killed_s = 0.0

    async def call(writer: Writer, caller: int) -> None:
        nonlocal killed_s
        number = 0
        while not killed_s or time.perf_counter() < killed_s + half_s:
            if not killed_s and time.perf_counter() >= begun + half_s and all(each.acknowledged for each in writers):
                killed_s = time.perf_counter()
                kill()
            number += 1
            label = _LABEL.pack(caller, number)
            txid = await writer.edit_log.append(label + padding)
            now = time.perf_counter()
            writer.acknowledged.append((txid, label))
            writer.after += bool(killed_s)
            writer.pause_s, writer.last_s = max(writer.pause_s, now - (writer.last_s or now)), now

    calls = [Deferred.fromCoroutine(call(writer, caller)) for writer in writers for caller in range(callers)]
    await gatherResults(calls, consumeErrors=True)
    ended = time.perf_counter()
    for writer in writers:
        await writer.edit_log.close()
    return [
        Loss(
            number,
            len(writer.acknowledged),
            (len(writer.acknowledged) - writer.after) / (killed_s - begun),
            writer.after / (ended - killed_s),
            writer.pause_s,
        )
        for number, writer in enumerate(writers, 1)
    ]


async def audit(writers: list[Writer], journals: list[JournalManager]) -> None:
    """Read what each wrote, through another client. Raises CommandFailed where a promise broke."""
    for number, (writer, journal) in enumerate(zip(writers, journals, strict=True), 1):
        await journal.recover_unfinalized()
        found: dict[TxId, bytes] = {}
        times: Counter[bytes] = Counter()
        async for batch in replay(journal, FIRST_TXID):
            for record in batch.records:
                if record.opcode == OpCode.OPAQUE:
                    found[record.txid] = label = record.body[:LABEL_SIZE]
                    times[label] += 1
        for txid, label in writer.acknowledged:
            if found.get(txid) != label or times[label] != 1:
                raise CommandFailed(
                    f"writer {number}: txid {txid} was acknowledged for {_LABEL.unpack(label)}; the journal has "
                    f"{found.get(txid)!r} there, and the transaction {times[label]} times"
                )
