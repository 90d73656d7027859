"""Exports of a real cluster and imports from them: every entry, once, whatever fails on the way."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import bookkeeper.blocking
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import InvalidArgument
from bookkeeper.model import DigestType
from bookkeeper.spark.exports import importing, writing
from bookkeeper.spark.exports.digests import digest_of_ledger
from bookkeeper.spark.exports.export import Export, ExportFailed, export_ledgers
from bookkeeper.spark.exports.importing import Import, Imported, ImportFailed, import_ledgers
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.manifest import Status, parse_ledger
from bookkeeper.spark.outputs import OutputState, Stage
from bookkeeper.spark.sink.commit_format import CommitRefused
from bookkeeper.spark.sink.commits import SinkCommits
from bookkeeper.spark.sink.purpose import Fate, is_ours
from bookkeeper.spark.sink.sweep import sweep
from tests.support.audit_faults import change_bytes
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.faulty_import import faulty_writing
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

MIB = 1 << 20
RARE = b"m" + random.Random(7).randbytes(62) + b"m"
"""Bytes that no compression makes anything else of."""

_paths = itertools.count(1)


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Path) -> Iterator[LocalCluster]:
    root = f"/exports-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path / "cluster"
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as connected:
        yield connected


@dataclass
class Setting:
    """A cluster, and a place for exports."""

    spark: Any
    cluster: LocalCluster
    client: BlockingBookKeeper
    directory: Path
    commits: str

    def export(self, name: str = "export", **options: object) -> Export:
        """Export to a directory of that name."""
        output = str(self.directory / name)
        given = {"ledgers": "all", "maxFileBytes": MIB, **options}
        return export_ledgers(self.spark, self.cluster.uri, output=output, options=given)

    def take(self, name: str = "export", job: str = "j", **how: Any) -> Import:
        """Import from it."""
        options = {"job": job, "commitPath": self.commits, **how.pop("options", {})}
        return import_ledgers(self.spark, self.cluster.uri, str(self.directory / name), options=options, **how)

    def ids(self) -> set[int]:
        return {int(ledger_id) for ledger_id in itertools.chain.from_iterable(self.client.ids())}

    def sweep(self) -> set[int]:
        """Sweep everything that is not committed; ids of imported ledgers that are left."""
        sweep(self.cluster.uri, commit_path=self.commits, older_than_s=0)
        return {ledger_id for ledger_id in self.ids() if is_ours(self.client.metadata(ledger_id).custom)}


@pytest.fixture
def setting(spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path) -> Setting:
    return Setting(spark, cluster, client, tmp_path, f"{cluster.root}-commits-{next(_paths)}")


def written(client: BlockingBookKeeper, payloads: list[bytes], **how: Any) -> int:
    with client.create(**how) as ledger:
        for first in range(0, len(payloads), 1000):
            ledger.append_many(payloads[first : first + 1000])
        return ledger.id


def entries_of(client: BlockingBookKeeper, ledger_id: int) -> list[bytes]:
    with client.open_as_administrator(ledger_id, recover=False) as handle:
        return [entry.payload for entry in handle.entries()] if handle.last_add_confirmed >= 0 else []


def new_ids(done: Import) -> dict[int, int]:
    return {each.exported_id: each.ledger_id for each in done.ledgers}


def lines_of(export: Export) -> dict[int, Any]:
    ledgers = [parse_ledger(row.line) for row in export.ledgers.collect()]
    return {ledger.ledger_id: ledger for ledger in ledgers}


def test_what_is_exported_deleted_and_imported_is_the_same_entry_by_entry(setting: Setting) -> None:
    client = setting.client
    payloads = {
        written(client, [b"entry %d" % number for number in range(12_000)], custom={"owner": b"\x00\xff", "a": b""}):
            [b"entry %d" % number for number in range(12_000)],
        written(client, [], ensemble=1, write_quorum=1, ack_quorum=1): [],
        written(client, [os.urandom(1000) for _ in range(3)] + [b""], digest=DigestType.MAC, password=b"secret"): None,
        written(client, [b"%d" % number * 250 for number in range(3000)], ensemble=2, ack_quorum=1):
            [b"%d" % number * 250 for number in range(3000)],
        written(client, [b"x"], custom={"application": b"pulsar"}): [b"x"],
    }  # fmt: skip
    payloads = {ledger_id: entries_of(client, ledger_id) for ledger_id in payloads}
    before = {ledger_id: client.metadata(ledger_id) for ledger_id in payloads}
    with client.create() as still_open:
        still_open.append(b"open")
        with pytest.raises(ExportFailed, match="password is not the one"):
            setting.export("without-a-password")
        done = setting.export(asAdministrator=True)
        assert done.manifest.ledgers.status[Status.OPEN] == 1
        still_open.append(b"still")
        open_too = setting.export("open", ledgers=still_open.id, open=True)
        assert (open_too.manifest.ledgers.count, open_too.manifest.ledgers.entries in (1, 2)) == (1, True)
        assert lines_of(open_too)[still_open.id].state == "OPEN"
    lines = lines_of(done)
    assert lines[still_open.id].status is Status.OPEN
    for ledger_id, expected in payloads.items():
        line, metadata = lines[ledger_id], before[ledger_id]
        assert (line.status, line.entries, line.size) == (Status.COMPLETE, len(expected), metadata.length)
        assert line.digest == digest_of_ledger(enumerate(expected))
        assert line.custom == metadata.custom
    assert done.manifest.ledgers.entries == sum(map(len, payloads.values()))
    _check_files(setting.directory / "export", payloads)

    for ledger_id in [*payloads, still_open.id]:
        client.delete(ledger_id)
    dry = setting.take(dry_run=True)
    assert (dry.to_write, dry.ledgers, setting.ids()) == (len(payloads), (), set())
    taken = setting.take(output=str(setting.directory / "ids"))
    assert [each.exported_id for each in taken.ledgers] == sorted(payloads)
    assert all(each.is_new for each in taken.ledgers)
    assert taken.left_out == {Status.OPEN: 1}
    for old, new in new_ids(taken).items():
        metadata = client.metadata(new)
        assert entries_of(client, new) == payloads[old]
        for name in ("ensemble_size", "write_quorum", "ack_quorum", "digest_type", "last_entry_id", "length"):
            assert getattr(metadata, name) == getattr(before[old], name), (old, name)
        assert {name: metadata.custom[name] for name in before[old].custom} == before[old].custom
        assert metadata.custom["imported-from"] == f"{done.manifest.export_id}/{old}".encode()
    rows = setting.spark.read.parquet(str(setting.directory / "ids")).collect()
    assert {row.exported_id: row.ledger_id for row in rows} == new_ids(taken)
    assert setting.sweep() == setting.ids() == set(new_ids(taken).values())

    again = setting.take()
    assert (new_ids(again), any(each.is_new for each in again.ledgers)) == (new_ids(taken), False)
    assert setting.ids() == set(new_ids(taken).values())
    with pytest.raises(CommitRefused, match=r"was committed from export .* Give this import another name"):
        setting.take("open")
    # Exported once more, imported ledgers lose nothing of what they said, and are not taken for committed by it.
    setting.export("second", ledgers=taken.ledgers[0].ledger_id)
    [copy] = setting.take("second", job="second", options={"ensembleSize": 2}).ledgers
    custom = client.metadata(copy.ledger_id).custom
    assert (custom["owner"], custom["imported.spark.import"], custom["spark.import"]) == (b"\x00\xff", b"j", b"second")
    assert client.metadata(copy.ledger_id).ensemble_size == 2


def _check_files(directory: Path, payloads: dict[int, list[bytes]]) -> None:
    """Few files, each ledger in order in them, nothing twice."""
    size = sum(len(payload) for entries in payloads.values() for payload in entries)
    days = list((directory / "entries").glob("date=*"))
    files = sorted((directory / "entries").glob("date=*/*.parquet"))
    assert size / MIB <= len(files) <= 2 * (size // MIB + len(days))
    found: dict[int, dict[int, bytes]] = {ledger_id: {} for ledger_id in payloads}
    for file in files:
        rows = pyarrow.parquet.ParquetFile(file).read().to_pylist()
        ids = [(row["ledger_id"], row["entry_id"]) for row in rows]
        assert ids == sorted(ids), file
        for row in rows:
            assert row["entry_id"] not in found[row["ledger_id"]]
            found[row["ledger_id"]][row["entry_id"]] = row["value"]
    assert found == {ledger_id: dict(enumerate(entries)) for ledger_id, entries in payloads.items()}


def _change(directory: Path, what: str) -> None:
    [file, *_] = sorted((directory / "entries").glob("date=*/*.parquet"))
    [line_file] = [each for each in (directory / "ledgers").glob("*.txt") if each.stat().st_size]
    [manifest] = (directory / "manifest").glob("*.txt")
    for checksum in directory.rglob(".*.crc"):  # Hadoop's own, on a local disk only
        checksum.unlink()
    if what == "byte":
        data = file.read_bytes()
        assert data.count(RARE[20:60]) == 1
        file.write_bytes(data.replace(RARE[20:60], RARE[20:59] + b"\xff"))
    elif what == "torn":
        file.write_bytes(file.read_bytes()[:-9])
    elif what == "gone":
        file.unlink()
    elif what == "more":
        shutil.copy(file, file.with_name("part-more.parquet"))
    elif what == "line":
        line_file.write_text(line_file.read_text().replace('"ack_quorum":2', '"ack_quorum":1'))
    elif what == "manifest":
        shutil.rmtree(manifest.parent)
    elif what == "empty":
        manifest.unlink()
    elif what == "version":
        manifest.write_text(manifest.read_text().replace('"format":1', '"format":2'))
    elif what == "files":
        text = manifest.read_text()
        manifest.write_text(text.replace('"files":{"bytes":', '"files":{"bytes":1'))
    else:
        text = manifest.read_text()
        assert text.count(what) == 1
        manifest.write_text(text.replace(what, what[:-1] + "9"))


def test_an_export_that_has_changed_is_refused_before_anything_is_written(setting: Setting) -> None:
    written(setting.client, [b"a", RARE, b"z"])  # the first and the last are in the file's statistics, too
    written(setting.client, [b"other"])
    setting.export()
    ids = setting.ids()
    for what, why in {
        "byte": r"ledger \d+ 3 entries, 66 bytes, exported were 3 and 66; the digest is another",
        "torn": r"parquet has \d+ bytes, exported were \d+",
        "gone": r"parquet is missing",
        "more": r"date=.*/part-more.parquet is not of the export",
        "line": r"/ledgers has changed since the export",
        "manifest": r"has no manifest, which is written last",
        "empty": r"its manifest has 0 lines",
        "version": r"format 2; this release knows 1",
        "files": r"/manifest has changed since the export: it says of files bytes 1[\d,]+ \(the lines: [\d,]+\)",
        '"complete":2': r"it says of ledgers complete 9 \(the lines: 2\)\. Take another copy of the export",
        '"incomplete":0': r"it says of ledgers incomplete 9 \(the lines: 0\)\.",
        '"entries":4': r"it says of ledgers entries 9 \(the lines: 4\)\.",
        '[{"bytes":71': r"it says of ledgers bytes 79 \(the lines: 71\)\.",
    }.items():
        copy = what.strip('[{"').partition('"')[0]
        shutil.copytree(setting.directory / "export", setting.directory / copy)
        _change(setting.directory / copy, what)
        with pytest.raises(NotAnExport, match=why):
            setting.take(copy)
    with pytest.raises(NotAnExport, match="has no manifest"):
        setting.take("nothing")
    with pytest.raises(ImportFailed, match="wants 4 bookies, and 3 are writable"):
        setting.take(options={"ensembleSize": 4})
    with pytest.raises(ImportFailed, match="ensemble 1, write quorum 2, ack quorum 2: none may be larger"):
        setting.take(options={"ensembleSize": 1})
    assert setting.ids() == ids
    assert len(setting.take().ledgers) == 2
    with pytest.raises(InvalidArgument, match="export exists: name a directory that does not"):
        setting.export()


@pytest.mark.parametrize(
    ("at", "stage"), [("looking", Stage.NOTHING), ("copying", Stage.BEGUN), ("verifying", Stage.BEGUN)]
)
def test_how_much_of_an_export_is_written_is_known_when_it_is_interrupted(
    setting: Setting, at: str, stage: Stage
) -> None:
    written(setting.client, [b"a"])
    state, output = OutputState(), setting.directory / "export"

    def interrupt(text: str) -> None:
        if text.startswith(at):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_ledgers(setting.spark, setting.cluster.uri, output=str(output), state=state, say=interrupt)
    assert (state.stage, output.exists()) == (stage, stage is Stage.BEGUN)
    export_ledgers(setting.spark, setting.cluster.uri, output=f"{output}-2", state=state)
    assert state.stage is Stage.COMPLETE


def test_an_export_of_an_open_ledger_names_the_entries_that_it_leaves_out(setting: Setting) -> None:
    silent = with_long_timeouts(ClientSettings(explicit_lac_interval_s=0.0))
    directory = str(setting.directory / "export")
    with (
        bookkeeper.blocking.connect(setting.cluster.uri, silent) as client,
        client.create() as ledger,
    ):
        ledger.append_many([b"%d" % number for number in range(100)])  # none tells the bookies of another one
        ledger.append(b"last")
        code, told, notes = command(
            "export", "--ledgers", str(ledger.id), "--open", "--output", directory, "--uri", setting.cluster.uri
        )
    assert (code, told["ledgers"]["complete"], told["entries"]) == (0, 1, 100), notes
    left_out = f"ledger {ledger.id} is not closed, and entry 99 is the last one known to be acknowledged; entry 100 is"
    assert "This export left out entries that may be acknowledged" in notes
    assert left_out in notes
    [path] = (setting.directory / "export" / "ledgers").glob("*.txt")
    line = parse_ledger(path.read_text().strip())
    assert (line.status, line.state, line.entries) == (Status.COMPLETE, "OPEN", 100)
    assert line.why.startswith(left_out)
    [copy] = setting.take().ledgers  # what was exported is whole
    assert entries_of(setting.client, copy.ledger_id) == [b"%d" % number for number in range(100)]


def test_a_bookie_that_is_killed_while_entries_are_copied_costs_nothing(setting: Setting) -> None:
    payloads = [b"entry %d" % number for number in range(5000)]
    ledger_id = written(setting.client, payloads)

    def say(text: str) -> None:
        if text.startswith("copying"):
            setting.cluster.bookies[0].kill()

    output = str(setting.directory / "export")
    done = export_ledgers(setting.spark, setting.cluster.uri, output=output, say=say)
    assert lines_of(done)[ledger_id].digest == digest_of_ledger(enumerate(payloads))
    setting.cluster.bookies[0].start()
    [copy] = setting.take().ledgers
    assert entries_of(setting.client, copy.ledger_id) == payloads


def test_what_is_lost_fails_an_export_or_stands_in_its_manifest(setting: Setting) -> None:
    client, victim = setting.client, setting.cluster.bookies[0]
    alone = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1, "bookies": [victim.bookie_id]}
    others = [bookie.bookie_id for bookie in setting.cluster.bookies[1:]]
    sound = written(client, [b"1", b"2"], ensemble=2, bookies=others)
    unreadable = written(client, [b"3", b"4"], **alone)
    gone = written(client, [b"5"], ensemble=2, bookies=others)
    client.delete(gone)
    victim.kill()
    chosen = f"{sound},{unreadable}"
    with pytest.raises(ExportFailed, match=f"ledger {gone}: it is not there.*failOnDataLoss=false"):
        setting.export("gone", ledgers=f"{sound},{gone}")
    with pytest.raises(ExportFailed, match=f"{unreadable}"):
        setting.export("unreadable", ledgers=chosen)
    for name in ("gone", "unreadable"):
        with pytest.raises(NotAnExport, match="has no manifest"):
            setting.take(name)
    done = setting.export(ledgers=f"{chosen},{gone}", failOnDataLoss=False)
    lines = lines_of(done)
    assert {each: lines[each].status for each in lines} == {
        sound: Status.COMPLETE,
        unreadable: Status.INCOMPLETE,
        gone: Status.LOST,
    }
    assert (lines[unreadable].why, lines[unreadable].entries) == ("0 of 2 entries", 0)
    victim.start()
    with pytest.raises(ImportFailed, match="2 ledgers are not complete"):
        setting.take()
    # A manifest that says nothing of the loss any more does not get past it.
    shutil.copytree(setting.directory / "export", setting.directory / "mended")
    for checksum in (setting.directory / "mended").rglob(".*.crc"):
        checksum.unlink()
    [manifest] = (setting.directory / "mended" / "manifest").glob("*.txt")
    text = manifest.read_text()
    manifest.write_text(text.replace('"incomplete":1', '"incomplete":0').replace('"lost":1', '"lost":0'))
    with pytest.raises(NotAnExport, match=r"incomplete 0 \(the lines: 1\), lost 0 \(the lines: 1\)"):
        setting.take("mended")
    taken = setting.take(options={"failOnDataLoss": False})
    assert taken.left_out == {Status.INCOMPLETE: 1, Status.LOST: 1}
    assert [each.exported_id for each in taken.ledgers] == [sound]


def test_an_entry_that_nobody_can_read_costs_its_ledgers_part_of_a_file_at_most_and_the_manifest_says_how_much(
    setting: Setting,
) -> None:
    """A ledger of one copy, in the middle of which a byte has changed; another one in the same file is whole."""
    client, victim = setting.client, setting.cluster.bookies[0]
    alone = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1, "bookies": [victim.bookie_id]}
    payloads = [b"entry %d of 900%s" % (number, b"x" * 5000) for number in range(900)]
    damaged = written(client, payloads, **alone)
    sound = written(client, payloads[:5], **alone)
    change_bytes(victim, [b"entry 450 of 900"])
    with pytest.raises(ExportFailed, match=f"ledger {damaged}"):
        setting.export("refused")
    done = setting.export(failOnDataLoss=False)
    lines = lines_of(done)
    assert (lines[sound].status, lines[damaged].status) == (Status.COMPLETE, Status.INCOMPLETE)
    found = lines[damaged].entries
    assert found is not None
    assert lines[damaged].why.startswith(f"{found} of 900 entries")
    rows = setting.spark.read.parquet(str(setting.directory / "export" / "entries"))
    kept = rows.where(f"ledger_id = {damaged}").orderBy("entry_id").collect()
    assert [bytes(row.value) for row in kept] == [payloads[row.entry_id] for row in kept]
    assert len(kept) == found
    lost = set(range(900)) - {row.entry_id for row in kept}
    assert 450 in lost
    assert lost == set(range(min(lost), max(lost) + 1))
    assert len(lost) <= MIB // 5000 + 1
    taken = setting.take(options={"failOnDataLoss": False})
    assert [each.exported_id for each in taken.ledgers] == [sound]


@pytest.mark.parametrize("fault", ["raises", "killed"])
def test_a_task_of_an_import_that_fails_is_repeated_and_nothing_of_it_stays(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    payloads = {}
    for number in range(4):
        entries = [b"%d %d" % (number, each) for each in range(500)]
        payloads[written(setting.client, entries)] = entries
    setting.export()
    for ledger_id in payloads:
        setting.client.delete(ledger_id)
    monkeypatch.setattr(writing, "writing", faulty_writing(fault, setting.directory))
    taken = setting.take()
    assert (setting.directory / fault).exists()
    assert {old: entries_of(setting.client, new) for old, new in new_ids(taken).items()} == payloads
    orphans = sweep(setting.cluster.uri, commit_path=setting.commits, dry_run=True).orphans
    assert (fault == "killed") == bool(orphans), "who can clean up does"
    assert {orphan.fate for orphan in orphans} <= {Fate.SUPERSEDED}
    assert setting.sweep() == setting.ids() == set(new_ids(taken).values())


def test_an_import_that_dies_between_batches_goes_on_behind_what_it_committed(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = {written(setting.client, [b"%d" % number] * 5): [b"%d" % number] * 5 for number in range(5)}
    setting.export()
    for ledger_id in payloads:
        setting.client.delete(ledger_id)
    monkeypatch.setattr(importing, "BATCH_LEDGERS", 2)
    commit = SinkCommits.commit

    async def failing(self: SinkCommits, owner: Any, new: Any, *since: Any) -> Any:
        if new.batch == 1:
            raise CommitRefused("injected")
        return await commit(self, owner, new, *since)

    with monkeypatch.context() as patched:
        patched.setattr(SinkCommits, "commit", failing)
        with pytest.raises(CommitRefused, match="injected"):
            setting.take()
    first = setting.take(dry_run=True)
    assert (len(first.ledgers), first.to_write) == (2, 3)
    taken = setting.take()
    assert [each.is_new for each in taken.ledgers] == [False, False, True, True, True]
    assert taken.ledgers[:2] == tuple(first.ledgers)
    assert {old: entries_of(setting.client, new) for old, new in new_ids(taken).items()} == payloads
    assert setting.sweep() == setting.ids() == set(new_ids(taken).values())


class Killed(BaseException):
    """The driver is gone: nothing behind it runs."""


def dying(step: str, patched: pytest.MonkeyPatch) -> None:
    """Let the driver of an import die in its second batch: before or after a step of it. Nothing is tidied up."""
    whose: Any = SinkCommits if step == "commit" else importing._Import  # noqa: SLF001 - its steps
    name = {"begin": "_rows", "write": "_verify", "verify": "_verify", "commit": "commit"}[step]
    do, calls = getattr(whose, name), itertools.count()

    def dead(*_: Any) -> None:
        raise Killed

    def die(*words: Any) -> Any:
        if next(calls) != 1:
            return do(*words)
        if step == "verify":
            do(*words)
        raise Killed

    async def commit_and_die(*words: Any) -> Any:
        done = await do(*words)
        if next(calls) == 1:
            raise Killed
        return done

    patched.setattr(importing._Import, "_give_up", dead)  # noqa: SLF001
    patched.setattr(whose, name, commit_and_die if step == "commit" else die)


@pytest.mark.parametrize("step", ["begin", "write", "verify", "commit"])
def test_an_import_whose_driver_dies_at_a_step_writes_each_ledger_once_when_it_is_run_again(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    payloads = {written(setting.client, [b"%d" % number] * 5): [b"%d" % number] * 5 for number in range(5)}
    setting.export()
    for ledger_id in payloads:
        setting.client.delete(ledger_id)
    monkeypatch.setattr(importing, "BATCH_LEDGERS", 2)
    with monkeypatch.context() as patched:
        dying(step, patched)
        with pytest.raises(Killed):
            setting.take()
    left_behind = setting.ids()
    taken = setting.take()
    committed = 4 if step == "commit" else 2
    assert [each.is_new for each in taken.ledgers] == [False] * committed + [True] * (5 - committed)
    assert {old: entries_of(setting.client, new) for old, new in new_ids(taken).items()} == payloads
    orphans = left_behind - set(new_ids(taken).values())
    assert len(orphans) == (2 if step in ("write", "verify") else 0)
    assert setting.sweep() == setting.ids() == set(new_ids(taken).values())


def command(*words: str) -> tuple[int, Any, str]:
    """Exit code, JSON and notes of `bookkeeper spark`."""
    run = [sys.executable, "-m", "bookkeeper.cli.main", "spark", *words, "--json", "--master", "local[2]"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=280, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_the_commands_export_and_import(setting: Setting) -> None:
    ledger_id = written(setting.client, [b"one", b"two"], password=b"secret")
    directory, uri = str(setting.directory / "export"), setting.cluster.uri
    where = ("--uri", uri, "-D", "passwd=secret")
    code, told, notes = command("export", "--ledgers", str(ledger_id), "--output", directory, *where)
    assert (code, told["ledgers"]["complete"], told["entries"], told["bytes"]) == (0, 1, 2, 6), notes
    assert "exported 1 ledger with 2 entries (6B)" in notes
    taking = ("import", directory, "--job", "j", "--commit-path", setting.commits, *where)
    code, told, notes = command(*taking)
    assert (code, told["imported"]) == (0, 1), notes
    [copy] = told["ledgers"]
    assert (copy["exported_id"], copy["entries"], copy["is_new"]) == (ledger_id, 2, True)
    with setting.client.open(copy["ledger_id"], password=b"secret") as handle:
        assert [entry.payload for entry in handle.entries()] == [b"one", b"two"]
    again = setting.take(options={"password": "secret"})
    assert again.ledgers == (Imported(ledger_id, copy["ledger_id"], 2, 6, is_new=False),)
