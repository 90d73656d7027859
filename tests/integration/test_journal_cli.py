"""`journalmgr` on real journals, in files and on ledgers: every command, what it prints, and what it refuses."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from bookkeeper.blocking import connect
from bookkeeper.console.output import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PARTIAL,
    EXIT_USAGE,
)
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import DigestType
from journalmgr import copying, reading
from journalmgr.cli.main import main
from journalmgr.config import SHARED_EDITS, variable_of
from journalmgr.edits.file import EditsFileDecoder
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.xml import XmlDecoder
from journalmgr.model import HADOOP_2_7, OPAQUE, Segment, TxId
from journalmgr.segment import finalised_name, print_segment
from tests.support.cluster import STEADY, local_cluster
from tests.support.command_line import CommandLine
from tests.support.journal_log import opened, payload, with_journal, writing

pytestmark = pytest.mark.timeout(300)

MEDIA = ("files", "ledgers")
NAMES = ("--cluster-id", "CID-1", "--namespace-id", "42", "--block-pool-id", "BP-1-10.0.0.1-1421135800377")


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/cli-journal-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("cluster")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capfd, monkeypatch, main)


NewJournal = Callable[[str], str]


@pytest.fixture
def new_uri(
    request: pytest.FixtureRequest, zookeeper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> NewJournal:
    """A URI that nothing is at yet, of a medium; the cluster is started only for ledgers."""

    def make(medium: str) -> str:
        if medium == "files":
            return f"file://{tmp_path}/journal-{os.urandom(3).hex()}"
        cluster: LocalCluster = request.getfixturevalue("cluster")
        root = "/" + cluster.uri.rpartition("/")[2]
        settings = {
            "zk.availablebookies": f"{root}/available",
            # This also limits the time to connect. There is no spare bookie that could replace a slow one.
            "zk.session.timeout": "30000",
            "addEntryTimeoutSec": "60",
            "readEntryTimeoutSec": "60",
        }
        for key, value in settings.items():
            monkeypatch.setenv(variable_of(f"dfs.namenode.bookkeeperjournal.{key}"), value)
        monkeypatch.setenv("BK_explicitLacInterval", "100")
        return f"bookkeeper://{zookeeper.address}/journal-{os.urandom(4).hex()}"

    return make


@pytest.fixture(params=MEDIA)
def uri(request: pytest.FixtureRequest, new_uri: NewJournal, run: CommandLine) -> str:
    """A formatted journal."""
    made = new_uri(request.param)
    run("format", made, *NAMES)
    return made


@pytest.fixture
def on_ledgers(new_uri: NewJournal, run: CommandLine) -> str:
    made = new_uri("ledgers")
    run("format", made, *NAMES)
    return made


@pytest.fixture
def in_files(new_uri: NewJournal, run: CommandLine) -> str:
    made = new_uri("files")
    run("format", made, *NAMES)
    return made


def fill(uri: str, segments: int = 3, each: int = 8, first: int = 1) -> None:
    """Finalised segments 1..10, 11..20, ...: START, eight transactions, END."""
    with writing(uri, first) as log:
        for left in range(segments - 1, -1, -1):
            log.append(each)
            if left:
                log.roll()
        log.close()


def txids(outcome: Any) -> list[int]:
    return [json.loads(line)["txid"] for line in outcome.lines]


def span(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def file_of(uri: str, first: int, last: int) -> Path:
    return Path(uri.removeprefix("file://")) / "current" / f"edits_{first:019d}-{last:019d}"


def damage(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def ledgers_of(run: CommandLine, uri: str) -> list[int]:
    return [segment["ledger_id"] for segment in json.loads(run("segments", uri, "--json").out)["segments"]]


# --- format


@pytest.mark.parametrize("medium", MEDIA)
def test_format_binds_a_journal_to_the_names_given_or_to_new_ones(
    run: CommandLine, new_uri: NewJournal, medium: str
) -> None:
    uri = new_uri(medium)
    shown = run("format", uri, *NAMES)
    assert shown.lines == ["cluster id     CID-1", "namespace id   42", "block pool id  BP-1-10.0.0.1-1421135800377"]
    listed = json.loads(run("segments", uri, "--json").out)
    assert listed["namespace"]["cluster_id"] == "CID-1"
    assert listed["segments"] == []
    made = json.loads(run("format", uri, "--force", "--json").out)["namespace"]
    assert re.fullmatch(r"CID-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["cluster_id"])
    assert re.fullmatch(r"BP-\d+-[\d.]+-\d{13}", made["block_pool_id"])
    assert 0 < made["namespace_id"] < 2**31
    assert json.loads(run("segments", uri, "--json").out)["namespace"] == made


def test_format_asks_before_it_destroys(run: CommandLine, uri: str) -> None:
    fill(uri, 1)
    refused = run("format", uri, code=EXIT_USAGE)
    assert "has data. Destroy all of it? This needs --force when nobody can be asked." in refused.err
    assert txids(run("dump", uri)) == span(1, 10)
    run("format", uri, *NAMES, "--force")
    assert run("dump", uri).lines == []


# --- segments, dump


def test_segments_are_listed_by_txid(run: CommandLine, uri: str) -> None:
    fill(uri)
    outcome = run("segments", uri)
    assert [line.split()[:4] for line in outcome.lines] == [
        ["first", "last", "transactions", "layout"],
        ["1", "10", "10", "1"],
        ["11", "20", "10", "1"],
        ["21", "30", "10", "1"],
    ]
    assert outcome.err.startswith("3 segments; namespace id 42, cluster CID-1")
    value = json.loads(run("segments", uri, "--json").out)["segments"][1]
    assert (value["first_txid"], value["last_txid"], value["in_progress"]) == (11, 20, False)
    with writing(uri, 31):
        assert "in progress" in run("segments", uri).lines[-1]


def test_dump_prints_every_transaction_with_its_fields(run: CommandLine, uri: str) -> None:
    fill(uri)
    outcome = run("dump", uri)
    assert txids(outcome) == span(1, 30)
    values = [json.loads(line) for line in outcome.lines]
    assert values[0]["op"] == "OP_START_LOG_SEGMENT"
    assert bytes.fromhex(values[4]["body"]) == payload(5)
    assert outcome.err == "30 transactions\n"
    assert run("dump", uri, "--json").out == outcome.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", 5], (5, 30)),
        (["--to", 10], (1, 10)),
        (["--from", 10, "--to", 11], (10, 11)),
        (["--from", 30], (30, 30)),
        (["--from", 31], (1, 0)),
        (["--to", 0], (1, 0)),
        (["--resync", "--from", 9, "--to", 22], (9, 22)),
    ],
)
def test_dump_begins_and_ends_where_it_is_told(
    run: CommandLine, in_files: str, options: list[object], expected: tuple[int, int]
) -> None:
    fill(in_files)
    assert txids(run("dump", in_files, *options)) == span(*expected)


def test_dump_has_the_confirmed_part_of_a_segment_in_progress(run: CommandLine, uri: str) -> None:
    with writing(uri) as log:
        log.append(20)
        found = txids(run("dump", uri))
        assert found == span(1, len(found))
        assert len(found) >= 20  # 21, as soon as the last one is told to be confirmed


def test_dump_warns_of_transactions_that_may_be_acknowledged(
    run: CommandLine, on_ledgers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BK_explicitLacInterval", "0")
    with writing(on_ledgers) as log:
        log.append(20)
        outcome = run("dump", on_ledgers)
        last = txids(outcome)[-1] if outcome.lines else 0
        assert last < 21
        assert "stored and may be acknowledged too" in outcome.err
        if last:
            assert "may be acknowledged" not in run("dump", on_ledgers, "--to", last).err
        assert "stored and may be acknowledged too" in run("tail", on_ledgers, "-e").err


@pytest.mark.parametrize("finalised", [False, True])
def test_transactions_acknowledged_while_a_journal_is_read_are_named(
    run: CommandLine, on_ledgers: str, monkeypatch: pytest.MonkeyPatch, finalised: bool
) -> None:
    read = reading.read_journal
    with writing(on_ledgers) as log:
        log.append(20)

        async def then_written(*parameters: Any) -> AsyncIterator[Any]:
            async for batch in read(*parameters):
                yield batch
            if finalised:
                log.close()
            else:
                log.append(20)

        monkeypatch.setattr(reading, "read_journal", then_written)
        assert "were acknowledged after this read began; run it again" in run("dump", on_ledgers).err


def test_dump_as_xml_and_as_a_file_of_edits_hold_the_same(run: CommandLine, uri: str, tmp_path: Path) -> None:
    fill(uri, 2)
    with (tmp_path / "edits").open("wb") as out:
        command = [sys.executable, "-m", "journalmgr.cli.main", "dump", uri, "--format", "edits"]
        subprocess.run(command, stdout=out, check=True, timeout=60, stderr=subprocess.PIPE)
    decoder = EditsFileDecoder(source="edits")
    records = decoder.feed((tmp_path / "edits").read_bytes())
    decoder.finish()
    assert decoder.layout_version == OPAQUE
    assert [record.txid for record in records] == span(1, 20)
    assert run("dump", tmp_path / "edits").out == run("dump", uri).out
    xml = XmlDecoder(source="xml")
    document = run("dump", uri, "--format", "xml").out.encode()
    assert [op.txid for op in [*xml.feed(document), *xml.finish()]] == span(1, 20)
    hexadecimal = run("dump", tmp_path / "edits", "--format", "hex", "--from", 2, "--to", 2).out
    assert hexadecimal == f"2 OP_OPAQUE {encode_record(OpCode.OPAQUE, 2, payload(2)).hex()}\n"


def test_a_document_of_one_layout_does_not_take_two(run: CommandLine, in_files: str) -> None:
    async def other_layout(journal: Any) -> None:
        writer = await journal.start_segment(TxId(11), -63)
        writer.write([encode_record(OpCode.START_LOG_SEGMENT, 11, b"")])
        await writer.close()
        await journal.finalize_segment(TxId(11), TxId(11))

    fill(in_files, 1)
    with opened(in_files) as (commands, journal):
        commands.run(lambda: other_layout(journal))
    for form in ("xml", "edits"):
        failed = run("dump", in_files, "--format", form, code=EXIT_FAILURE)
        assert "the layout version changes from 1 to -63 at txid 11" in failed.err
    assert txids(run("dump", in_files)) == span(1, 11)


# --- damage


def test_damage_ends_a_dump_and_resync_goes_on_behind_it(run: CommandLine, in_files: str) -> None:
    fill(in_files)
    path = file_of(in_files, 11, 20)
    damage(path, 8 + 17 + 20)  # in the second transaction
    for what in (in_files, path):
        failed = run("dump", what, code=EXIT_FAILURE)
        assert "is corrupt" in failed.err
        assert f"`journalmgr dump {what} --resync` exports what can still be read" in failed.err
        outcome = run("dump", what, "--resync", code=EXIT_FAILURE)
        expected = [txid for txid in (span(1, 30) if what is in_files else span(11, 20)) if txid != 12]
        assert txids(outcome) == expected
        assert re.search(r"skipped bytes 25\.\.\d+ \(\d+\): transaction of opcode 112 is corrupt", outcome.err)
        assert "txids 12..12 are missing" in outcome.err


@pytest.mark.parametrize("offset", [0, 5])
def test_a_damaged_header_hides_only_its_own_segment(run: CommandLine, in_files: str, offset: int) -> None:
    """A wrong byte of the layout version, or of what follows it."""
    fill(in_files)
    path = file_of(in_files, 11, 20)
    damage(path, offset)
    outcome = run("segments", in_files, code=EXIT_PARTIAL)
    assert [line.split()[:4] for line in outcome.lines[1:]] == [
        ["1", "10", "10", "1"], ["11", "20", "10", "?"], ["21", "30", "10", "1"]
    ]  # fmt: skip
    assert f"segment 11..20 ({path.name}) is unreadable" in outcome.err
    listed = json.loads(run("segments", in_files, "--json", code=EXIT_PARTIAL).out)["segments"]
    assert [each["layout_version"] for each in listed] == [1, None, 1]
    report = json.loads(run("verify", in_files, "--json", code=EXIT_FAILURE).out)
    assert [(each["problem"], each["segment"]["first_txid"]) for each in report["findings"]] == [("unreadable", 11)]
    assert (report["segments"], report["transactions"], report["last_txid"]) == (3, 20, 30)
    stopped = run("dump", in_files, code=EXIT_FAILURE)
    assert txids(stopped) == span(1, 10)
    assert str(path) in stopped.err
    assert "from another copy of the journal" in stopped.err
    assert "--resync" in stopped.err
    outcome = run("dump", in_files, "--resync", code=EXIT_FAILURE)
    assert txids(outcome) == [*span(1, 10), *span(21, 30)]
    assert f"{path}: skipped all of it" in outcome.err
    assert "txids 11..20 are missing" in outcome.err
    assert txids(run("dump", in_files, "--from", 21)) == span(21, 30)
    assert txids(run("dump", in_files, "--resync", "--from", 21)) == span(21, 30)
    assert txids(run("tail", in_files, "-e", "-o", 21)) == span(21, 30)
    assert txids(run("dump", in_files, "--resync", "--from", 15, code=EXIT_FAILURE)) == span(21, 30)


@pytest.mark.parametrize(("offset", "says"), [(45, "is corrupt"), (5, "flags 0x10000 in the header")])
def test_a_damaged_journal_is_not_copied_and_what_to_do_is_told(
    run: CommandLine, in_files: str, new_uri: NewJournal, offset: int, says: str
) -> None:
    fill(in_files)
    damage(file_of(in_files, 11, 20), offset)
    for words in (("tail", in_files, "-e"), ("verify", in_files), ("dump", in_files)):
        failed = run(*words, code=EXIT_FAILURE)
        assert "take the segment from another copy of the journal" in failed.err
        assert f"`journalmgr verify {in_files}` tells all that is wrong" in failed.err
    there = new_uri("files")
    failed = run("copy", in_files, there, code=EXIT_FAILURE)
    assert says in failed.err
    assert "from another copy" in failed.err
    assert not Path(there.removeprefix("file://")).exists()
    damage(file_of(in_files, 11, 20), offset)  # back again
    assert "30 transactions copied" in run("copy", in_files, there).err


@pytest.mark.parametrize("medium", MEDIA)
def test_a_journal_that_begins_late_says_so_wherever_it_is_copied_to(
    run: CommandLine, in_files: str, new_uri: NewJournal, medium: str
) -> None:
    fill(in_files)
    there = new_uri(medium)
    for words in (("segments", in_files), ("verify", in_files), ("copy", in_files, new_uri("files"))):
        assert "begins at" not in run(*words).err
    run("purge", in_files, "--older-than", 11, "--force")
    copied = run("copy", in_files, there)
    assert "The copy begins at txid 11" in copied.err
    assert "a checkpoint that covers at least txid 10" in copied.err
    assert "Checkpoints of a name node are not copied" in copied.err
    assert json.loads(run("copy", in_files, there, "--json").out)["begins_at"] == 11
    for command in ("segments", "verify"):
        assert "The journal begins at txid 11" in run(command, there).err
    assert "not copied" in run("copy", "--help").out


def test_a_txid_behind_the_end_is_told_with_the_end(run: CommandLine, uri: str) -> None:
    assert "--from 7: the journal has no transactions yet" in run("dump", uri, "--from", 7).err
    fill(uri, 2)
    for options in ((), ("--resync",)):
        beyond = run("dump", uri, "--from", 1000, *options)
        assert beyond.out == ""
        assert "--from 1000: the journal ends at txid 20" in beyond.err
        assert "ends at" not in run("dump", uri, "--from", 20, *options).err
    beyond = run("tail", uri, "-e", "-o", 1000)
    assert (beyond.out, beyond.err) == ("", "-o 1000: the journal ends at txid 20\n")
    assert run("tail", uri, "-e", "-o", 20).err == ""
    with writing(uri, 21) as log:
        log.append(3)
        told = run("dump", uri, "--from", 25).err  # a reader of ledgers hears of the last one a moment later
        assert re.search("--from 25: the journal ends at txid 2[34], as far as it is confirmed", told)


def test_a_file_that_ends_before_what_is_asked_for_says_where(run: CommandLine, in_files: str) -> None:
    fill(in_files, 1)
    assert "--from 11: what is there ends at txid 10" in run("dump", file_of(in_files, 1, 10), "--from", 11).err


def test_tail_says_what_it_waits_for(in_files: str) -> None:
    fill(in_files, 1)
    with tail_process(in_files, "-o", "12", "-c", "1") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "-o 12: the journal ends at txid 10; waiting for txid 12\n"
        with writing(in_files, 11) as log:
            log.append(2)
            assert read_txids(process, 1) == [12]


def test_resync_on_ledgers_goes_on_behind_a_damaged_entry(
    run: CommandLine, on_ledgers: str, cluster: LocalCluster, zookeeper: Any
) -> None:
    records = [encode_record(OpCode.START_LOG_SEGMENT, 1, b"")]
    records += [encode_record(OpCode.OPAQUE, txid, payload(txid)) for txid in span(2, 6)]
    damaged = bytearray(records[2])
    damaged[15] ^= 1
    entries = [records[0], records[1] + bytes(damaged), records[3], records[4] + records[5]]
    with connect(cluster.uri) as client, client.create(digest=DigestType.MAC, password=b"") as ledger:
        ledger.append_many([bytes(entry) for entry in entries])
    record_segment(zookeeper, on_ledgers, Segment(TxId(1), TxId(6), OPAQUE, ledger.id))
    assert "is corrupt" in run("dump", on_ledgers, code=EXIT_FAILURE).err
    outcome = run("dump", on_ledgers, "--resync", code=EXIT_FAILURE)
    assert txids(outcome) == [1, 2, 4, 5, 6]
    assert f"ledger {ledger.id} of segment 1..6" in outcome.err
    assert "entry 1: skipped bytes" in outcome.err
    assert "txids 3..3 are missing" in outcome.err
    report = json.loads(run("verify", on_ledgers, "--json", "--no-orphans", code=EXIT_FAILURE).out)
    assert [finding["problem"] for finding in report["findings"]] == ["damaged"]


def record_segment(zookeeper: Any, uri: str, segment: Segment) -> None:
    """Put a segment into a journal's list behind everybody's back."""
    assert segment.last_txid is not None
    client = KazooClient(zookeeper.address)
    client.start()
    try:
        root = "/" + uri.rpartition("/")[2]
        name = finalised_name(segment.first_txid, segment.last_txid)
        client.create(f"{root}/ledgers/{name}", print_segment(segment))
    finally:
        client.stop()
        client.close()


def note_deletion(zookeeper: Any, uri: str, ledger_id: int) -> None:
    """What a purge leaves that is killed before it deletes a ledger."""
    client = KazooClient(zookeeper.address)
    client.start()
    try:
        client.create(f"/{uri.rpartition('/')[2]}/deleting/{ledger_id}", b"", makepath=True)
    finally:
        client.stop()
        client.close()


# --- verify


def test_a_whole_journal_is_verified_without_findings(run: CommandLine, uri: str) -> None:
    fill(uri)
    outcome = run("verify", uri, "--no-orphans")
    assert outcome.out == ""
    assert outcome.err.startswith("3 segments, 30 transactions, 1..30; 0 findings; namespace id 42")
    with writing(uri, 31) as log:
        log.append(5)
        report = json.loads(run("verify", uri, "--json", "--no-orphans").out)
        assert (report["findings"], report["in_progress"]["first_txid"]) == ([], 31)
        assert "(the segment from 31 on is still written" in run("verify", uri, "--no-orphans").err
        log.append(1)  # it was not disturbed


def test_damage_and_gaps_in_files_are_found(run: CommandLine, in_files: str) -> None:
    fill(in_files, 4)
    damage(file_of(in_files, 1, 10), 60)
    file_of(in_files, 11, 20).unlink()
    outcome = run("verify", in_files, code=EXIT_FAILURE)
    assert [line.partition(":")[0] for line in outcome.lines] == ["damaged", "gap"]
    assert "txids 11..20 are in no segment" in outcome.out
    assert "2 findings" in outcome.err


def test_a_ledger_that_is_gone_is_found_and_does_not_hide_the_others(
    run: CommandLine, on_ledgers: str, cluster: LocalCluster
) -> None:
    fill(on_ledgers)
    gone = ledgers_of(run, on_ledgers)[1]
    with connect(cluster.uri) as client:
        client.delete(gone)
    report = json.loads(run("verify", on_ledgers, "--json", "--no-orphans", code=EXIT_FAILURE).out)
    assert [(each["problem"], each["ledger_id"]) for each in report["findings"]] == [("unreadable", gone)]
    assert report["transactions"] == 20


def test_a_recorded_end_that_the_ledger_does_not_have_is_found(
    run: CommandLine, on_ledgers: str, cluster: LocalCluster, zookeeper: Any
) -> None:
    for first, last in ((1, 4), (5, 12)):
        with connect(cluster.uri) as client, client.create(digest=DigestType.MAC, password=b"") as ledger:
            ledger.append_many([encode_record(OpCode.OPAQUE, txid, b"") for txid in span(first, first + 5)])
        record_segment(zookeeper, on_ledgers, Segment(TxId(first), TxId(last), OPAQUE, ledger.id))
    report = json.loads(run("verify", on_ledgers, "--json", "--no-orphans", code=EXIT_FAILURE).out)
    assert [each["segment"]["first_txid"] for each in report["findings"]] == [1, 5]
    assert "goes on" in report["findings"][0]["text"]
    assert "ends before txid 11" in report["findings"][1]["text"]


def test_a_finalised_segment_whose_ledger_is_open_is_found_and_stays_open(
    run: CommandLine, on_ledgers: str, cluster: LocalCluster, zookeeper: Any
) -> None:
    with connect(cluster.uri) as client:
        ledger = client.create(digest=DigestType.MAC, password=b"")
        ledger.append_many([encode_record(OpCode.OPAQUE, txid, b"") for txid in span(1, 3)])
        record_segment(zookeeper, on_ledgers, Segment(TxId(1), TxId(3), OPAQUE, ledger.id))
        report = json.loads(run("verify", on_ledgers, "--json", "--no-orphans", code=EXIT_FAILURE).out)
        assert "ledger not closed" in [each["problem"] for each in report["findings"]]
        ledger.append(b"its writer is not disturbed")
        ledger.close()


def test_ledgers_that_hold_an_edit_log_and_are_in_no_segment_are_shown_and_kept(
    run: CommandLine, new_uri: NewJournal, cluster: LocalCluster, zookeeper: Any
) -> None:
    """Another journal's are found to be its; what is nobody's may be an orphan, and is one where that is certain."""
    here, there = new_uri("ledgers"), new_uri("ledgers")
    for uri in (here, there):
        run("format", uri, *NAMES)
        fill(uri, 1)
    start_record = encode_record(OpCode.START_LOG_SEGMENT, 77, b"")
    with connect(cluster.uri) as client:
        orphan = client.create(digest=DigestType.MAC, password=b"")
        orphan.append(start_record)
        orphan.close()
        others = []
        for digest, password, entry in (
            (DigestType.CRC32C, b"", start_record),
            (DigestType.MAC, b"another's", start_record),
            (DigestType.MAC, b"", b"something else"),
            (DigestType.MAC, b"", start_record[:-1] + b"x"),
        ):
            with client.create(digest=digest, password=password) as other:
                other.append(entry)
            others.append(other.id)
        outcome = run("verify", here)
        assert f"possible orphan: ledger {orphan.id} holds an edit log from txid 77 on" in outcome.out
        assert "to be sure" in outcome.err
        report = json.loads(run("verify", here, "--json").out)
        assert report["findings"] == []
        assert "/" + there.rpartition("/")[2] in report["other_journals"]
        found = {each["ledger_id"] for each in report["possible_orphans"]}
        assert orphan.id in found
        assert not found & {*others, *ledgers_of(run, here), *ledgers_of(run, there)}
        outcome = run("verify", here, "--other-journal", there, code=EXIT_FAILURE)
        assert f"orphan ledger: ledger {orphan.id} holds an edit log from txid 77 on" in outcome.out
        assert not any(f"ledger {each} holds" in outcome.out for each in ledgers_of(run, there))
        run("verify", here, "--no-orphans")
        note_deletion(zookeeper, here, orphan.id)
        outcome = run("verify", here, code=EXIT_FAILURE)
        assert f"orphan ledger: ledger {orphan.id} holds an edit log from txid 77 on: this journal began" in outcome.out
        assert "possible" not in run("verify", there).out
        assert client.metadata(orphan.id).is_closed
        client.delete(orphan.id)


# --- tail


def test_tail_prints_what_is_there(run: CommandLine, uri: str) -> None:
    fill(uri)
    assert txids(run("tail", uri, "-e")) == span(1, 30)
    assert txids(run("tail", uri, "-c", 12, "-o", 5)) == span(5, 16)
    assert txids(run("tail", uri, "-e", "-o", "end")) == []
    assert run("tail", uri, "-c", 0).out == ""
    line = run("tail", uri, "-o", 2, "-c", 1, "--format", "hex").out
    assert line == f"2 OP_OPAQUE {encode_record(OpCode.OPAQUE, 2, payload(2)).hex()}\n"


@contextmanager
def tail_process(*words: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "journalmgr.cli.main", "tail", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_txids(process: subprocess.Popen[str], count: int) -> list[int]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline())["txid"] for _ in range(count)]


def test_tail_follows_over_the_end_of_a_segment_until_it_is_interrupted(uri: str) -> None:
    with writing(uri) as log, tail_process(uri) as tail:
        log.append(4)
        assert read_txids(tail, 5) == span(1, 5)
        log.append(5)
        log.roll()
        log.append(5)
        assert read_txids(tail, 12) == span(6, 17)
        tail.send_signal(signal.SIGINT)
        assert tail.communicate(timeout=60) == ("", "")
        assert tail.returncode == EXIT_INTERRUPTED


def test_tail_from_the_end_prints_only_what_comes(uri: str) -> None:
    """One transaction after the other until the first is printed: the tail may take a while to begin."""
    fill(uri, 1)
    with writing(uri, 11) as log, tail_process(uri, "-o", "end", "-c", "3") as tail:
        assert tail.stdout is not None
        while not select.select([tail.stdout], [], [], 0.2)[0]:
            log.append(1)
        log.append(3)
        first, *others = read_txids(tail, 3)
        assert first >= 11
        assert others == span(first + 1, first + 2)
        assert tail.wait(timeout=60) == EXIT_OK


def test_tail_ends_with_its_reader_though_nothing_comes(uri: str) -> None:
    fill(uri, 1)
    with tail_process(uri) as tail:
        assert read_txids(tail, 10) == span(1, 10)
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stdout.close()
        assert tail.wait(timeout=60) == EXIT_BROKEN_PIPE
        assert tail.stderr.read() == ""


# --- recover


def test_recover_finalises_what_a_dead_writer_left(run: CommandLine, uri: str) -> None:
    with writing(uri) as log:
        log.append(5)
    tried = run("recover", uri, "--dry-run")
    assert "1 segment in progress; nothing was done." in tried.err
    refused = run("recover", uri, code=EXIT_USAGE)
    assert "Stop whoever writes there? This needs --force" in refused.err
    value = json.loads(run("recover", uri, "--force", "--json").out)
    assert [(each["first_txid"], each["last_txid"]) for each in value["finalised"]] == [(1, 6)]
    again = run("recover", uri)
    assert (again.out, again.err) == ("", "0 segments in progress; nothing was done.\n")
    assert txids(run("dump", uri)) == span(1, 6)


def test_recover_stops_a_writer_that_lives_on_ledgers(run: CommandLine, on_ledgers: str) -> None:
    with writing(on_ledgers) as log:
        log.append(5)
        run("recover", on_ledgers, "--force")
        with pytest.raises(BookKeeperError, match="took the journal over"):
            log.append(1)


def test_recover_does_not_take_files_from_a_writer_that_lives(run: CommandLine, in_files: str) -> None:
    with writing(in_files) as log:
        log.append(5)
        command = [sys.executable, "-m", "journalmgr.cli.main", "recover", in_files, "--force"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == EXIT_FAILURE
        assert "is in use by" in done.stderr
        log.append(1)


# --- purge


def test_purge_deletes_whole_segments_below_a_txid(run: CommandLine, uri: str) -> None:
    fill(uri)
    assert "2 segments would be deleted" in run("purge", uri, "--older-than", 25, "--dry-run").err
    refused = run("purge", uri, "--older-than", 25, code=EXIT_USAGE)
    assert "delete 2 segments, txids 1..20? This needs --force" in refused.err
    assert txids(run("dump", uri)) == span(1, 30)
    value = json.loads(run("purge", uri, "--older-than", 25, "--force", "--json").out)
    assert [each["last_txid"] for each in value["segments"]] == [10, 20]
    assert txids(run("dump", uri)) == span(21, 30)
    assert "0 segments deleted" in run("purge", uri, "--older-than", 25).err
    gap = run("dump", uri, "--from", 5, code=EXIT_FAILURE)
    assert "expected txid 5" in gap.err


def fill_as_a_name_node_does(uri: str) -> None:
    """Segments 1..10 and 11..20 with operations of HDFS's layout."""

    async def write(journal: Any) -> None:
        for first in (1, 11):
            writer = await journal.start_segment(TxId(first), HADOOP_2_7)
            writer.write([encode_record(OpCode.START_LOG_SEGMENT, txid, b"") for txid in span(first, first + 9)])
            await writer.close()
            await journal.finalize_segment(TxId(first), TxId(first + 9))

    with_journal(uri, write)


