"""One bookie's directories handed back and forth between our bookie and a genuine one.

Aim: every byte in journal, entry log, index file, cookie and mark is Apache's. Method: the first owner takes ledgers in
every state and ends, by SIGKILL (then the next replays its journal) or by SIGTERM (then the next reads its entry logs
and index files); the next starts on the same directories with the same id, serves all of it, takes more, ends the same
way; then the first serves everything. Each owner must answer raw reads with the very bytes the one before it answered.
The offline readers read what each left behind in the default layout; the other layout has several ledger directories,
index directories apart, and limits so small that journal and entry logs roll.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from bookkeeper.cli.main import main
from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingWriteHandle, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.errors import LedgerFencedOff
from bookkeeper.wire.codec import request_encoder, v3_encoder
from bookkeeper.wire.messages import ListEntriesReply, ReadBodies
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import MIDDLE, Apache, ApacheBookie, ApacheClient, find_apache
from tests.support.apache.content import payloads
from tests.support.apache.releases import MEMTABLE_BYTES_MAX
from tests.support.cluster import RawClient
from tests.support.zookeeper_sessions import end_dead_session

COUNT = 2500
MORE = 700
LARGE_COUNT = 100
LARGE_SIZE_MAX = 1 << 20
MANY_COUNT = 400
PASSWORD = "pass-word"
KEY = b"k" * 20
SETTINGS = ClientSettings(
    password=PASSWORD.encode(), explicit_lac_interval_s=0.05, read_timeout_base_s=REQUEST_TIMEOUT_S
)
SORTED = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage"}
INTERLEAVED = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "sortedLedgerStorageEnabled": "false",
}
SMALL_LIMITS = {
    "nettyMaxFrameSizeBytes": str(2 << 20),
    "logSizeLimit": str(3 << 20),
    "skipListSizeLimit": str(MEMTABLE_BYTES_MAX),
    "journalMaxSizeMB": "3",
    "journalMaxBackups": "50",
    "journalPreAllocSizeMB": "1",
}


def entries(first: int, end: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(first, end)]


_ports_used: set[int] = set()


def _unused_port() -> int:
    """A port that no bookie of this cluster had before: its cookie would stand in the way of another's directories."""
    port = free_port()
    while port in _ports_used:
        port = free_port()
    _ports_used.add(port)
    return port


