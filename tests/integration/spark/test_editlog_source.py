"""The format editlog, read by Spark from the ledgers of a real journal."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable

import journalmgr.spark
from bookkeeper.errors import InvalidArgument
from journalmgr.edits.fields import Block, Permission, RpcIds
from journalmgr.edits.ops import Add, Close, Delete, EndLogSegment, Mkdir, Rename, SetOwner, StartLogSegment
from journalmgr.errors import (
    EditsCorrupt,
    GapInTransactions,
    NotFormatted,
    SegmentUnreadable,
    UnsupportedLayout,
)
from journalmgr.model import Segment, TxId
from journalmgr.spark.edit_options import read_edit_options
from journalmgr.spark.edit_segments import JournalSegments
from journalmgr.spark.edit_source import EditLogReader, PushdownEditLogReader
from journalmgr.spark.edit_stream import EditLogStreamReader
from tests.support.edit_journals import EditJournal, encoded, mkdirs, with_wrong_checksum
from tests.support.edit_rows import read_out
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spark() -> Any:
    session = spark_session()
    journalmgr.spark.register(session)
    return session


ALL = ReadAllAvailable()


def load(spark: Any, journal: EditJournal, **options: object) -> Any:
    return spark.read.format("editlog").options(**journal.options, **options).load()


def txids(frame: Any) -> list[int]:
    return sorted(row.txid for row in frame.select("txid").collect())


def reader_of(journal: EditJournal, **options: str) -> EditLogReader:
    """What Spark asks, in this process."""
    read = read_edit_options({**journal.options, **options})
    read.own.check_use(stream=False)
    return EditLogReader(read)


def stream_of(journal: EditJournal, **options: str) -> EditLogStreamReader:
    return EditLogStreamReader(read_edit_options({**journal.options, **options}))


def rows_of(reader: EditLogReader) -> list[dict[str, Any]]:
    return read_out(reader, reader.partitions())


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["txid"] for row in rows]


def test_sql_reads_finalised_segments_and_the_one_in_progress(spark: Any, journal: EditJournal) -> None:
    owned = Permission("alice", "staff", 0o644)
    rpc = RpcIds(bytes(range(16)), 7)
    journal.finalised(
        1,
        encoded(
            [
                StartLogSegment(),
                Mkdir(inode_id=2, path="/a", mtime=1_700_000_000_123, permission=owned),
                Add(path="/a/f", replication=3, block_size=1 << 27, permission=owned, overwrite=True, rpc=rpc),
                Close(path="/a/f", blocks=(Block(9, 100, 1001), Block(10, 5, 1002)), permission=owned),
                EndLogSegment(),
            ],
            1,
        ),
    )
    writer = journal.begun(6, encoded([StartLogSegment(), Rename(src="/a/f", dst="/a/g", options=(1,))], 6))
    for op in (SetOwner(src="/a", user="bob"), Delete(path="/a/g", timestamp=1_700_000_009_000), StartLogSegment()):
        journal.write(writer, encoded([op], writer.last_txid + 1))
    load(spark, journal, endingTxid=9).createOrReplaceTempView("edits")
    found = spark.sql("SELECT txid, op, path, dst, owner, `group`, mode, mtime FROM edits ORDER BY txid").collect()
    assert [(row.txid, row.op) for row in found] == [
        (1, "OP_START_LOG_SEGMENT"), (2, "OP_MKDIR"), (3, "OP_ADD"), (4, "OP_CLOSE"), (5, "OP_END_LOG_SEGMENT"),
        (6, "OP_START_LOG_SEGMENT"), (7, "OP_RENAME"), (8, "OP_SET_OWNER"), (9, "OP_DELETE"),
    ]  # fmt: skip
    assert found[1].path == "/a"
    assert (found[1].owner, found[1].group, found[1].mode) == ("alice", "staff", 0o644)
    assert found[1].mtime.astimezone(datetime.UTC) == datetime.datetime.fromtimestamp(1_700_000_000.123, datetime.UTC)
    assert (found[7].owner, found[7].group) == ("bob", None)
    one = spark.sql(
        "SELECT sum(b.num_bytes) AS size, count(*) AS n FROM edits LATERAL VIEW explode(blocks) AS b"
    ).collect()
    assert [(row["size"], row.n) for row in one] == [(105, 2)]
    assert [row.rpc_call_id for row in spark.sql("SELECT rpc_call_id FROM edits WHERE overwrite").collect()] == [7]
    places = spark.sql("SELECT DISTINCT segment_first_txid, ledger_id, layout_version FROM edits ORDER BY 1").collect()
    assert [tuple(row) for row in places] == [(s.first_txid, s.ledger_id, -63) for s in journal.segments()]
    # Nobody was fenced: the writer goes on.
    journal.write(writer, encoded([EndLogSegment()], writer.last_txid + 1))
    spark.catalog.dropTempView("edits")


def test_a_range_is_read_once_however_many_tasks_read_it(spark: Any, journal: EditJournal) -> None:
    journal.finalised(1, mkdirs(1, 400))
    journal.finalised(401, mkdirs(401, 450))
    journal.finalised(451, mkdirs(451, 800))
    frame = load(spark, journal, startingTxid=7, endingTxid=795, minPartitions=6)
    assert frame.rdd.getNumPartitions() == 6
    assert txids(frame) == list(range(7, 796))
    assert txids(load(spark, journal, startingOffsets="401", endingOffsets="451")) == list(range(401, 451))
    assert txids(load(spark, journal, endingTxid=1)) == [1]
    assert txids(load(spark, journal, startingOffsets="latest")) == []


def test_a_dataframe_gives_the_same_rows_again_after_a_query_with_filters(spark: Any, journal: EditJournal) -> None:
    """Spark 4.3 gives a query without filters the reader of the one before, with the filters that were pushed to it."""
    journal.finalised(1, mkdirs(1, 100))
    frame = load(spark, journal)
    assert txids(frame.where("txid BETWEEN 95 AND 105")) == list(range(95, 101))
    assert txids(frame.where("txid > 1000 OR path = '/d/7'")) == [7]
    assert txids(frame) == list(range(1, 101))


def test_pushed_filters_choose_segments_entries_and_rows(journal: EditJournal) -> None:
    for first in (1, 101, 201):
        journal.finalised(first, mkdirs(first, first + 99))
    middle = journal.segments()[1].ledger_id
    assert middle is not None
    txid, ledger_id, entry_id = ("txid",), ("ledger_id",), ("entry_id",)

    def pushed(*filters: Filter, left: int = 0) -> list[dict[str, Any]]:
        reader = PushdownEditLogReader(read_edit_options(journal.options))
        assert len(list(reader.pushFilters(list(filters)))) == left
        return rows_of(reader)

    assert ids(pushed(GreaterThanOrEqual(txid, 95), LessThan(txid, 106))) == list(range(95, 106))
    assert ids(pushed(In(txid, (3, 150, 300, 999)))) == [3, 150, 300]
    assert ids(pushed(EqualTo(ledger_id, middle), GreaterThan(txid, 190))) == list(range(191, 201))
    ranged = pushed(EqualTo(ledger_id, middle), GreaterThanOrEqual(entry_id, 2), LessThan(entry_id, 4))
    assert {(row["ledger_id"], row["entry_id"]) for row in ranged} == {(middle, 2), (middle, 3)}
    assert len(pushed(In(entry_id, (2, 4)), left=1)) == 300
    assert pushed(GreaterThan(txid, 300)) == []
    assert len(pushed(EqualTo(("path",), "/d/7"), left=1)) == 300


def test_a_pushed_range_touches_only_the_segments_that_have_it(journal: EditJournal) -> None:
    for first in (1, 101, 201):
        journal.finalised(first, mkdirs(first, first + 99))
    reader = reader_of(journal, startingTxid="150", endingTxid="160")
    [partition] = reader.partitions()
    [piece] = partition.slices
    assert piece.segment.first_txid == 101
    assert 0 < piece.first_entry_id <= piece.last_entry_id
    assert ids(read_out(reader, [partition])) == list(range(150, 161))


def test_raw_rows_are_the_records_as_they_were_written(spark: Any, journal: EditJournal) -> None:
    records = mkdirs(1, 20)
    journal.finalised(1, records)
    found = load(spark, journal, decode="raw").orderBy("txid").collect()
    assert [(row.txid, row.opcode, bytes(row.record)) for row in found] == [
        (txid, 3, record) for txid, record in enumerate(records, 1)
    ]
    assert {row.layout_version for row in found} == {-63}


def test_bad_words_and_another_schema_are_refused(spark: Any, journal: EditJournal) -> None:
    with pytest.raises(Exception, match="did you mean startingTxid"):
        load(spark, journal, startingTxd=5)
    with pytest.raises(Exception, match="its rows are"):
        spark.read.format("editlog").schema("txid int").options(**journal.options).load().collect()
    nowhere = {**journal.options, "journal": journal.uri + "-nowhere"}
    with pytest.raises(NotFormatted, match="-nowhere"):
        EditLogReader(read_edit_options(nowhere)).partitions()


def namespace_of(journal: EditJournal) -> dict[str, int]:
    return {"namespace_id": journal.namespace.namespace_id}


# --- how the journal goes on


def test_a_segment_in_progress_is_read_as_far_as_it_is_confirmed_or_not_at_all(journal: EditJournal) -> None:
    journal.finalised(1, mkdirs(1, 10))
    writer = journal.begun(11, mkdirs(11, 30))
    journal.write(writer, mkdirs(31, 31))  # tells the bookies that those before are confirmed
    found = ids(rows_of(reader_of(journal)))
    assert found in (list(range(1, 31)), list(range(1, 32)))  # I-42
    assert ids(rows_of(reader_of(journal, includeInProgress="false"))) == list(range(1, 11))
    journal.write(writer, mkdirs(32, 32))  # nobody fenced it (I-43)
    with pytest.raises(InvalidArgument, match=r"endingTxid: journal .* ends at txid 10 with its finalised segments"):
        reader_of(journal, includeInProgress="false", endingTxid="11").partitions()


def test_transactions_that_may_be_acknowledged_are_left_out_and_named(
    journal: EditJournal, capfd: pytest.CaptureFixture[str]
) -> None:
    journal.finalised(1, mkdirs(1, 10))
    journal.manager = journal.open(explicit_lac_interval_s=0.0)
    journal.begun(11, mkdirs(11, 30))
    reader = reader_of(journal)
    last = ids(rows_of(reader))[-1]
    assert last < 30
    assert "stored and may be acknowledged too; their transactions are left out" in capfd.readouterr().err
    for options in ({"endingTxid": str(last)}, {"includeInProgress": "false"}):
        reader_of(journal, **options).partitions()
        assert "may be acknowledged" not in capfd.readouterr().err


@pytest.mark.parametrize("recovered", [False, True], ids=["finalised", "recovered"])
def test_a_segment_that_ends_while_a_query_runs_neither_loses_nor_repeats_rows(
    journal: EditJournal, *, recovered: bool
) -> None:
    journal.finalised(1, mkdirs(1, 10))
    writer = journal.begun(11, mkdirs(11, 60))
    journal.write(writer, mkdirs(61, 61))
    reader = reader_of(journal, minPartitions="4", endingTxid="60")
    partitions = reader.partitions()
    before = read_out(reader, partitions[:2])
    if recovered:
        journal.crash()
        journal.call(journal.manager.recover_unfinalized)
    else:
        journal.end(writer)
    journal.finalised(62, mkdirs(62, 70))
    assert ids(before + read_out(reader, partitions[2:])) == list(range(1, 61))
    again = reader_of(journal)
    assert ids(rows_of(again)) == list(range(1, 71))
    assert read_out(reader, partitions) == [row for row in rows_of(again) if row["txid"] <= 60]


def test_a_segment_without_anything_confirmed_is_empty_and_not_lost(journal: EditJournal) -> None:
    assert rows_of(reader_of(journal)) == []
    journal.finalised(1, mkdirs(1, 10))
    journal.begun(11, [])
    assert ids(rows_of(reader_of(journal))) == list(range(1, 11))
    assert ids(rows_of(reader_of(journal, startingTxid="11"))) == []
    with pytest.raises(InvalidArgument, match=r"startingTxid: journal .* ends at txid 10, as far as it is confirmed"):
        reader_of(journal, startingTxid="12").partitions()


# --- what is missing


def test_purged_transactions_are_data_loss_where_they_were_asked_for(
    journal: EditJournal, capfd: pytest.CaptureFixture[str]
) -> None:
    for first in (1, 11, 21):
        journal.finalised(first, mkdirs(first, first + 9))
    journal.call(lambda: journal.manager.purge_older_than(TxId(21)))
    assert ids(rows_of(reader_of(journal))) == list(range(21, 31))
    with pytest.raises(GapInTransactions) as error:
        reader_of(journal, startingTxid="5").partitions()
    for part in (journal.root, "transactions 5 to 20 were purged or are lost", "failOnDataLoss=false"):
        assert part in str(error.value)
    assert ids(rows_of(reader_of(journal, startingTxid="5", failOnDataLoss="false"))) == list(range(21, 31))
    assert "transactions 5 to 20" in capfd.readouterr().err
    with pytest.raises(GapInTransactions, match="transactions 5 to 7"):
        reader_of(journal, startingTxid="5", endingTxid="7").partitions()


def test_a_hole_between_segments_is_data_loss_only_inside_the_range(journal: EditJournal) -> None:
    for first in (1, 11, 21):
        journal.finalised(first, mkdirs(first, first + 9))
    journal.remove_record(journal.segments()[1])
    with pytest.raises(GapInTransactions, match="transactions 11 to 20"):
        reader_of(journal).partitions()
    assert ids(rows_of(reader_of(journal, startingTxid="21"))) == list(range(21, 31))
    assert ids(rows_of(reader_of(journal, endingTxid="10"))) == list(range(1, 11))
    lenient = rows_of(reader_of(journal, failOnDataLoss="false"))
    assert ids(lenient) == [*range(1, 11), *range(21, 31)]


@pytest.mark.parametrize("while_reading", [False, True], ids=["before planning", "before reading"])
def test_a_ledger_that_was_deleted_is_data_loss(journal: EditJournal, *, while_reading: bool) -> None:
    for first in (1, 11):
        journal.finalised(first, mkdirs(first, first + 9))
    strict, lenient = reader_of(journal), reader_of(journal, failOnDataLoss="false")
    partitions = strict.partitions() if while_reading else None
    journal.delete_ledger(journal.segments()[0])
    with pytest.raises(SegmentUnreadable, match="failOnDataLoss=false"):
        read_out(strict, partitions) if partitions else strict.partitions()
    assert ids(read_out(lenient, partitions or lenient.partitions())) == list(range(11, 21))


def test_a_ledger_that_is_deleted_while_its_part_is_planned_is_data_loss_too(
    journal: EditJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (1, 11):
        journal.finalised(first, mkdirs(first, first + 9))
    gone = journal.segments()[0]
    strict, lenient = (reader_of(journal, startingTxid="5", failOnDataLoss=word) for word in ("true", "false"))
    opened = JournalSegments.open

    async def deleted(self: JournalSegments, segment: Segment) -> Any:
        monkeypatch.undo()
        journal.delete_ledger(gone)
        return await opened(self, segment)

    monkeypatch.setattr(JournalSegments, "open", deleted)
    with pytest.raises(SegmentUnreadable, match=r"transactions 5 to 10 are lost.*failOnDataLoss=false"):
        strict.partitions()
    assert ids(rows_of(lenient)) == list(range(11, 21))


# --- what is damaged


@pytest.mark.parametrize("layout", [-68, -39, -54])
def test_a_segment_of_an_unknown_layout_is_refused_and_not_guessed(journal: EditJournal, layout: int) -> None:
    journal.finalised(1, mkdirs(1, 10))
    ledger_id = journal.planted(11, 12, [b"".join(mkdirs(11, 12))], layout=layout)
    place = f"journal {journal.root}, ledger {ledger_id} of segment 11..12"
    for options in ({}, {"failOnDataLoss": "false"}, {"decode": "raw"}):
        with pytest.raises(UnsupportedLayout) as error:
            reader_of(journal, **options).partitions()
        assert place in str(error.value)
        assert f"layout version {layout} cannot be read" in str(error.value)
    with pytest.raises(UnsupportedLayout, match=f"layout version {layout} cannot be read"):
        stream_of(journal, startingOffsets="earliest").latestOffset({"txid": 1, **namespace_of(journal)}, ALL)


def test_a_wrong_checksum_names_the_place_and_can_be_passed_over(
    spark: Any, journal: EditJournal, capfd: pytest.CaptureFixture[str]
) -> None:
    journal.finalised(1, mkdirs(1, 10))
    good = mkdirs(11, 22)
    entries = [b"".join(good[:4]), good[4] + with_wrong_checksum(good[5]) + good[6], b"".join(good[7:])]
    ledger_id = journal.planted(11, 22, entries)
    journal.finalised(23, mkdirs(23, 30))
    with pytest.raises(EditsCorrupt) as error:
        rows_of(reader_of(journal))
    for part in (
        f"journal {journal.root}, ledger {ledger_id} of segment 11..22",
        f"entry 1 at offset {len(good[4])}, txid 16",
        "checksum",
        "failOnDataLoss=false",
    ):
        assert part in str(error.value)
    with pytest.raises(Exception, match=f"ledger {ledger_id} of segment 11..22"):
        load(spark, journal).count()
    expected = [*range(1, 16), *range(18, 31)]
    for options in ({}, {"decode": "raw"}, {"minPartitions": "8"}):
        assert ids(rows_of(reader_of(journal, failOnDataLoss="false", **options))) == expected
    assert "entry 1 at offset" in capfd.readouterr().err
    assert txids(load(spark, journal, failOnDataLoss="false")) == expected
    # Ranges that do not touch it are read, and the search for where they begin passes over it.
    assert ids(rows_of(reader_of(journal, startingTxid="18"))) == list(range(18, 31))
    assert ids(rows_of(reader_of(journal, endingTxid="14"))) == list(range(1, 15))


def test_transactions_that_are_missing_in_a_ledger_are_told_wherever_tasks_begin(journal: EditJournal) -> None:
    entries = [b"".join(mkdirs(first, first + 3)) for first in (1, 5, 13, 17)]
    journal.planted(1, 20, entries)
    for partitions in ("1", "4"):
        with pytest.raises(GapInTransactions, match="entry 2 at offset 0: expected txid 9, but got txid 13"):
            rows_of(reader_of(journal, minPartitions=partitions))
        lenient = reader_of(journal, minPartitions=partitions, failOnDataLoss="false")
        assert ids(rows_of(lenient)) == [*range(1, 9), *range(13, 21)]
    with pytest.raises(GapInTransactions, match="expected txid 10, but got txid 13"):
        rows_of(reader_of(journal, startingTxid="10"))


def test_a_ledger_that_ends_too_early_is_told(journal: EditJournal) -> None:
    journal.planted(1, 20, [b"".join(mkdirs(1, 8)), b"".join(mkdirs(9, 12))])
    with pytest.raises(GapInTransactions, match="ends before txid 13"):
        rows_of(reader_of(journal))
    assert ids(rows_of(reader_of(journal, endingTxid="12"))) == list(range(1, 13))


def test_a_finalised_segment_whose_ledger_is_open_is_read_and_not_closed(journal: EditJournal) -> None:
    ledger_id = journal.planted(1, 8, [b"".join(mkdirs(1, 4)), b"".join(mkdirs(5, 8)), b""], close=False)
    assert ids(rows_of(reader_of(journal))) == list(range(1, 9))
    assert not journal.is_closed(ledger_id)