def test_purge_keeps_what_no_checkpoint_of_a_name_node_covers(run: CommandLine, in_files: str, tmp_path: Path) -> None:
    fill_as_a_name_node_does(in_files)
    images = tmp_path / "images"
    images.mkdir()
    words = ("purge", in_files, "--older-than", 21, "--force")
    assert "no checkpoint that is known here (--images" in run(*words, code=EXIT_FAILURE).err
    assert "no checkpoint in" in run(*words, "--images", images, code=EXIT_FAILURE).err
    (images / "image_0000000000000000019").write_bytes(b"")
    (images / "image_0000000000000000099.0.unfinished").write_bytes(b"")
    refused = run(*words, "--images", images, code=EXIT_FAILURE).err
    assert "covers the transactions up to 19, and 20..20 would be deleted" in refused
    assert "name --older-than 20 at most" in refused
    assert "20..20 would be deleted" in run(*words, "--images", images, "--dry-run").err
    assert txids(run("dump", in_files)) == span(1, 20)
    assert "1 segment deleted" in run("purge", in_files, "--older-than", 20, "--force", "--images", images).err
    (images / "image_0000000000000000020").write_bytes(b"")
    assert "1 segment deleted" in run(*words, "--images", images).err


def test_purge_finds_the_checkpoints_beside_a_journal_on_ledgers(
    run: CommandLine, on_ledgers: str, zookeeper: Any
) -> None:
    fill(on_ledgers)
    words = ("purge", on_ledgers, "--older-than", 25, "--force")
    assert "is not known here: its own must cover" in run("purge", on_ledgers, "--older-than", 25, "--dry-run").err
    client = KazooClient(zookeeper.address)
    client.start()
    try:
        path = f"/{on_ledgers.rpartition('/')[2]}/images/image_{15:019d}"
        client.create(path, b'{"ledgerId": 1, "entries": 1, "bytes": 1}', makepath=True)
    finally:
        client.stop()
        client.close()
    assert "up to 15, and 16..20 would be deleted" in run(*words, code=EXIT_FAILURE).err
    assert txids(run("dump", on_ledgers)) == span(1, 30)
    assert "2 segments deleted" in run(*words, "--without-checkpoint").err