class Ledgers:
    """Ledgers in every state a bookie keeps, and what must be there of each."""

    def __init__(self, uri: str, bookie_id: str) -> None:
        self._uri, self._bookie_id = uri, bookie_id
        self._writer, self._reader = connect(uri, SETTINGS), connect(uri, SETTINGS)
        self.closed = self._create(self._writer)
        self.closed.append_many(entries(0, COUNT))
        self.closed.close()
        self.large = self._create(self._writer)
        self.large.append_many(payloads(7, LARGE_COUNT, LARGE_SIZE_MAX))
        self.large.close()
        self._fenced = [self._fence() for _ in range(2)]
        self.open = self._create(self._writer)
        self.open.append_many(entries(0, COUNT))
        # None of its entries says that one before it is confirmed: recovery adds all of them again, packed anew.
        self.abandoned = self._create(self._writer)
        self.abandoned.append_many(entries(0, COUNT))
        # An explicit LAC on the bookie: the tail reads an entry only once it is confirmed.
        self.confirmed = self._create(self._writer)
        self.confirmed.append_many(entries(0, 10))
        with self._reader.open_without_recovery(self.confirmed.id) as tail:
            assert next(tail.tail(9))[-1].entry_id == 9
        self.confirmed.abort()

    def _create(self, client: BlockingBookKeeper) -> BlockingWriteHandle:
        return client.create(ensemble=1, write_quorum=1, ack_quorum=1, bookies=[self._bookie_id])

    def _fence(self) -> BlockingWriteHandle:
        ledger = self._create(self._writer)
        ledger.append_many(entries(0, 10))
        self._reader.open(ledger.id).close()
        return ledger

    @property
    def ids(self) -> list[int]:
        """Of all of them."""
        handles = [self.closed, self.large, *self._fenced, self.open, self.abandoned, self.confirmed]
        return [handle.id for handle in handles]

    def append(self, first: int) -> None:
        """MORE entries to the open ledger, through the handle that was there before the bookie changed."""
        assert self.open.append_many(entries(first, first + MORE)) == range(first, first + MORE)

    def check(self, open_count: int) -> None:
        """Everything is there, as a client sees it that has not talked to this bookie before."""
        with connect(self._uri, SETTINGS) as client:
            with client.open(self.closed.id) as ledger:
                assert [entry.payload for entry in ledger.entries()] == entries(0, COUNT)
            with client.open(self.large.id) as ledger:
                assert [entry.payload for entry in ledger.entries()] == payloads(7, LARGE_COUNT, LARGE_SIZE_MAX)
            with client.open_without_recovery(self.open.id) as ledger:
                found = ledger.read_unconfirmed(0, open_count - 1)
                assert [entry.payload for entry in found] == entries(0, open_count)
            with client.open_without_recovery(self.confirmed.id) as ledger:
                # Asked twice: a genuine bookie that has just started tells an explicit LAC kept in an index file only
                # after something else made it read that file's header (FileInfo.getExplicitLac does not).
                assert ledger.read_last_confirmed() == 9

    def check_fence(self, which: int) -> None:
        """The fence outlived its bookie. Ends the handle, so only once for each of the two."""
        with pytest.raises(LedgerFencedOff):
            self._fenced[which].append(b"too late")

    def recover(self, ledger: BlockingWriteHandle, count: int) -> None:
        """The ledger closes with every entry that was acknowledged."""
        with self._reader.open(ledger.id) as closed:
            assert closed.last_add_confirmed == count - 1
            assert [entry.payload for entry in closed.entries()] == entries(0, count)

    def close(self) -> None:
        self._writer.close()
        self._reader.close()


class RawLedgers:
    """Hundreds of ledgers that only the bookie knows, ids of 31, 32 and up to 60 bits; and raw reads of any."""

    def __init__(self, bookie: LocalBookie) -> None:
        self._bookie = bookie
        self.ids = [(number * 7919 + 1) << 7 * (number % 5) for number in range(1 << 18, (1 << 18) + MANY_COUNT)]

    def add(self, entry_id: int, lac: int, *, recovery: bool = False) -> None:
        """One entry to each."""
        encoder = request_encoder(2)
        with RawClient(self._bookie.port) as raw:
            for ledger_id in self.ids:
                frames = encoder.encode_adds(
                    ledger_id, KEY, [entry_id], [self._body(ledger_id, entry_id, lac)], recovery=recovery
                )[1]
                raw.send(b"".join(frames))
            assert raw.acknowledged(MANY_COUNT) == [entry_id] * MANY_COUNT

    def check(self, count: int) -> None:
        """Each has these entries, whatever LAC they were packed with last."""
        for ledger_id, bodies in self.read({ledger_id: range(count) for ledger_id in self.ids}).items():
            for entry_id, body in enumerate(bodies):
                assert body[:16] + body[24:] == (model := self._body(ledger_id, entry_id, 0))[:16] + model[24:]

    @staticmethod
    def _body(ledger_id: int, entry_id: int, lac: int) -> bytes:
        return struct.pack(">qqqq", ledger_id, entry_id, lac, 7 * entry_id) + b"of %d/%d" % (ledger_id, entry_id)

    def read(self, ranges: Mapping[int, range]) -> dict[int, list[bytes]]:
        """The bytes the bookie has of these entries of these ledgers."""
        found: dict[int, dict[int, bytes]] = {ledger_id: {} for ledger_id in ranges}
        encoder, missing = request_encoder(2), sum(map(len, ranges.values()))
        with RawClient(self._bookie.port) as raw:
            for ledger_id, entry_ids in ranges.items():
                raw.send(encoder.encode_reads(ledger_id, list(entry_ids))[1])
            while missing:
                for answer in raw.receive():
                    assert isinstance(answer, ReadBodies), answer
                    found[answer.ledger_id] |= dict(zip(answer.entry_ids, answer.bodies, strict=True))
                    missing -= len(answer.bodies)
        return {ledger_id: [bodies[entry_id] for entry_id in ranges[ledger_id]] for ledger_id, bodies in found.items()}

    def held(self, ledger_ids: Sequence[int]) -> list[bytes]:
        """Which entries of these ledgers the bookie says it has, as it says so."""
        answers: list[bytes] = []
        with RawClient(self._bookie.port, version=3) as raw:
            for ledger_id in ledger_ids:
                raw.send(v3_encoder().encode_list_entries(ledger_id)[1])
                (answer,) = raw.receive()
                assert isinstance(answer, ListEntriesReply), answer
                assert answer.availability is not None
                answers.append(answer.availability)
        return answers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """No bookies: each test has one of its own, in two persons."""
    with LocalCluster(0, directory=tmp_path_factory.mktemp("directories"), settings=SESSION_TIMEOUT) as cluster:
        yield cluster


