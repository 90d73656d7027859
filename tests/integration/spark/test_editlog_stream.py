"""The format editlog as a stream, from the ledgers of a real journal."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import journalmgr.spark
from bookkeeper.spark.ledgers.stream_offsets import position_of
from journalmgr.edits.ops import Mkdir
from journalmgr.errors import GapInTransactions, JournalError, SegmentUnreadable
from journalmgr.model import TxId
from journalmgr.spark.edit_options import read_edit_options
from journalmgr.spark.edit_source import EditPartition
from journalmgr.spark.edit_stream import EditLogStreamReader
from tests.support.edit_journals import EditJournal, encoded, mkdirs
from tests.support.edit_rows import read_out
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spark() -> Any:
    session = spark_session()
    journalmgr.spark.register(session)
    return session


ALL = ReadAllAvailable()


def stream_of(journal: EditJournal, **options: str) -> EditLogStreamReader:
    return EditLogStreamReader(read_edit_options({**journal.options, **options}))


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["txid"] for row in rows]


def namespace_of(journal: EditJournal) -> dict[str, int]:
    return {"namespace_id": journal.namespace.namespace_id}


class Query:
    """A stream into Parquet files, with a checkpoint beside them."""

    def __init__(self, spark: Any, journal: EditJournal, directory: Path, **options: object) -> None:
        self._spark, self._directory = spark, directory
        self._options = {**journal.options, **options}

    def run_to_the_end(self) -> list[int]:
        """Run with availableNow; rows of each micro-batch that had some."""
        frame = self._spark.readStream.format("editlog").options(**self._options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{self._directory}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{self._directory}/rows")
        assert query.awaitTermination(150)
        assert query.exception() is None
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def txids(self) -> list[int]:
        return sorted(row.txid for row in self._spark.read.parquet(f"{self._directory}/rows").select("txid").collect())


def test_a_stream_goes_on_from_its_checkpoint_over_rolls_and_a_recovery(
    spark: Any, journal: EditJournal, tmp_path: Path
) -> None:
    journal.finalised(1, mkdirs(1, 50))
    writer = journal.begun(51, mkdirs(51, 80))
    journal.write(writer, mkdirs(81, 81))
    query = Query(spark, journal, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    assert query.run_to_the_end()[:2] == [30, 30]
    seen = query.txids()
    assert seen in (list(range(1, 81)), list(range(1, 82)))
    journal.write(writer, mkdirs(82, 90))
    journal.crash()
    journal.call(journal.manager.recover_unfinalized)
    journal.finalised(91, mkdirs(91, 100))
    journal.begun(101, [])
    query.run_to_the_end()
    assert query.txids() == list(range(1, 101))
    assert query.run_to_the_end() == []
    with EditJournal(journal.zookeeper, journal.ledgers_root) as other:
        other.finalised(1, mkdirs(1, 200))
        with pytest.raises(Exception, match="namespace id"):
            Query(spark, other, tmp_path).run_to_the_end()


def test_a_micro_batch_is_the_same_again_whatever_became_of_its_segment(journal: EditJournal) -> None:
    writer = journal.begun(1, mkdirs(1, 40))
    journal.write(writer, mkdirs(41, 41))
    stream = stream_of(journal, startingTxid="1", minPartitions="3")
    start = stream.initialOffset()
    assert position_of(start) == {"txid": 1, "namespace_id": journal.namespace.namespace_id}
    end = stream.latestOffset(start, ReadMaxRows(33))
    assert end["txid"] == 34
    first_time = read_out(stream, stream.partitions(start, end))
    assert ids(first_time) == list(range(1, 34))
    journal.crash()
    journal.call(journal.manager.recover_unfinalized)
    journal.finalised(42, mkdirs(42, 50))
    restarted = stream_of(journal, minPartitions="3")
    assert read_out(restarted, restarted.partitions(start, end)) == first_time
    assert restarted.latestOffset(end, ALL)["txid"] == 51
    assert restarted.partitions(end, end) == []


def division_of(stream: EditLogStreamReader, start: Any, end: Any) -> list[list[tuple[int | None, int, int]]]:
    """Which entries of which ledgers each task of a micro-batch reads."""
    found = []
    for partition in stream.partitions(start, end):
        assert isinstance(partition, EditPartition)
        found.append([(each.segment.ledger_id, each.first_entry_id, each.last_entry_id) for each in partition.slices])
    return found


def test_a_micro_batch_is_divided_again_as_it_was_whatever_the_options_say_then(journal: EditJournal) -> None:
    journal.finalised(1, mkdirs(1, 600))
    begun = stream_of(journal, startingOffsets="earliest", minPartitions="2")
    start = begun.initialOffset()
    end = begun.latestOffset(start, ALL)
    halves = division_of(begun, start, end)
    assert len(halves) == 2
    for others in ({"minPartitions": "5"}, {"maxPartitionBytes": "65536"}):
        restarted = stream_of(journal, startingOffsets="earliest", **others)
        assert division_of(restarted, start, end) == halves
        assert restarted.latestOffset(end, ALL) == end, "other options are nothing new to read"
    journal.finalised(601, mkdirs(601, 900))
    restarted = stream_of(journal, minPartitions="5")
    assert len(division_of(restarted, end, restarted.latestOffset(end, ALL))) == 5
    # What an earlier release has left in a checkpoint is divided as the options say.
    before, behind = {"txid": 1, **namespace_of(journal)}, position_of(end)
    assert len(division_of(restarted, before, behind)) == 5
    assert ids(read_out(restarted, restarted.partitions(before, behind))) == list(range(1, 601))


def test_a_micro_batch_is_divided_again_as_it_was_when_its_segment_grew_and_was_finalised(journal: EditJournal) -> None:
    """Entries that come later are larger: the mean size that is known of the segment's is another then."""
    writer = journal.begun(1, mkdirs(1, 600))
    journal.write(writer, mkdirs(601, 601))
    begun = stream_of(journal, startingOffsets="earliest", maxPartitionBytes="65536")
    offsets = [begun.initialOffset()]
    for rows in (333, 267):
        offsets.append(begun.latestOffset(offsets[-1], ReadMaxRows(rows)))
    batches = list(pairwise(offsets))
    then = [division_of(begun, *batch) for batch in batches]

    def now() -> list[list[list[tuple[int | None, int, int]]]]:
        return [division_of(stream_of(journal), *batch) for batch in batches]

    long = [Mkdir(inode_id=txid, path="/" + "d" * 4000, mtime=1) for txid in range(602, 702)]
    journal.write(writer, encoded(long, 602))
    journal.write(writer, mkdirs(702, 702))
    assert begun.latestOffset(offsets[-1], ALL)["txid"] >= 702
    assert now() == then
    journal.end(writer)
    assert now() == then
    assert [len(each) for each in then] == [2, 2]