# --- copy


@pytest.mark.parametrize(("source", "target"), [("files", "ledgers"), ("ledgers", "files")])
def test_a_copy_is_the_same_journal_and_is_brought_up_to_date(
    run: CommandLine, new_uri: NewJournal, source: str, target: str
) -> None:
    here, there = new_uri(source), new_uri(target)
    run("format", here, *NAMES)
    fill(here)
    outcome = run("copy", here, there)
    assert "Formatted " in outcome.err
    assert "30 transactions copied, and read back alike." in outcome.err
    assert run("dump", there).out == run("dump", here).out
    assert json.loads(run("segments", there, "--json").out)["namespace"]["cluster_id"] == "CID-1"
    assert "Nothing was copied" in run("copy", here, there).err
    with writing(here, 31) as log:
        log.append(3)
        log.roll()
        log.append(3)
        value = json.loads(run("copy", here, there, "--json").out)
        assert value["transactions"] == 5
        assert [each["first_txid"] for each in value["left_in_progress"]] == [36]
    assert txids(run("dump", there)) == span(1, 35)
    run("verify", there, "--no-orphans")


def test_a_copy_that_was_cut_asks_before_it_goes_on(run: CommandLine, in_files: str, new_uri: NewJournal) -> None:
    fill(in_files)
    there = new_uri("ledgers")
    run("format", there, *NAMES)
    with writing(there) as log:
        log.append(3)
    refused = run("copy", in_files, there, code=EXIT_USAGE)
    assert "has a segment in progress, 1..in progress" in refused.err
    assert "This needs --force" in refused.err
    run("copy", in_files, there, "--force")
    assert run("dump", there).out == run("dump", in_files).out
    assert [(each["first_txid"], each["last_txid"]) for each in json.loads(run("segments", there, "--json").out)[
        "segments"
    ]] == [(1, 4), (5, 10), (11, 20), (21, 30)]  # fmt: skip