def two_directories(directory: Path) -> dict[str, str]:
    """Settings of both kinds: two ledger directories and small files."""
    return {**SMALL_LIMITS, "ledgerDirectories": f"{directory / 'ledgers'},{directory / 'more-ledgers'}"}


def three_directories(directory: Path) -> dict[str, str]:
    """And the index in one of its own."""
    return {**two_directories(directory), "indexDirectories": str(directory / "index")}


class Owners:
    """Two programs for one bookie's directories, one at a time."""

    def __init__(
        self,
        apache: Apache,
        cluster: LocalCluster,
        directory: Path,
        settings: Mapping[str, str],
        storage: Mapping[str, str],
    ) -> None:
        port = _unused_port()
        self.ours = LocalBookie(1, directory, cluster.uri, port, {**SESSION_TIMEOUT, **settings})
        self.genuine = ApacheBookie(apache, directory, cluster.uri, port, {**settings, **storage})
        self.directory = directory
        assert self.genuine.bookie_id == self.ours.bookie_id
        self._journals: set[str] = set()

    def end(self, owner: LocalBookie | ApacheBookie, how: str) -> None:
        """End it, and note the journal files there are."""
        if how == "SIGKILL":
            owner.kill()
        else:
            owner.stop()
        end_dead_session(self.ours.uri, self.ours.bookie_id)
        self._journals |= {path.name for path in self.directory.glob("journal/current/*.txn")}

    def check_rolled(self) -> None:
        """Journal and entry logs did roll (in which directory a log is made is left to chance)."""
        assert len(self._journals) > 3
        logs = [len(list(self.directory.glob(f"{name}/current/*.log"))) for name in ("ledgers", "more-ledgers")]
        assert sum(logs) > 3, logs

    def kill(self) -> None:
        self.ours.kill()
        self.genuine.kill()


Run = Callable[..., None]