def test_a_stream_begins_at_the_latest_and_shows_what_is_confirmed(journal: EditJournal) -> None:
    stream = stream_of(journal)
    start = stream.initialOffset()
    assert start["txid"] == 1
    assert stream.latestOffset(start, ALL) == start
    journal.finalised(1, mkdirs(1, 10))
    stream.prepareForTriggerAvailableNow()
    journal.finalised(11, mkdirs(11, 20))
    end = stream.latestOffset(start, ALL)
    assert end["txid"] == 11  # the target; what came behind it is for another run
    assert stream.latestOffset(end, ALL) == end
    assert stream_of(journal).initialOffset()["txid"] == 21


def test_a_first_micro_batch_that_is_planned_again_begins_where_it_began(journal: EditJournal) -> None:
    """Spark asks for the initial offset whenever it plans that one, and the latest is another place by then."""
    journal.finalised(1, mkdirs(1, 10))
    stream = stream_of(journal)
    start = stream.initialOffset()
    journal.finalised(11, mkdirs(11, 20))
    end = stream.latestOffset(start, ALL)
    journal.finalised(21, mkdirs(21, 30))
    again = stream_of(journal)
    assert ids(read_out(again, again.partitions(again.initialOffset(), end))) == list(range(11, 21))


def test_a_stream_that_leaves_the_segment_in_progress_out_from_now_on_waits_until_that_is_finalised(
    journal: EditJournal,
) -> None:
    journal.finalised(1, mkdirs(1, 10))
    writer = journal.begun(11, mkdirs(11, 30))
    journal.write(writer, mkdirs(31, 31))
    begun = stream_of(journal, startingOffsets="earliest")
    start = begun.initialOffset()
    end = begun.latestOffset(start, ReadMaxRows(25))
    restarted = stream_of(journal, includeInProgress="false")
    assert restarted.latestOffset(end, ALL) == end
    restarted.prepareForTriggerAvailableNow()
    assert restarted.latestOffset(end, ALL) == end
    with pytest.raises(JournalError, match=r"transactions 1 to 25 .* from 11 on .*includeInProgress=false leaves out"):
        restarted.partitions(start, end)
    journal.write(writer, mkdirs(32, 40))
    journal.end(writer)
    restarted = stream_of(journal, includeInProgress="false")
    assert ids(read_out(restarted, restarted.partitions(start, end))) == list(range(1, 26))
    assert restarted.latestOffset(end, ALL)["txid"] == 41
    journal.call(lambda: journal.manager.format(journal.namespace, force=True))
    journal.finalised(1, mkdirs(1, 5))
    with pytest.raises(JournalError, match=r"ends at txid 5, and the query is at 26.*formatted anew"):
        restarted.latestOffset(end, ALL)


