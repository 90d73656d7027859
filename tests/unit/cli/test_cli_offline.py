"""Offline readers without a bookie: what they were not told, or what is not there, is said."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE, LogHeader, encode_header
from bookkeeper.cli.main import main
from bookkeeper.cli.shell.local import lost_text
from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, EXIT_USAGE
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.model import BookieId

READERS = {
    "lastmark": "ledgerDirectories",
    "readjournal": "journalDirectories",
    "readjournal 19abc.txn": "journalDirectories",
    "readlog 0": "ledgerDirectories",
    "readlogmetadata 0": "ledgerDirectories",
    "ledger 7": "ledgerDirectories",
    "listfilesondisc -log": "ledgerDirectories",
    "listfilesondisc": "journalDirectories",
}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `bookkeeper shell`; exit code, output, errors."""
    for name in ("BK_journalDirectories", "BK_ledgerDirectories", "BK_indexDirectories"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: object) -> tuple[int, str, str]:
        code = main(["shell", *map(str, words)])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(("command", "setting"), READERS.items())
def test_where_nobody_said_which_bookie_no_default_directory_is_looked_at(
    shell: Run, command: str, setting: str
) -> None:
    code, out, err = shell(*command.split())
    assert (code, out) == (EXIT_USAGE, "")
    assert "Before the command, give its conf file (--conf FILE), or its directories" in err
    assert f"(-D {setting}=DIR)" in err


@pytest.mark.parametrize(("command", "setting"), READERS.items())
def test_a_directory_without_a_bookies_files_is_named_with_where_it_was_configured(
    shell: Run, tmp_path: Path, command: str, setting: str
) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text(f"# a bookie\njournalDirectories={tmp_path}/absent\nledgerDirectories={tmp_path}/absent\n")
    line = 2 if setting == "journalDirectories" else 3
    code, out, err = shell("--conf", conf, *command.split())
    assert (code, out) == (EXIT_FAILURE, "")
    assert f"{tmp_path}/absent is not there ({setting}, {conf}:{line})" in err
    code, _, err = shell("-D", f"{setting}={tmp_path}", *command.split())
    assert code == EXIT_FAILURE
    assert f"{tmp_path} was never used by a bookie: it has no `current` ({setting}, command line)" in err


def test_one_missing_directory_does_not_hide_the_others(shell: Run, tmp_path: Path) -> None:
    (tmp_path / "good" / "current").mkdir(parents=True)
    (tmp_path / "good" / "current" / "0.log").touch()
    code, out, err = shell("-D", f"ledgerDirectories={tmp_path}/gone,{tmp_path}/good", "listfilesondisc", "-log")
    assert code == EXIT_OK
    assert f"{tmp_path}/good/current/0.log" in out
    assert f"{tmp_path}/gone is not there" in err
    _, out, _ = shell("-D", f"ledgerDirectories={tmp_path}/good", "listfilesondisc", "-log", "--json")
    assert json.loads(out) == {"kind": "entry log", "path": f"{tmp_path}/good/current/0.log"}


def test_a_mark_that_was_never_stored_is_not_printed(shell: Run, tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    code, out, err = shell("-D", f"ledgerDirectories={tmp_path}", "-D", "journalDirectories=/j", "lastmark")
    assert code == EXIT_OK
    assert out.splitlines()[1].split() == ["/j", "-", "-", "-"]
    assert f"/j has no mark: its bookie has stored nothing yet; looked for lastMark in {tmp_path}/current" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["readlog", "{}/0.log"], "there is no entry log {}/0.log"),
        (["readlogmetadata", "{}/0.log"], "there is no entry log {}/0.log"),
        (["readlog", "{}"], "there is no entry log {}"),
        (["readjournal", "{}/7.txn"], "there is no journal file {}/7.txn"),
        (["readjournal", "{}/absent/7.txn"], "{}/absent is no directory; name a journal file or its directory (-d)"),
        (["readjournal", "-d", "{}/absent"], "{}/absent is no directory; name a journal file or its directory (-d)"),
        (["readjournal", "-d", "{}"], "{} holds no journal file"),
    ],
)
def test_a_file_that_is_not_there_is_named(shell: Run, tmp_path: Path, words: list[str], says: str) -> None:
    code, out, err = shell(*(word.format(tmp_path) for word in words))
    assert (code, out) == (EXIT_FAILURE, "")
    assert err == f"bookkeeper: {says.format(tmp_path)}\n"


def test_a_log_whose_ledgers_map_is_not_one_is_scanned(shell: Run, tmp_path: Path) -> None:
    """And it is said why. Apache's bookies leave such logs."""
    (tmp_path / "current").mkdir()
    records = [struct.pack(">iqqqq", 32, ledger_id, 0, -1, 0) for ledger_id in (1, 2)]
    header = encode_header(LogHeader(map_offset=HEADER_SIZE + len(records[0]), ledger_count=2))
    (tmp_path / "current" / "0.log").write_bytes(header + b"".join(records))
    code, out, err = shell("-D", f"ledgerDirectories={tmp_path}", "readlogmetadata", "0")
    assert code == EXIT_OK
    assert [line.split() for line in out.splitlines()[1:]] == [["1", "36"], ["2", "36"]]
    assert "ledger 2 entry 0 inside the ledgers map" in err


def test_what_an_emptied_bookie_loses_is_counted_past_stray_records() -> None:
    """A stray record is named, and is a reason to ask even if no ledger names the bookie: it may stand for a ledger."""
    bookie_id, none, stray = BookieId("b:3181"), BadRecords(), BadRecords()
    stray.add("/ledgers/00/stray", "no ledger id")
    assert lost_text(bookie_id, 0, none) == ""
    assert lost_text(bookie_id, 2, none).startswith("2 ledgers name b:3181 as a holder of copies")
    assert lost_text(bookie_id, 2, stray).endswith("of them; 1 record among the ledgers cannot be read")
    assert "/ledgers/00/stray" in lost_text(bookie_id, 0, stray)