@pytest.mark.parametrize("target", MEDIA)
def test_a_copy_ends_in_order_at_ctrl_c_and_the_same_command_goes_on(
    run: CommandLine, in_files: str, new_uri: NewJournal, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(in_files)
    there = new_uri(target)
    without_interruption = copying.copy
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    async def interrupted(*args: Any, stop: Callable[[], bool], **named: Any) -> copying.Copied:
        """Interrupted when the first segment is being written."""
        copied = 0

        def stop_then() -> bool:
            nonlocal copied
            copied += 1
            if copied == 8:  # six times while three segments are checked, and once before the first is copied
                signal.pthread_kill(main_thread, signal.SIGINT)
                while not stop():
                    pass  # until the other thread has seen the signal
            return stop()

        return await without_interruption(*args, stop=stop_then, **named)

    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        patched.setattr(copying, "copy", interrupted)
        outcome = run("copy", in_files, there, code=EXIT_INTERRUPTED)
    assert f"Stopped. To go on: journalmgr copy {in_files} {there}" in outcome.err
    assert txids(run("dump", there)) == span(1, 10)
    assert signal.getsignal(signal.SIGINT) is handler
    assert "20 transactions copied" in run("copy", in_files, there).err
    assert run("dump", there).out == run("dump", in_files).out


def test_a_transaction_that_ledgers_do_not_take_is_told_before_anything_is_copied(
    run: CommandLine, in_files: str, new_uri: NewJournal
) -> None:
    with writing(in_files) as log:
        log.append(20)
        log.roll()
        txid = log.append_payload(bytes(1_100_000))
        log.close()
    there = new_uri("ledgers")
    for _ in range(2):
        failed = run("copy", in_files, there, code=EXIT_FAILURE)
        assert re.search(rf"txid {txid} has 1100017 bytes, and journal \S+ at .* takes at most 1048319", failed.err)
        assert json.loads(run("segments", there, "--json").out)["segments"] == []
    alike = new_uri("files")
    run("copy", in_files, alike)
    assert run("dump", alike).out == run("dump", in_files).out


def test_journals_of_two_namespaces_are_not_mixed(run: CommandLine, in_files: str, new_uri: NewJournal) -> None:
    there = new_uri("files")
    run("format", there, "--cluster-id", "CID-2")
    assert "copy into a journal of its own" in run("copy", in_files, there, code=EXIT_FAILURE).err


def test_a_journal_that_is_too_old_to_name_a_namespace_is_read_and_not_changed(
    run: CommandLine, on_ledgers: str, in_files: str, zookeeper: Any
) -> None:
    fill(on_ledgers, 1)
    client = KazooClient(zookeeper.address)
    client.start()
    try:
        client.set("/" + on_ledgers.rpartition("/")[2] + "/version", b"-1")
    finally:
        client.stop()
        client.close()
    assert json.loads(run("segments", on_ledgers, "--json").out)["namespace"] is None
    assert run("verify", on_ledgers, "--no-orphans").err.endswith("0 findings; no namespace\n")
    assert txids(run("dump", on_ledgers)) == span(1, 10)
    run("copy", on_ledgers, in_files)
    assert run("dump", in_files).out == run("dump", on_ledgers).out
    for words in (("recover", on_ledgers, "--force"), ("purge", on_ledgers, "--older-than", 99, "--force")):
        assert "it can only be read" in run(*words, code=EXIT_FAILURE).err


# --- which journal, with which settings


def test_the_journal_may_come_from_the_environment_a_file_or_a_setting(
    run: CommandLine, in_files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run("segments", in_files).err
    conf = tmp_path / "jm.conf"
    conf.write_text(f"{SHARED_EDITS}={in_files}\n")
    site = tmp_path / "hdfs-site.xml"
    properties = f"<property><name>{SHARED_EDITS}</name><value>{in_files}</value></property>"
    properties += "<property><name>dfs.replication</name><value>1</value></property>"
    site.write_text(f"<configuration>{properties}</configuration>")
    assert run("segments", "--conf", conf).err == expected
    assert run("segments", "-D", f"{SHARED_EDITS}={in_files}").err == expected
    assert run("segments", "--conf", site).err == f"{site}: passed over 1 key of others\n{expected}"
    monkeypatch.setenv(variable_of(SHARED_EDITS), in_files)
    assert run("segments").err == expected


# --- bad input

EVERY = (
    ("segments",),
    ("dump",),
    ("dump", "--resync"),
    ("tail",),
    ("tail", "-e"),
    ("verify",),
    ("recover",),
    ("purge", "--older-than", "5"),
)


@pytest.mark.parametrize("words", [*EVERY, ("format",)], ids=" ".join)
def test_every_command_says_that_no_journal_is_named(run: CommandLine, words: tuple[str, ...]) -> None:
    failed = run(*words, code=EXIT_USAGE)
    assert failed.out == ""
    assert failed.err.startswith("journalmgr: no journal is named: give its URI, or set dfs.namenode.shared.edits.dir")


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
@pytest.mark.parametrize("medium", MEDIA)
def test_every_command_says_that_a_journal_is_not_formatted(
    run: CommandLine, new_uri: NewJournal, medium: str, words: tuple[str, ...]
) -> None:
    command, *options = words
    failed = run(command, new_uri(medium), *options, code=EXIT_FAILURE)
    assert failed.out == ""
    assert "format" in failed.err
    assert len(failed.err.splitlines()) == 1


@pytest.mark.parametrize("words", [*EVERY, ("format",)], ids=" ".join)
def test_every_command_refuses_what_is_no_journal(run: CommandLine, words: tuple[str, ...]) -> None:
    command, *options = words
    failed = run(command, "nfs://host/dir", *options, code=EXIT_USAGE)
    assert "no journal implementation for the scheme 'nfs'; installed are bookkeeper, file" in failed.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["purge", "file:///x"], EXIT_USAGE, "the following arguments are required: --older-than"),
        (["purge", "file:///x", "--older-than", "0"], EXIT_USAGE, "0 is not a whole number from 1 on"),
        (["tail", "file:///x", "-o", "-5"], EXIT_USAGE, "use beginning, end or a txid"),
        (["tail", "file:///x", "-o", "0"], EXIT_USAGE, "-o 0: txids begin at 1"),
        (["dump", "file:///x", "--from", "0"], EXIT_USAGE, "0 is not a whole number from 1 on: txids begin at 1"),
        (["tail", "file:///x", "-o", "soon"], EXIT_USAGE, "-o 'soon': use beginning, end or a txid"),
        (["tail", "file:///x", "--format", "xml"], EXIT_USAGE, "invalid choice: 'xml'"),
        (["dump", "x", "--from", "5", "--to", "4"], EXIT_USAGE, "--from 5 --to 4: the last is before the first"),
        (["dump", "x", "--json", "--format", "xml"], EXIT_USAGE, "--json and --format xml: choose one of them"),
        (["dump", "/nowhere/edits"], EXIT_FAILURE, "/nowhere/edits: No such file or directory"),
        (["dump", "/nowhere/edits", "--resync"], EXIT_FAILURE, "/nowhere/edits: No such file or directory"),
        (["copy", "file:///a"], EXIT_USAGE, "the following arguments are required: TARGET"),
        (["copy", "file:///a", "file:///a"], EXIT_USAGE, "file:///a is source and target"),
        (["copy", "file:///nowhere", "file:///nowhere/else"], EXIT_FAILURE, "format"),
        (["format", "file:///x", "--namespace-id", "0"], EXIT_USAGE, "0 is not a whole number from 1 on"),
        (["segments", "/var/lib/edits"], EXIT_USAGE, "is no URI of a journal"),
        (["segments", "bookkeeper:///j"], EXIT_USAGE, "names no ZooKeeper server"),
        (["segments", "bookkeeper://a:b:c/j"], EXIT_USAGE, "bookkeeper://a:b:c/j: 'a:b:c' is not host:port"),
        (["segments", "bookkeeper://a:1/"], EXIT_USAGE, "cannot be the znode of a journal"),
        (["segments", "file://host/x"], EXIT_USAGE, "has no host 'host'"),
        (["segments", "file:///x%"], EXIT_USAGE, "write %25 for a %"),
        (["copy", "file:///a", "nfs://host/dir"], EXIT_USAGE, "no journal implementation for the scheme 'nfs'"),
        (["verify", "file:///a", "--other-journal", "/b"], EXIT_USAGE, "'/b' is no URI of a journal"),
        (["perf", "sync", "nfs://host/dir"], EXIT_USAGE, "no journal implementation for the scheme 'nfs'"),
        (["namenode", "nfs://host/dir"], EXIT_USAGE, "no journal implementation for the scheme 'nfs'"),
        (["namenode", "/var/lib/edits"], EXIT_USAGE, "is no URI of a journal"),
        (
            ["config", "check", "-D", f"{SHARED_EDITS}=nfs://h/d"],
            EXIT_FAILURE,
            f"command line: {SHARED_EDITS}=nfs://h/d: nfs://h/d: no journal",
        ),
        (["config", "check", "-D", "dfs.ha.tail-edit.period=1"], EXIT_FAILURE, "did you mean dfs.ha.tail-edits"),
        (
            ["config", "check", "-D", f"{SHARED_EDITS}=hdfs://x"],
            EXIT_FAILURE,
            "no journal implementation for the scheme",
        ),
        (["segments", "hdfs://x"], EXIT_USAGE, "hdfs://x: no journal implementation for the scheme 'hdfs'"),
        (["config", "list"], EXIT_USAGE, "invalid choice: 'list'"),
        (["segments", "file:///x", "-D", "dfs.ha.tail-edit.period=1"], EXIT_FAILURE, "did you mean dfs.ha.tail-edits"),
        (["segments", "file:///x", "--conf", "/nowhere.conf"], EXIT_FAILURE, "/nowhere.conf: cannot be read"),
        (["segments", "file:///x", "--ledger"], EXIT_USAGE, "unrecognized arguments: --ledger"),
        (["verify", "file:///x", "--no-orphan"], EXIT_FAILURE, "format"),
        (["nonsense"], EXIT_USAGE, "invalid choice: 'nonsense'"),
        ([], EXIT_USAGE, "the following arguments are required: COMMAND"),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_words(run: CommandLine, words: list[str], code: int, says: str) -> None:
    failed = run(*words, code=code)
    assert failed.out == ""
    assert says in failed.err
    assert "Traceback" not in failed.err


def test_a_file_that_is_no_file_of_edits_is_refused(run: CommandLine, tmp_path: Path) -> None:
    for name, content in (("empty", b""), ("text", b"hello, world: no edits"), ("padding", b"\xff" * 100)):
        (tmp_path / name).write_bytes(content)
        for options in ((), ("--resync",)):
            assert run("dump", tmp_path / name, *options, code=EXIT_FAILURE).out == ""


def test_dump_of_a_directory_says_what_to_write_instead(run: CommandLine, in_files: str, tmp_path: Path) -> None:
    directory = in_files.removeprefix("file://")
    for meant in (directory, f"{directory}/current", f"{directory}/"):
        assert f"write {in_files} for the journal in it" in run("dump", meant, code=EXIT_USAGE).err
    (tmp_path / "empty").mkdir()
    assert "and no journal: name a file of edits" in run("dump", tmp_path / "empty", code=EXIT_USAGE).err


def test_settings_are_shown_with_their_origins_and_checked(
    run: CommandLine, in_files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "hdfs-site.xml"
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in ((SHARED_EDITS, in_files), ("dfs.replication", "1"), ("dfs.ha.log-roll.period", "5"))
    )
    site.write_text(f"<configuration>{properties}</configuration>")
    monkeypatch.setenv(variable_of("dfs.namenode.bookkeeperjournal.digestPw"), "secret")
    outcome = run("config", "show", "--conf", site, "-D", "dfs.ha.tail-edits.period=7", "--json")
    assert outcome.err == f"{site}: passed over 1 key of others\n"
    rows = {each["key"]: (each["value"], each["origin"]) for each in json.loads(outcome.out)}
    assert rows[SHARED_EDITS][0] == in_files
    assert str(site) in rows["dfs.ha.log-roll.period"][1]
    assert rows["dfs.ha.tail-edits.period"] == ("7", "command line")
    assert rows["dfs.namenode.checkpoint.period"] == ("3600", "default")
    assert "secret" not in outcome.out
    assert run("config", "show").lines[0].split() == ["key", "value", "origin"]
    assert run("config", "check", "--conf", site).err.endswith("No faults.\n")
    conf = tmp_path / "client.conf"
    conf.write_text(
        "clientAuthProviderFactoryClass=password-file\npasswordOverClearText=true\nclientPasswordFile=/nowhere/password\n"
    )
    failed = run("config", "check", "-D", f"journalmgr.ledgers.client-conf={conf}", code=EXIT_FAILURE)
    assert "/nowhere/password cannot be read" in failed.err


def test_all_faults_of_the_configuration_come_in_one_document(run: CommandLine, tmp_path: Path) -> None:
    conf = tmp_path / "jm.conf"
    conf.write_text(f"{SHARED_EDITS}=nfs://h/d\ndfs.ha.tail-edits.period=soon\n")
    failed = run("config", "check", "--conf", conf, "--json", code=EXIT_FAILURE)
    faults = json.loads(failed.out)["faults"]
    assert len(faults) == 2
    assert faults[0].startswith(f"{conf}:1: {SHARED_EDITS}=nfs://h/d: ")
    assert "no journal implementation for the scheme 'nfs'; installed are bookkeeper, file" in faults[0]
    assert faults[1].startswith(f"{conf}:2: dfs.ha.tail-edits.period=soon: not a duration")
    told = run("config", "check", "--conf", conf, code=EXIT_FAILURE)
    assert told.out == ""
    assert all(fault in told.err for fault in faults)
    overridden = run("config", "check", "--conf", conf, "--json", "-D", f"{SHARED_EDITS}=file:///a", code=EXIT_FAILURE)
    assert json.loads(overridden.out)["faults"] == faults[1:]
    conf.write_text("")
    assert json.loads(run("config", "check", "--conf", conf, "--json").out) == {
        "faults": [],
        "ignored": [],
        "openPorts": [],
    }


def test_a_journal_of_another_scheme_in_a_configuration_hinders_nobody_who_names_one(
    run: CommandLine, in_files: str, tmp_path: Path
) -> None:
    conf = tmp_path / "jm.conf"
    conf.write_text(f"{SHARED_EDITS}=qjournal://h:8485/d\n")
    assert "0 segments" in run("segments", in_files, "--conf", conf).err


def test_a_name_node_says_in_terms_of_its_journal_that_zookeeper_is_not_there() -> None:
    command = [sys.executable, "-m", "journalmgr.cli.main", "namenode", "bookkeeper://127.0.0.1:1/journal"]
    options = ["--http", "127.0.0.1:0", "-D", "ha.zookeeper.session-timeout.ms=500"]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    log = ended.stdout + ended.stderr
    assert "the address in the journal's URI (bookkeeper://127.0.0.1:1/journal) is right" in log
    assert "metadataServiceUri" not in log


def test_a_zookeeper_that_is_not_there_is_told(run: CommandLine) -> None:
    failed = run(
        *("segments", "bookkeeper://127.0.0.1:1/journal"),
        *("-D", "dfs.namenode.bookkeeperjournal.zk.session.timeout=500"),
        code=EXIT_FAILURE,
    )
    assert "Error connecting to the journal /journal at 127.0.0.1:1" in failed.err
    assert "the address in the journal's URI (bookkeeper://127.0.0.1:1/journal) is right" in failed.err
    assert "metadataServiceUri" not in failed.err


def test_resync_of_a_segment_that_was_only_begun_skips_nothing(run: CommandLine, in_files: str) -> None:
    """A crash within the making of its file left it empty."""
    fill(in_files, 1)
    file_of(in_files, 1, 10).with_name("edits_inprogress_0000000000000000011").write_bytes(b"")
    assert txids(run("dump", in_files, "--resync")) == span(1, 10)