@pytest.fixture
def hand_over(cluster: LocalCluster, apache_client: ApacheClient, tmp_path: Path) -> Iterator[Run]:
    """Hands directories from one owner to the other and back."""
    running: list[Owners] = []
    opened: list[Ledgers] = []

    def run(
        owners: Owners, order: Sequence[LocalBookie | ApacheBookie], end: str, left: Callable[[Ledgers], None]
    ) -> None:
        running.append(owners)
        raw = RawLedgers(owners.ours)
        first, second, third = order
        first.start()
        ledgers = Ledgers(cluster.uri, owners.ours.bookie_id)
        opened.append(ledgers)
        for entry_id in (0, 1, 8, 9, 12, 3000):  # with holes
            raw.add(entry_id, entry_id - 1)
        known = [*ledgers.ids, *raw.ids[:20]]
        held = raw.held(known)
        seen = raw.read({ledger_id: range(10) for ledger_id in ledgers.ids})
        owners.end(first, end)
        left(ledgers)

        second.start()
        assert raw.held(known) == held
        assert raw.read({ledger_id: range(10) for ledger_id in ledgers.ids}) == seen
        ledgers.check(COUNT)
        raw.check(2)
        read_by_the_genuine_client(cluster, apache_client, ledgers.closed.id)
        ledgers.check_fence(0)
        ledgers.append(COUNT)
        ledgers.recover(ledgers.abandoned, COUNT)
        # Written again, with another LAC. Which of the two copies is served is nobody's promise: a genuine bookie with
        # sorted storage serves the first until its memtable is flushed, ours until its journal is replayed.
        raw.add(1, 1, recovery=True)
        raw.add(2, 1)
        seen = raw.read({ledger_id: range(10) for ledger_id in ledgers.ids})
        seen |= raw.read({ledger_id: range(2, 3) for ledger_id in raw.ids})
        held = raw.held(known)
        owners.end(second, end)
        left(ledgers)

        third.start()
        assert raw.held(known) == held
        assert raw.read({ledger_id: range(10) for ledger_id in ledgers.ids}) == {
            each: seen[each] for each in ledgers.ids
        }
        assert raw.read({ledger_id: range(2, 3) for ledger_id in raw.ids}) == {each: seen[each] for each in raw.ids}
        ledgers.check(COUNT + MORE)
        raw.check(3)
        ledgers.check_fence(1)
        ledgers.append(COUNT + MORE)
        ledgers.recover(ledgers.open, COUNT + 2 * MORE)
        ledgers.recover(ledgers.abandoned, COUNT)
        read_by_the_genuine_client(cluster, apache_client, ledgers.closed.id)
        owners.end(third, end)

    yield run
    for owners in running:
        owners.kill()
    for ledgers in opened:
        ledgers.close()


def read_by_the_genuine_client(cluster: LocalCluster, apache_client: ApacheClient, ledger_id: int) -> None:
    lines = apache_client.run("read", cluster.uri, 3, "CRC32C", PASSWORD, ledger_id)
    assert [line.encode() for line in lines] == entries(0, COUNT)


ENDS = ("SIGKILL", "SIGTERM")


@pytest.mark.parametrize("end", ENDS)
def test_our_directories_serve_under_a_genuine_bookie_and_under_ours_again(
    apache: Apache,
    cluster: LocalCluster,
    hand_over: Run,
    end: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The default layout, with a look at what each owner leaves."""
    owners = Owners(apache, cluster, tmp_path, {}, SORTED)
    in_entry_logs = iter((end == "SIGTERM", True))

    def left(ledgers: Ledgers) -> None:
        check_offline(owners.ours.conf_path, capfd, ledgers.closed.id, in_entry_logs=next(in_entry_logs))

    hand_over(owners, (owners.ours, owners.genuine, owners.ours), end, left)


@pytest.mark.parametrize("end", ENDS)
def test_our_directories_serve_under_a_genuine_bookie_of_interleaved_storage(
    apache: Apache, cluster: LocalCluster, hand_over: Run, end: str, tmp_path: Path
) -> None:
    owners = Owners(apache, cluster, tmp_path, three_directories(tmp_path), INTERLEAVED)
    hand_over(owners, (owners.ours, owners.genuine, owners.ours), end, lambda _: None)
    owners.check_rolled()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("storage", [SORTED, INTERLEAVED], ids=["sorted", "interleaved"])
def test_genuine_directories_serve_under_our_bookie_and_under_a_genuine_one_again(
    apache: Apache, cluster: LocalCluster, hand_over: Run, storage: Mapping[str, str], end: str, tmp_path: Path
) -> None:
    owners = Owners(apache, cluster, tmp_path, three_directories(tmp_path), storage)
    hand_over(owners, (owners.genuine, owners.ours, owners.genuine), end, lambda _: None)
    owners.check_rolled()


def test_directories_of_an_older_genuine_bookie_serve_under_ours(
    apache_home: Path | None, cluster: LocalCluster, hand_over: Run, tmp_path: Path
) -> None:
    """And under the older one again: cookie, journal and index stay in the versions that it reads.

    Its cookie does not tell index directories: a newer bookie of either kind takes only those that are the ledgers'.
    """
    older = find_apache(apache_home, MIDDLE.version)
    owners = Owners(older, cluster, tmp_path, two_directories(tmp_path), SORTED)
    hand_over(owners, (owners.genuine, owners.ours, owners.genuine), "SIGKILL", lambda _: None)
    owners.check_rolled()


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
