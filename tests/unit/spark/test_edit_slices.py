"""What a task makes of entries that no bookie can deliver, and of operations that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.read.entries import Entry
from bookkeeper.errors import BookKeeperError, EntryCorrupt, EntryMissing, EntryUnreadable
from bookkeeper.spark.ledgers import slices
from bookkeeper.spark.options.bounds import Bounds
from journalmgr.edits.frame import encode_record
from journalmgr.errors import JournalUnavailable, SegmentUnreadable, UnknownOp
from journalmgr.model import HADOOP_2_7, Segment, TxId
from journalmgr.spark.edit_options import Decode, EditReadOptions
from journalmgr.spark.edit_plan import EditSlice
from journalmgr.spark.edit_slices import read_slices
from tests.support.edit_journals import mkdirs
from tests.support.logged import logged

SEGMENT = Segment(TxId(1), TxId(12), HADOOP_2_7, 7, "edits_1_12")


class Ledger:
    """A client, and a handle of the one ledger there is. Entries that are errors cannot be read."""

    def __init__(self, *entries: bytes | BookKeeperError) -> None:
        self._entries = entries

    def open_without_recovery(self, ledger_id: int) -> Ledger:
        assert ledger_id == SEGMENT.ledger_id
        return self

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note_confirmed(self, entry_id: int) -> None:
        assert entry_id < len(self._entries)

    def read(self, first: int, last: int) -> list[Entry]:
        found = []
        for entry_id in range(first, last + 1):
            entry = self._entries[entry_id]
            if isinstance(entry, BookKeeperError):
                raise entry
            found.append(Entry(entry_id, entry, 0))
        return found

    def batches(self, first: int, last: int) -> Iterator[list[Entry]]:
        for entry_id in range(first, last + 1, 2):
            yield self.read(entry_id, min(entry_id + 1, last))


def txids(ledger: Ledger, *, last: int, fail: bool = True, decode: Decode = Decode.COLUMNS) -> list[int]:
    options = EditReadOptions(
        journal="bookkeeper://zk1:2181/j",
        decode=decode,
        starting_txid=None,
        ending_txid=None,
        starting_offset=None,
        ending_offset=None,
        include_in_progress=True,
        fail_on_data_loss=fail,
        partitions_min=1,
        partition_bytes_max=1 << 20,
        offsets_max=None,
        bytes_max=None,
    )
    piece = EditSlice(SEGMENT, 0, last, 1, 12, begins=True, ends=True, exact=True)
    batches = read_slices(cast(BlockingBookKeeper, ledger), options, [piece], Bounds())
    rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
    return [row["txid"] for row in rows]


ENTRIES = [b"".join(mkdirs(first, first + 1)) for first in range(1, 12, 2)]


@pytest.mark.parametrize("error", [EntryMissing("denied by all"), EntryCorrupt("no good copy")])
@pytest.mark.parametrize("lost", [0, 1, 3, 5])
def test_an_entry_that_no_copy_has_is_lost_and_the_others_are_read(
    error: BookKeeperError, lost: int, capsys: pytest.CaptureFixture[str]
) -> None:
    entries: list[bytes | BookKeeperError] = [*ENTRIES]
    entries[lost] = error
    with pytest.raises(SegmentUnreadable, match=rf"journal /j, ledger 7 .*entry {lost} cannot be read.*failOnDataLoss"):
        txids(Ledger(*entries), last=5)
    expected = [txid for txid in range(1, 13) if (txid - 1) // 2 != lost]
    assert txids(Ledger(*entries), last=5, fail=False) == expected
    assert f"entry {lost} cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("attempt", [0, 2])
def test_a_task_that_is_tried_again_and_passes_over_what_is_gone_says_that_its_rows_are_others(
    attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = SimpleNamespace(attemptNumber=lambda: attempt, partitionId=lambda: 5)
    monkeypatch.setattr(slices, "TaskContext", SimpleNamespace(get=lambda: task))
    gone = EntryMissing("nobody has it")
    with logged() as said:
        assert txids(Ledger(gone, ENTRIES[1], gone, *ENTRIES[3:]), last=5, fail=False) == [3, 4, *range(7, 13)]
    assert len(said) == (attempt > 0), "once"
    assert all(line.startswith("attempt 2 of the task of partition 5 has other rows") for line in said)
    with logged() as said:
        txids(Ledger(b"".join([*mkdirs(1, 4), encode_record(99, 5, b"?"), *mkdirs(6, 12)])), last=0, fail=False)
    assert not said, "an operation that nobody knows was none before"


@pytest.mark.parametrize("fail", [True, False])
def test_an_entry_that_could_not_be_asked_for_is_not_taken_for_lost(*, fail: bool) -> None:
    entries: list[bytes | BookKeeperError] = [*ENTRIES]
    entries[2] = EntryUnreadable("bookies are down")
    with pytest.raises(JournalUnavailable, match="bookies are down"):
        txids(Ledger(*entries), last=5, fail=fail)


def test_an_operation_that_nobody_knows_can_be_read_raw_or_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    payload = b"".join([*mkdirs(1, 4), encode_record(99, 5, b"?"), *mkdirs(6, 12)])
    with pytest.raises(UnknownOp, match="txid 5: opcode 99 is no operation; option decode=raw"):
        txids(Ledger(payload), last=0)
    assert txids(Ledger(payload), last=0, decode=Decode.RAW) == list(range(1, 13))
    assert txids(Ledger(payload), last=0, fail=False) == [1, 2, 3, 4, *range(6, 13)]
    assert "opcode 99" in capsys.readouterr().err