def test_a_stream_obeys_limits_of_rows_and_bytes_together(journal: EditJournal) -> None:
    records = mkdirs(1, 100)
    journal.finalised(1, records)
    size = sum(map(len, records)) // len(records)
    stream = stream_of(
        journal, startingOffsets="earliest", maxOffsetsPerTrigger="50", maxBytesPerTrigger=str(20 * size)
    )
    start = stream.initialOffset()
    limited = stream.latestOffset(start, stream.getDefaultReadLimit())["txid"]
    assert 15 <= limited <= 26
    assert stream.latestOffset(start, ALL)["txid"] == 101
    assert stream.reportLatestOffset()["txid"] == 101


def test_a_stream_is_told_of_purged_transactions_and_of_a_journal_that_was_made_anew(journal: EditJournal) -> None:
    for first in (1, 11):
        journal.finalised(first, mkdirs(first, first + 9))
    stream, lenient = stream_of(journal), stream_of(journal, failOnDataLoss="false")
    start = {"txid": 5, "namespace_id": journal.namespace.namespace_id}
    end = stream.latestOffset(start, ALL)
    journal.call(lambda: journal.manager.purge_older_than(TxId(11)))
    with pytest.raises(GapInTransactions, match="transactions 5 to 10 were purged"):
        stream.partitions(start, end)
    assert ids(read_out(lenient, lenient.partitions(start, end))) == list(range(11, 21))
    journal.call(lambda: journal.manager.format(journal.namespace, force=True))
    with pytest.raises(JournalError, match="formatted anew"):
        stream.latestOffset(end, ALL)
    for offset in ({"7": 3}, {"txid": "5", "namespace_id": 1}):
        with pytest.raises(JournalError, match="is no offset of an edit log"):
            stream.latestOffset(offset, ALL)


def test_a_stream_with_a_limit_of_bytes_passes_a_deleted_ledger_where_that_is_to_be_borne(
    journal: EditJournal,
) -> None:
    for first in (1, 11):
        journal.finalised(first, mkdirs(first, first + 9))
    journal.delete_ledger(journal.segments()[0])
    limited = {"startingOffsets": "earliest", "maxBytesPerTrigger": "100000"}
    stream, lenient = stream_of(journal, **limited), stream_of(journal, failOnDataLoss="false", **limited)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end["txid"] == 21
    with pytest.raises(SegmentUnreadable, match=r"transactions 1 to 10 are lost.*failOnDataLoss=false"):
        stream.partitions(start, end)
    assert ids(read_out(lenient, lenient.partitions(start, end))) == list(range(11, 21))
