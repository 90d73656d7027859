"""One bookie's directories handed back and forth between our bookie and a genuine one.

Aim: every byte in journal, entry log, index file, cookie and mark is Apache's. Method: a bookie of ours takes ledgers
in every state and ends, by SIGKILL (then the other replays its journal, group records included) or by SIGTERM (then the
other reads its entry logs and index files); a genuine bookie starts on the same directories with the same id, serves
all of it, takes more, ends the same way; ours starts again and serves everything. The offline readers read each state.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bookkeeper.cli.main import main
from bookkeeper.client.blocking import BlockingBookKeeper, BlockingWriteHandle, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import LedgerFencedOff
from tests.interop.conftest import SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie

COUNT = 2500
MORE = 700
PASSWORD = b"pass-word"
SETTINGS = ClientSettings(password=PASSWORD, explicit_lac_interval_s=0.05)


def entries(first: int, end: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(first, end)]


class Ledgers:
    """Ledgers in every state a bookie keeps, and what must be there of each."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._writer, self._reader = connect(uri, SETTINGS), connect(uri, SETTINGS)
        self.closed = self._create(self._writer)
        self.closed.append_many(entries(0, COUNT))
        self.closed.close()
        self.fenced = self._create(self._writer)
        self.fenced.append_many(entries(0, 10))
        self._reader.open(self.fenced.id).close()
        self.open = self._create(self._writer)
        self.open.append_many(entries(0, COUNT))
        # An explicit LAC on the bookie: the tail reads an entry only once it is confirmed.
        self.confirmed = self._create(self._writer)
        self.confirmed.append_many(entries(0, 10))
        with self._reader.open_without_recovery(self.confirmed.id) as tail:
            assert next(tail.tail(9))[-1].entry_id == 9
        self.confirmed.abort()

    @staticmethod
    def _create(client: BlockingBookKeeper) -> BlockingWriteHandle:
        return client.create(ensemble=1, write_quorum=1, ack_quorum=1)

    def append(self, first: int) -> None:
        """MORE entries to the open ledger, through the handle that was there before the bookie changed."""
        assert self.open.append_many(entries(first, first + MORE)) == range(first, first + MORE)

    def check(self, open_count: int) -> None:
        """Everything is there, as a client sees it that has not talked to this bookie before."""
        with connect(self._uri, SETTINGS) as client:
            with client.open(self.closed.id) as ledger:
                assert [entry.payload for entry in ledger.entries()] == entries(0, COUNT)
            with client.open_without_recovery(self.open.id) as ledger:
                found = ledger.read_unconfirmed(0, open_count - 1)
                assert [entry.payload for entry in found] == entries(0, open_count)
            with client.open_without_recovery(self.confirmed.id) as ledger:
                # Asked twice: a genuine bookie that has just started tells an explicit LAC kept in an index file only
                # after something else made it read that file's header (FileInfo.getExplicitLac does not).
                assert ledger.read_last_confirmed() == 9

    def check_fence(self) -> None:
        """The fence outlived its bookie. Ends the handle, so only once."""
        with pytest.raises(LedgerFencedOff):
            self.fenced.append(b"too late")

    def recover(self, count: int) -> None:
        """The open ledger closes with every entry that was acknowledged."""
        with self._reader.open(self.open.id) as ledger:
            assert ledger.last_add_confirmed == count - 1
            assert [entry.payload for entry in ledger.entries()] == entries(0, count)

    def close(self) -> None:
        self._writer.close()
        self._reader.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(1, directory=tmp_path, settings=SESSION_TIMEOUT) as cluster:
        yield cluster


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
def test_a_bookies_directories_serve_under_a_genuine_bookie_and_under_ours_again(
    apache: Apache, cluster: LocalCluster, end: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = cluster.bookies[0]
    genuine = ApacheBookie(apache, ours.directory, cluster.uri, ours.port)
    assert genuine.bookie_id == ours.bookie_id
    ledgers = Ledgers(cluster.uri)
    try:
        _end(end, ours.kill, ours.stop)
        check_offline(ours.conf_path, capfd, ledgers.closed.id, in_entry_logs=end == "SIGTERM")
        genuine.start()
        ledgers.check(COUNT)
        ledgers.append(COUNT)
        _end(end, genuine.kill, genuine.stop)
        check_offline(ours.conf_path, capfd, ledgers.closed.id, in_entry_logs=True)
        ours.start()
        ledgers.check(COUNT + MORE)
        ledgers.check_fence()
        ledgers.append(COUNT + MORE)
        ledgers.recover(COUNT + 2 * MORE)
    finally:
        genuine.kill()
        ledgers.close()


def test_a_fence_of_ours_holds_under_a_genuine_bookie(apache: Apache, cluster: LocalCluster) -> None:
    ours = cluster.bookies[0]
    genuine = ApacheBookie(apache, ours.directory, cluster.uri, ours.port)
    ledgers = Ledgers(cluster.uri)
    try:
        ours.kill()
        genuine.start()
        ledgers.check_fence()
        ledgers.recover(COUNT)
    finally:
        genuine.kill()
        ledgers.close()


def _end(how: str, kill: Callable[[], None], stop: Callable[[], int]) -> None:
    if how == "SIGKILL":
        kill()
    else:
        stop()


def check_offline(conf: Path, capfd: pytest.CaptureFixture[str], ledger_id: int, *, in_entry_logs: bool) -> None:
    """The offline readers find what a bookie left, whichever wrote it."""
    journal = shell(conf, capfd, "readjournal")
    if not in_entry_logs:
        assert f"entry: ledger {ledger_id} entry {COUNT - 1} " in journal
        return
    assert shell(conf, capfd, "lastmark").count(".txn") == 1
    logs = [line.split()[-1] for line in shell(conf, capfd, "listfilesondisc", "-log").splitlines()]
    found = [shell(conf, capfd, "readlog", "-l", str(ledger_id), log) for log in logs]
    assert "".join(found).count(f"ledger {ledger_id} entry ") == COUNT
    holders = [shell(conf, capfd, "readlogmetadata", log).splitlines()[1:] for log in logs]
    assert any(line.split()[0] == str(ledger_id) for lines in holders for line in lines)
    assert f"/{ledger_id:x}.idx" in shell(conf, capfd, "listfilesondisc", "-idx")
    index = shell(conf, capfd, "ledger", str(ledger_id))
    assert index.count("entry ") == COUNT


def shell(conf: Path, capfd: pytest.CaptureFixture[str], *words: str) -> str:
    capfd.readouterr()
    assert main(["shell", "--conf", str(conf), *words]) == 0
    return capfd.readouterr().out
