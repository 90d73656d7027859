"""Shell commands that check and rebuild what a real bookie left on its disks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.bookie.gc.tombstones import FILE_NAME, RECORD_SIZE, Tombstone, TombstoneKind, encode
from bookkeeper.console.output import EXIT_FAILURE
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.cluster import STEADY, local_cluster, wait_for_exit
from tests.support.command_line import CommandLine, Outcome

COUNT = 300
PASSWORD = b"secret"


@pytest.fixture
def command_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capfd, monkeypatch)


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """A bookie that makes no checkpoint before it stops: its entries are in the journal, behind the mark."""
    settings = {**STEADY, "flushInterval": "600000"}
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=settings) as cluster:
        yield cluster


class Files:
    """One bookie with a closed and a fenced ledger, and commands on its files."""

    def __init__(self, cluster: LocalCluster, command_line: CommandLine) -> None:
        (self.bookie,) = cluster.bookies
        self.uri = cluster.uri
        self._command_line = command_line
        with connect(self.uri) as client:
            with client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=PASSWORD) as closed:
                closed.append_many([b"entry-%d" % number for number in range(COUNT)])
            fenced = client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=PASSWORD)
            fenced.append(b"one")
            with connect(self.uri) as other:
                other.open(fenced.id, password=PASSWORD).close()
        self.closed, self.fenced = closed.id, fenced.id

    def __call__(self, *words: object, code: int = 0) -> Outcome:
        return self._command_line("shell", "--conf", self.bookie.conf_path, *words, code=code)

    @property
    def current(self) -> Path:
        return self.bookie.ledger_directory / "current"

    def index(self, ledger_id: int) -> Path:
        return self.current / f"{ledger_id >> 8 & 0xFF:x}" / f"{ledger_id & 0xFF:x}" / f"{ledger_id:x}.idx"

    def log(self) -> Path:
        """The entry log that has the entries."""
        (path,) = [path for path in self.current.glob("*.log") if path.stat().st_size > 1024]
        return path


@pytest.fixture
def files(cluster: LocalCluster, command_line: CommandLine) -> Files:
    return Files(cluster, command_line)


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_running_bookie_is_not_looked_at(files: Files) -> None:
    failed = files("localconsistencycheck", code=EXIT_FAILURE)
    assert "Stop the bookie first" in failed.err


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_a_bookie_left_has_no_fault_however_it_ended(files: Files, end: str) -> None:
    getattr(files.bookie, end)()
    outcome = files("localconsistencycheck")
    assert outcome.out == ""
    assert f"checking bookie {files.bookie.bookie_id} of cluster " in outcome.err
    assert outcome.err.rstrip().endswith(": no fault")
    files.bookie.start()  # nothing was changed
    with connect(files.uri) as client, client.open(files.closed, password=PASSWORD) as ledger:
        assert ledger.last_add_confirmed == COUNT - 1


def test_every_fault_is_reported_with_path_and_offset(files: Files) -> None:
    files.bookie.stop()
    index, log = files.index(files.closed), files.log()
    patch(index, 1024 + 8 * 5, bytes(8))  # entry 5: never held
    patch(index, 1024 + 8 * 6, (1 << 40).to_bytes(8, "big"))  # entry 6: in a log that is not there
    journal_cookie = files.bookie.journal_directory / "current" / "VERSION"
    journal_cookie.write_text(journal_cookie.read_text().replace("instanceId: ", 'instanceId: "x" # '))
    (files.current / "lastMark").write_bytes(b"short")
    outcome = files("localconsistencycheck", "--json", code=EXIT_FAILURE)
    found = [json.loads(line) for line in outcome.lines]
    places = {(fault["path"], fault["offset"]) for fault in found}
    assert places >= {
        (str(index), 1024 + 8 * 5),
        (str(index), 1024 + 8 * 6),
        (str(files.current / "lastMark"), 5),
    }
    assert any(fault["path"].endswith("VERSION") and "cluster instance id" in fault["why"] for fault in found)
    # None: of the page, whose checksum is wrong too
    assert {fault["entry_id"] for fault in found if fault["ledger_id"] == files.closed} == {5, 6, None}
    patch(log, 0, b"x")
    assert f"{log} at offset 0: an entry log starts with" in files("localconsistencycheck", code=EXIT_FAILURE).out


def test_a_damaged_journal_and_a_lost_fence_are_found(files: Files) -> None:
    """I-24, I-51: the check reads the journal as the next start would."""
    files.bookie.kill()
    (journal,) = (files.bookie.journal_directory / "current").glob("*.txn")
    data = journal.read_bytes()
    at = data.index(b"entry-7")
    patch(journal, at, b"X")
    assert f"{journal} at offset " in files("localconsistencycheck", code=EXIT_FAILURE).out
    patch(journal, at, data[at : at + 1])
    files("localconsistencycheck")
    for _ in range(2):  # a journal that is not needed any more, and a mark that lies behind it
        files.bookie.start()
        files.bookie.stop()
    header = bytearray(files.index(files.fenced).read_bytes()[:1024])
    at = header.index(b"\0\0\0\1", 12)
    unfenced = bytes(header[:at]) + bytes(4) + bytes(header[at + 4 : 496]).ljust(496 - at - 4, b"\0")
    patch(files.index(files.fenced), 0, unfenced.ljust(1024, b"\0"))  # as Apache writes a header, without checksums
    outcome = files("localconsistencycheck", code=EXIT_FAILURE)
    assert f"ledger {files.fenced} was fenced, says the journal, but not its index" in outcome.out


def test_another_bookies_directory_is_named(files: Files) -> None:
    files.bookie.stop()
    cookie = files.current / "VERSION"
    cookie.write_text(cookie.read_text().replace(files.bookie.bookie_id, "10.9.9.9:3181"))
    outcome = files("localconsistencycheck", code=EXIT_FAILURE)
    assert f"{cookie}: the cookie says bookie id '10.9.9.9:3181'" in outcome.out
    cookie.unlink()
    assert f"{cookie}: no cookie, and the directory holds files" in files("localconsistencycheck", code=1).out


def test_a_damaged_tombstone_is_found_and_what_a_crash_leaves_of_one_is_not(files: Files) -> None:
    """I-04."""
    files.bookie.stop()
    records = [encode(Tombstone(ledger_id, TombstoneKind.DELETED, 1)) for ledger_id in (70, 71, 72)]
    path = files.current / FILE_NAME
    path.write_bytes(b"".join(records) + records[0][:20])
    files("localconsistencycheck")
    path.write_bytes(b"".join(records) + bytes(RECORD_SIZE))
    files("localconsistencycheck")
    path.write_bytes(records[0] + b"x" + records[1][1:] + records[2])
    found = files("localconsistencycheck", code=EXIT_FAILURE)
    assert f"{path} at offset {RECORD_SIZE}: a damaged tombstone" in found.out


# --- regenerate-interleaved-storage-index-file

REGENERATE = "regenerate-interleaved-storage-index-file"


def test_lost_index_files_are_made_anew_and_the_bookie_serves_everything(files: Files) -> None:
    """I-59: keys and fences come back from the journal; a fence that cannot be known is set (I-24)."""
    files.bookie.stop()
    files.index(files.closed).unlink()
    files.index(files.fenced).unlink()
    ids = f"{files.closed},{files.fenced}"
    dry = files(REGENERATE, "-ledgerIds", ids, "-dryRun")
    assert f"ledger {files.closed}: {files.index(files.closed)} would be made: {COUNT} entries, from 0 to" in dry.out
    assert not files.index(files.closed).exists()
    made = [json.loads(line) for line in files(REGENERATE, "-l", ids, "--json").lines]
    assert [(each["entry_count"], each["fenced"], each["refused"]) for each in made] == [
        (COUNT, True, None),
        (1, True, None),
    ]
    assert files("localconsistencycheck").err.rstrip().endswith(": no fault")
    files.bookie.start()
    with connect(files.uri) as client:
        with client.open(files.closed, password=PASSWORD) as ledger:
            assert [entry.payload for entry in ledger.entries()] == [b"entry-%d" % number for number in range(COUNT)]
        with client.open(files.fenced, password=PASSWORD) as ledger:
            assert [entry.payload for entry in ledger.entries()] == [b"one"]


def test_a_bookie_whose_journal_has_more_of_a_lost_index_file_says_what_to_do_and_that_helps(files: Files) -> None:
    """I-31: it does not begin the ledger anew with what the journal has."""
    with connect(files.uri) as client:
        writer = client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=PASSWORD)
        writer.append_many([b"one", b"two"])
        assert files.bookie.stop() == 0
        files.bookie.start()
        client.open(writer.id, password=PASSWORD).close()  # a fence, in the journal alone
        files.bookie.kill()
    files.index(writer.id).unlink()
    assert wait_for_exit(files.bookie) != 0
    told = files.bookie.log_path.read_text()
    assert f"the index file of ledger {writer.id} is gone" in told
    assert f"{REGENERATE} -ledgerIds {writer.id}`" in told
    assert f"{REGENERATE} -ledgerIds {writer.id}`" in files("localconsistencycheck", code=EXIT_FAILURE).out
    files(REGENERATE, "-ledgerIds", writer.id)
    files.bookie.start()
    with connect(files.uri) as client, client.open(writer.id, password=PASSWORD) as ledger:
        assert [entry.payload for entry in ledger.entries()] == [b"one", b"two"]


def test_without_journals_the_password_is_needed_and_given_as_text_or_file_or_base64(
    files: Files, tmp_path: Path
) -> None:
    files.bookie.stop()
    files.index(files.closed).unlink()
    for journal in (files.bookie.journal_directory / "current").glob("*.txn"):
        journal.unlink()
    (files.current / "lastMark").write_bytes(bytes(16))
    refused = files(REGENERATE, "-l", files.closed, code=EXIT_FAILURE)
    assert "give its password (-password, -b64password)" in refused.out
    files(REGENERATE, "-l", files.closed, "-password", "secret", "-dryrun")
    kept = tmp_path / "password"
    kept.write_text("secret\n")
    dry = files(REGENERATE, "-l", files.closed, "--password-file", kept, "-dryrun")
    assert f"would be made: {COUNT} entries" in dry.out
    missing = files(REGENERATE, "-l", files.closed, "--password-file", tmp_path / "none", code=EXIT_FAILURE)
    assert f"--password-file {tmp_path / 'none'}: cannot be read: No such file or directory" in missing.err
    files(REGENERATE, "-l", files.closed, "-b64password", "c2VjcmV0")
    files.bookie.start()
    with connect(files.uri) as client, client.open(files.closed, password=PASSWORD) as ledger:
        assert ledger.last_add_confirmed == COUNT - 1


def test_a_ledger_that_was_deleted_here_comes_back_with_a_word_about_it(files: Files) -> None:
    files.bookie.stop()
    files.index(files.closed).unlink()
    (files.current / FILE_NAME).write_bytes(encode(Tombstone(files.closed, TombstoneKind.DELETED, 1)))
    assert f"ledger {files.closed} was deleted here" in files(REGENERATE, "-l", files.closed).err


def test_a_running_bookies_index_is_not_made_anew(files: Files) -> None:
    assert "Stop the bookie first" in files(REGENERATE, "-l", files.closed, code=EXIT_FAILURE).err
    assert "is no list of ledger ids" in files(REGENERATE, "-l", "a", code=2).err
