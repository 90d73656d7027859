"""Our journal on ledgers beside Hadoop's: either reads, tails, fences, finalises and continues what the other wrote.

Hadoop's side is the genuine ledger client that its journal manager carries, 4.2.3, and znodes made and compared byte by
byte (tests/support/bkjm.py). On our bookies, on genuine ones of 4.2.3, and on both in one ensemble.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat
from twisted.internet import reactor

from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from journalmgr.contract import JournalManager, SegmentWriter
from journalmgr.edits.codec import encode
from journalmgr.edits.fields import Block, Permission
from journalmgr.edits.frame import encode_record
from journalmgr.edits.ops import AnyOp, Close, EndLogSegment, Mkdir, StartLogSegment
from journalmgr.errors import (
    JournalError,
    JournalUnavailable,
    SegmentUnreadable,
    StreamFailed,
    TransactionTooLarge,
    WriterReplaced,
)
from journalmgr.ledger import LedgerJournal, LedgerJournalSettings, connect
from journalmgr.model import HADOOP_2_7, NamespaceInfo, TxId
from journalmgr.spark.edit_options import read_edit_options
from journalmgr.spark.edit_source import EditLogReader
from tests.conftest import ZooKeeperServer
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import CLASSIC, ApacheClient, ApacheError, find_apache, running_bookies
from tests.support.apache.content import fingerprints
from tests.support.bkjm import Bkjm, Refused, txids
from tests.support.journal_contract import raises
from tests.support.recorded_edits import ENTRIES, OPCODES

CODE_NO_SUCH_LEDGER = -7
CODE_FENCED = -101
CODE_WRONG_PASSWORD = -102
SECRET = "digest-pw"
HOSTNAME = "here/127.0.0.1"
NAMESPACE = NamespaceInfo(
    1234567, "CID-8b3e", "BP-1-127.0.0.1-1421135800377", build_version="Unknown", software_version="2.7.2"
)
VERSION = """\
layoutVersion: -1
namespaceInfo {
  buildVersion: "Unknown"
  unused: 0
  blockPoolID: "BP-1-127.0.0.1-1421135800377"
  storageInfo {
    layoutVersion: 4294967233
    namespceID: 1234567
    clusterID: "CID-8b3e"
    cTime: 0
  }
  softwareVersion: "2.7.2"
  capabilities: 1
}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Bookies, and where their ledgers' metadata is. v2: the only protocol that genuine 4.2.3 bookies speak."""

    zookeeper: str
    root: str
    flat: bool
    v2: bool

    @property
    def uri(self) -> str:
        return f"zk+{'flat' if self.flat else 'hierarchical'}://{self.zookeeper}{self.root}"

    def metadata_path(self, ledger_id: int) -> str:
        """Of a ledger's metadata."""
        digits = f"{ledger_id:010d}"
        return f"{self.root}/" + (f"L{digits}" if self.flat else f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}")


class PlacedCluster(LocalCluster):
    """A cluster of either layout."""

    def __init__(self, place: Place, count: int, directory: Path) -> None:
        super().__init__(
            count, directory=directory, zookeeper=place.zookeeper, root=place.root, settings=SESSION_TIMEOUT
        )
        self._place = place

    @property
    def uri(self) -> str:
        return self._place.uri


KINDS = {
    "our bookies, hierarchical": (3, 0),
    "genuine bookies, flat": (0, 3),
    "both, flat": (2, 1),
}
"""How many of ours and of theirs; every ledger is on three."""
OURS = "our bookies, hierarchical"


@pytest.fixture(scope="module")
def places(
    apache_home: Path | None, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Place]]:
    """Started at first need."""
    started: dict[str, Place] = {}
    with ExitStack() as running:

        def place_of(kind: str) -> Place:
            if kind not in started:
                ours, theirs = KINDS[kind]
                directory = tmp_path_factory.mktemp("place")
                place = Place(zookeeper.address, f"/{directory.name}-{os.getpid()}", "flat" in kind, theirs > 0)
                running.enter_context(PlacedCluster(place, ours, directory))
                if theirs:
                    classic = find_apache(apache_home, CLASSIC.version)
                    running.enter_context(running_bookies(classic, directory, place.uri, theirs))
                started[kind] = place
            return started[kind]

        yield place_of


@pytest.fixture(params=KINDS, ids=lambda kind: kind.replace(", ", "-").replace(" ", "-"))
def place(request: pytest.FixtureRequest, places: Callable[[str], Place]) -> Place:
    return places(request.param)


@pytest.fixture(scope="module")
def znodes(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """ZooKeeper without anything of ours between."""
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


_roots = itertools.count(1)


class Beside:
    """One journal, with processes of ours that open it and a genuine journal manager beside them."""

    def __init__(self, place: Place, bkjm: Bkjm, root: str, password: str) -> None:
        self.place, self.theirs, self.root = place, bkjm, root
        self._password = password
        self._opened: list[LedgerJournal] = []

    async def open(self, **settings: Any) -> LedgerJournal:
        """A process of ours. No explicit LAC: a reader shall hear of entries as from Hadoop's writer."""
        journal = await connect(
            [self.place.zookeeper],
            self.root,
            reactor,
            NAMESPACE,
            LedgerJournalSettings(
                **{"available_path": f"{self.place.root}/available", "password": self._password.encode(), **settings}
            ),
            ClientSettings(use_v2=self.place.v2, explicit_lac_interval_s=0, read_timeout_base_s=REQUEST_TIMEOUT_S),
            ledgers_root=self.place.root,
            hostname=HOSTNAME,
        )
        self._opened.append(journal)
        return journal

    async def formatted(self, **settings: Any) -> LedgerJournal:
        """The first process of ours."""
        journal = await self.open(**settings)
        await journal.format(NAMESPACE)
        await journal.recover_unfinalized()
        return journal

    async def close(self) -> None:
        for journal in self._opened:
            await journal.close()


NewJournal = Callable[..., Beside]


@pytest_twisted.async_yield_fixture
async def new_journal(apache_clients: Callable[[str], ApacheClient], znodes: KazooClient) -> AsyncIterator[NewJournal]:
    """Makes journals that are not formatted yet."""
    made: list[Beside] = []

    def make(place: Place, password: str = "") -> Beside:
        root = f"/hdfsjournal-{os.getpid()}-{next(_roots)}"
        bkjm = Bkjm(apache_clients(CLASSIC.version), znodes, place.uri, root, password)
        made.append(Beside(place, bkjm, root, password))
        return made[-1]

    yield make
    for journal in made:
        await journal.close()


def records_of(*ops: AnyOp, first: int) -> list[bytes]:
    """Their records, with consecutive txids."""
    for txid, op in enumerate(ops, first):
        op.txid = txid
    return [encode(op, HADOOP_2_7) for op in ops]


def edits(first: int, last: int) -> list[bytes]:
    """A segment: its start, directories, its end."""
    made = [Mkdir(16386 + n, f"/directory-{n}", n, n, Permission("us", "all", 0o755)) for n in range(first, last - 1)]
    return records_of(StartLogSegment(), *made, EndLogSegment(), first=first)


async def flush(writer: SegmentWriter, *records: bytes) -> None:
    """Write and make durable."""
    writer.write(records)
    writer.set_ready_to_flush()
    await writer.flush()


def split(entry: bytes) -> list[bytes]:
    """The records of a recorded entry."""
    return [entry[:68], entry[68:]] if entry == ENTRIES[1] else [entry]


async def write_recorded(writer: SegmentWriter, *entries: bytes) -> None:
    """Flush after flush as the genuine name node did."""
    for entry in entries:
        await flush(writer, *split(entry))


async def read_records(journal: JournalManager, first: int, *, in_progress_ok: bool = False) -> list[bytes]:
    """All that can be read from there on, as bytes."""
    found: list[bytes] = []
    for reader in await journal.select_input_streams(TxId(first), in_progress_ok=in_progress_ok):
        while (batch := await reader.next()) is not None:
            found += [encode_record(record.opcode, record.txid, record.body) for record in batch.records]
        await reader.close()
    return found


async def ledger_id_of(journal: JournalManager, first: int) -> int:
    (ledger_id,) = (segment.ledger_id for segment in await journal.segments() if segment.first_txid == first)
    assert ledger_id is not None
    return ledger_id


def refused(call: Callable[[], object]) -> int:
    """The code with which the genuine client fails."""
    with pytest.raises(ApacheError) as error:
        call()
    return error.value.code


# --- what we write, read by the genuine client


@pytest.mark.parametrize("password", ["", SECRET], ids=["no password", "a password"])
@pytest_twisted.ensureDeferred
async def test_the_genuine_client_reads_our_segment_entry_by_entry(
    place: Place, new_journal: NewJournal, znodes: KazooClient, password: str
) -> None:
    beside = new_journal(place, password)
    journal = await beside.formatted()
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)
    await write_recorded(writer, *ENTRIES)
    await journal.finalize_segment(TxId(1), TxId(9))
    (segment,) = beside.theirs.segments()
    assert (segment.name, segment.version) == ("edits_000000000000000001_000000000000000009", 0)
    assert beside.theirs.entries(segment.ledger_id) == ENTRIES
    # And the ledger's record is the genuine client's, but for the bookies.
    theirs = new_journal(place, password).theirs
    theirs.format(VERSION)
    twin = theirs.start(1)
    theirs.add(*ENTRIES)
    theirs.finalise(1, 9)
    ours_text, theirs_text = (
        [line for line in znodes.get(place.metadata_path(ledger))[0].splitlines() if b"ensembleMember" not in line]
        for ledger in (segment.ledger_id, twin)
    )
    assert ours_text == theirs_text
    assert ours_text[0] == b"BookieMetadataFormatVersion\t2"
    assert {b"lastEntryId: 7", b"state: CLOSED", b"digestType: HMAC", b'password: "%s"' % password.encode()} <= set(
        ours_text
    )


@pytest_twisted.ensureDeferred
async def test_entries_that_the_buffer_cuts_hold_whole_records(place: Place, new_journal: NewJournal) -> None:
    """With Hadoop's buffer size, and its rule: an entry leaves once it holds more than that."""
    beside = new_journal(place)
    journal = await beside.formatted(output_buffer_size=1024)
    records = edits(1, 400)
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)
    await flush(writer, *records)
    await journal.finalize_segment(TxId(1), TxId(400))
    entries = beside.theirs.entries(await ledger_id_of(journal, 1))
    assert b"".join(entries) == b"".join(records)
    assert list(itertools.chain.from_iterable(map(txids, entries))) == list(range(1, 401))
    assert all(1024 < len(entry) <= 1024 + max(map(len, records)) for entry in entries[:-1])
    assert len(entries) > 20


@pytest_twisted.ensureDeferred
async def test_the_genuine_reader_of_our_open_segment_sees_the_lac_and_disturbs_nothing(
    place: Place, new_journal: NewJournal
) -> None:
    beside = new_journal(place)
    journal = await beside.formatted()
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)
    await write_recorded(writer, *ENTRIES[:4])
    ledger_id = await ledger_id_of(journal, 1)
    assert beside.theirs.watch(ledger_id) == 2  # the last entry's own LAC says so much
    assert beside.theirs.confirmed(ledger_id) == fingerprints(ENTRIES[:3])
    await write_recorded(writer, *ENTRIES[4:])
    assert beside.theirs.lac(ledger_id) == 6
    await journal.finalize_segment(TxId(1), TxId(9))
    assert beside.theirs.entries(ledger_id) == ENTRIES


@pytest_twisted.ensureDeferred
async def test_a_wrong_password_is_refused_by_either(place: Place, new_journal: NewJournal) -> None:
    beside = new_journal(place, SECRET)
    journal = await beside.formatted()
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)
    await write_recorded(writer, *ENTRIES)
    await journal.finalize_segment(TxId(1), TxId(9))
    ledger_id = await ledger_id_of(journal, 1)
    assert refused(partial(new_journal(place, "other").theirs.entries, ledger_id)) == CODE_WRONG_PASSWORD
    stranger = await beside.open(password=b"")
    await raises(SegmentUnreadable, stranger.select_input_streams(TxId(1)))
    assert beside.theirs.entries(ledger_id) == ENTRIES


@pytest_twisted.ensureDeferred
async def test_the_largest_record_goes_through_and_a_larger_one_is_refused_before(
    place: Place, new_journal: NewJournal
) -> None:
    """A file of some 43 000 blocks is closed."""
    beside = new_journal(place)
    journal = await beside.formatted()
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)

    def closing(size: int) -> bytes:
        blocks = tuple(Block(1 << 40 | number, 1 << 40, 1 << 40) for number in range(CLASSIC.entry_size_max // 24 - 20))
        (bare,) = records_of(Close(path="/", blocks=blocks), first=2)
        (record,) = records_of(Close(path="/" + "f" * (size - len(bare)), blocks=blocks), first=2)
        assert len(record) == size
        return record

    await flush(writer, ENTRIES[0])
    with pytest.raises(TransactionTooLarge, match=f"takes {writer.record_size_max}"):
        writer.write([closing(writer.record_size_max + 1)])
    # The bound is less than a quarter of a KiB below what a genuine bookie takes, on all kinds.
    assert 0 <= CLASSIC.entry_size_max - writer.record_size_max < 256
    largest = closing(writer.record_size_max)
    await flush(writer, largest)
    (end,) = records_of(EndLogSegment(), first=3)
    await flush(writer, end)
    await journal.finalize_segment(TxId(1), TxId(3))
    assert beside.theirs.holds(await ledger_id_of(journal, 1), [ENTRIES[0], largest, end])
    assert await read_records(journal, 1) == [ENTRIES[0], largest, end]


# --- the same, in turn


@pytest_twisted.ensureDeferred
async def test_we_read_tail_recover_and_continue_what_the_genuine_one_wrote(
    place: Place, new_journal: NewJournal
) -> None:
    beside = new_journal(place)
    theirs = beside.theirs
    theirs.format(VERSION)
    journal = await beside.open()
    assert await journal.namespace() == NAMESPACE
    first_ledger = theirs.start(1)
    theirs.add(*ENTRIES)
    theirs.finalise(1, 9)
    theirs.start(10)
    open_records = edits(10, 19)
    theirs.add(open_records[0], b"".join(open_records[1:4]), open_records[4])
    # Finalised ones whole, what is open up to the LAC, which is one entry behind.
    closed_records = [record for entry in ENTRIES for record in split(entry)]
    assert [str(segment) for segment in await journal.segments()] == [
        "1..9 (edits_000000000000000001_000000000000000009)",
        "10..in progress (inprogress_a)",
    ]
    assert await read_records(journal, 1) == closed_records
    assert await read_records(journal, 1, in_progress_ok=True) == closed_records + open_records[:4]
    tail = journal.tail(TxId(3))
    tailed: list[int] = []

    async def tail_to(last: int) -> None:
        while not tailed or tailed[-1] < last:
            batch = await tail.next()
            tailed.extend(record.txid for record in batch.records)
            assert tailed[-1] <= last

    await tail_to(13)
    theirs.add(open_records[5])
    await tail_to(14)
    # Ours takes over: the genuine writer, which nobody disturbed so far, is fenced.
    theirs.add(open_records[6])
    (recovered,) = await journal.recover_unfinalized()
    assert (recovered.first_txid, recovered.last_txid) == (10, 16)
    assert refused(lambda: theirs.add(open_records[7])) == CODE_FENCED
    await tail_to(16)
    assert tailed == list(range(3, 17))
    assert (theirs.current()[0], theirs.max_txid()) == (None, 16)
    # Ours continues, and so does the genuine one behind it.
    writer = await journal.start_segment(TxId(17), HADOOP_2_7)
    with pytest.raises(Refused, match="Inprogress node already exists"):
        theirs.start(18)
    await flush(writer, *edits(17, 20))
    await journal.finalize_segment(TxId(17), TxId(20))
    theirs.start(21)
    theirs.add(*edits(21, 24))
    theirs.finalise(21, 24)
    await tail_to(24)
    await tail.stop()
    assert b"".join(await read_records(journal, 10)) == b"".join(open_records[:7] + edits(17, 20) + edits(21, 24))
    # What a checkpoint covers goes, ledgers of either.
    assert [segment.last_txid for segment in await journal.purge_older_than(TxId(18))] == [9, 16]
    assert [(segment.first_txid, segment.last_txid) for segment in theirs.segments()] == [(17, 20), (21, 24)]
    for gone in (first_ledger, recovered.ledger_id):
        assert gone is not None
        assert refused(partial(theirs.entries, gone)) == CODE_NO_SUCH_LEDGER


def test_spark_reads_what_the_genuine_one_wrote_and_disturbs_nothing(place: Place, new_journal: NewJournal) -> None:
    theirs = new_journal(place, SECRET).theirs
    theirs.format(VERSION)
    first_ledger = theirs.start(1)
    theirs.add(*ENTRIES)
    theirs.finalise(1, 9)
    theirs.start(10)
    open_records = edits(10, 19)
    theirs.add(open_records[0], b"".join(open_records[1:4]), open_records[4])
    options = {
        "journal": f"bookkeeper://{place.zookeeper}{theirs.root}",
        "zkLedgersRootPath": place.root,
        "useV2WireProtocol": str(place.v2).lower(),
        "password": SECRET,
    }
    reader = EditLogReader(read_edit_options(options))
    rows = [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]
    assert [row["txid"] for row in rows] == list(range(1, 14))  # of the open segment up to the LAC
    assert [row["opcode"] for row in rows[:9]] == OPCODES
    assert [row["path"] for row in rows[1:8]] == ["/a", "/a/b", "/c", "/a/b/f0", "/a/b/f0", "/c", "/a/b/f0"]
    assert (rows[4]["owner"], rows[4]["client_machine"], rows[4]["replication"]) == ("root", "127.0.0.1", 3)
    assert {(row["ledger_id"], row["layout_version"]) for row in rows[:9]} == {(first_ledger, -63)}
    assert [row["entry_id"] for row in rows[:9]] == [0, 1, 1, 2, 3, 4, 5, 6, 7]
    theirs.add(open_records[5])


@pytest_twisted.ensureDeferred
async def test_the_genuine_recovery_fences_our_writer_and_continues(place: Place, new_journal: NewJournal) -> None:
    """I-80: what was acknowledged is there, and nothing is acknowledged afterwards."""
    beside = new_journal(place)
    theirs = beside.theirs
    journal = await beside.formatted()
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)
    await write_recorded(writer, *ENTRIES[:5])
    assert theirs.recover() == [6]
    writer.write(split(ENTRIES[5]))
    writer.set_ready_to_flush()
    await raises(WriterReplaced, writer.flush())
    with pytest.raises(StreamFailed):
        writer.write(split(ENTRIES[6]))
    (segment,) = theirs.segments()
    assert theirs.entries(segment.ledger_id) == ENTRIES[:5]
    theirs.start(7)
    theirs.add(*ENTRIES[5:])
    theirs.finalise(7, 9)
    # The replaced one reads what happened and goes on behind it.
    assert await journal.recover_unfinalized() == []
    assert await read_records(journal, 1) == [record for entry in ENTRIES for record in split(entry)]
    writer = await journal.start_segment(TxId(10), HADOOP_2_7)
    await flush(writer, *edits(10, 12))
    await journal.finalize_segment(TxId(10), TxId(12))
    assert [(one.first_txid, one.last_txid) for one in theirs.segments()] == [(1, 6), (7, 9), (10, 12)]


@pytest_twisted.ensureDeferred
async def test_the_genuine_recovery_of_our_empty_segment_fences_its_writer(
    place: Place, new_journal: NewJournal
) -> None:
    """It leaves a pointer to a segment that is gone; the txid is used again."""
    beside = new_journal(place)
    journal = await beside.formatted()
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)
    assert beside.theirs.recover() == []
    writer.write(edits(1, 4))
    writer.set_ready_to_flush()
    await raises(WriterReplaced, writer.flush())
    assert (beside.theirs.current()[0], beside.theirs.max_txid()) == (f"{beside.root}/ledgers/inprogress_1", 0)
    assert await journal.recover_unfinalized() == []
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)
    await write_recorded(writer, *ENTRIES)
    await journal.finalize_segment(TxId(1), TxId(9))
    assert beside.theirs.entries(await ledger_id_of(journal, 1)) == ENTRIES
    assert beside.theirs.current()[0] is None


@pytest_twisted.ensureDeferred
async def test_what_a_genuine_finalise_left_half_done_is_completed(
    places: Callable[[str], Place], new_journal: NewJournal, znodes: KazooClient
) -> None:
    """It creates the one record, then deletes the other; between the two, both are listed."""
    beside = new_journal(places(OURS))
    theirs = beside.theirs
    journal = await beside.formatted()
    theirs.start(1)
    theirs.add(*ENTRIES)
    in_progress, _ = znodes.get(theirs.path_of("inprogress_1"))
    pointer, _ = znodes.get(theirs.current_path)
    theirs.finalise(1, 9)
    znodes.create(theirs.path_of("inprogress_1"), in_progress)
    znodes.set(theirs.current_path, pointer)
    assert [segment.last_txid for segment in await journal.segments()] == [9]
    assert [segment.last_txid for segment in await journal.recover_unfinalized()] == [9]
    assert [segment.name for segment in theirs.segments()] == ["edits_000000000000000001_000000000000000009"]
    assert theirs.current()[0] is None


# --- znodes


class Recorded:
    """A journal's znodes as ZooKeeper has them, compared with those of the genuine run (journalmgr/FORMATS.md 11.2)."""

    def __init__(self, znodes: KazooClient, root: str) -> None:
        self._znodes, self._root = znodes, root

    def names(self) -> list[str]:
        """Of all of them, below the root."""
        return sorted(
            [*self._znodes.get_children(self._root)]
            + [f"ledgers/{name}" for name in self._znodes.get_children(f"{self._root}/ledgers")]
        )

    def check(self, name: str, data: str | None, version: int) -> None:
        """Data, null where None, and how often it was changed; everybody's, and nobody's session's."""
        path = f"{self._root}/{name}".removesuffix("/")
        found, stat = self._znodes.get(path)
        assert found == (None if data is None else data.encode()), name
        assert isinstance(stat, ZnodeStat)
        assert (stat.version, stat.ephemeralOwner) == (version, 0), name
        (acl,), acl_stat = self._znodes.get_acls(path)
        assert (acl.id.scheme, acl.id.id, acl.perms, acl_stat.aversion) == ("world", "anyone", 31, 0), name


def segment_text(ledger_id: int, first: int, last: int | None = None) -> str:
    text = f"dataLayoutVersion: -63\nledgerId: {ledger_id}\nfirstTxId: {first}\n"
    return text if last is None else f"{text}lastTxId: {last}\n"


@pytest_twisted.ensureDeferred
async def test_our_znodes_are_those_of_the_genuine_run(
    places: Callable[[str], Place], new_journal: NewJournal, znodes: KazooClient
) -> None:
    """Texts, null data, data versions, ACL and owner after each step of journalmgr/FORMATS.md 11.2."""
    beside = new_journal(places(OURS))
    found = Recorded(znodes, beside.root)
    journal = await beside.open()

    def check_pointer(in_progress: str | None, version: int) -> None:
        named = f'path: "{beside.root}/ledgers/{in_progress}"\nhostname: "{HOSTNAME}"\n'
        found.check("CurrentInprogress", named if in_progress else None, version)

    async def start(first: int) -> tuple[SegmentWriter, int]:
        writer = await journal.start_segment(TxId(first), HADOOP_2_7)
        ledger_id = await ledger_id_of(journal, first)
        found.check(f"ledgers/inprogress_{first:x}", segment_text(ledger_id, first), 0)
        return writer, ledger_id

    await journal.format(NAMESPACE)
    assert found.names() == ["ledgers", "version"]
    found.check("", "0", 0)
    found.check("ledgers", "0", 0)
    found.check("version", VERSION, 0)

    await journal.recover_unfinalized()
    assert found.names() == ["CurrentInprogress", "ledgers", "version"]
    check_pointer(None, 0)

    writer, ledger_id = await start(1)
    found.check("maxtxid", "txId: 1\n", 0)
    check_pointer("inprogress_1", 1)

    await write_recorded(writer, *ENTRIES)
    await journal.finalize_segment(TxId(1), TxId(9))
    edits_1_9 = "ledgers/edits_000000000000000001_000000000000000009"
    assert found.names() == ["CurrentInprogress", "ledgers", edits_1_9, "maxtxid", "version"]
    found.check(edits_1_9, segment_text(ledger_id, 1, 9), 0)
    found.check("maxtxid", "txId: 9\n", 1)
    check_pointer(None, 2)

    writer, ledger_id = await start(10)
    found.check("maxtxid", "txId: 10\n", 2)
    check_pointer("inprogress_a", 3)
    await flush(writer, *edits(10, 11))

    journal = await beside.open()  # and the first one is not heard of any more
    await journal.recover_unfinalized()
    found.check("ledgers/edits_000000000000000010_000000000000000011", segment_text(ledger_id, 10, 11), 0)
    found.check("maxtxid", "txId: 11\n", 3)
    check_pointer(None, 4)

    writer, ledger_id = await start(12)
    check_pointer("inprogress_c", 5)
    await flush(writer, *records_of(StartLogSegment(), first=12))
    await journal.finalize_segment(TxId(12), TxId(12))
    found.check("ledgers/edits_000000000000000012_000000000000000012", segment_text(ledger_id, 12, 12), 0)
    found.check("maxtxid", "txId: 12\n", 4)  # only if greater: the start said so already
    check_pointer(None, 6)

    writer, _ = await start(13)
    journal = await beside.open()
    assert await journal.recover_unfinalized() == []
    found.check("maxtxid", "txId: 12\n", 6)  # an empty segment lowers it by one
    assert beside.theirs.current()[0] is None
    with pytest.raises(NoNodeError):
        znodes.get(f"{beside.root}/ledgers/inprogress_d")
    assert [each.name for each in beside.theirs.segments()] == [
        name.removeprefix("ledgers/") for name in found.names() if name.startswith("ledgers/")
    ]
    # The genuine one takes it from there, and its next segment has the txid that nobody used.
    beside.theirs.start(13)
    found.check("maxtxid", "txId: 13\n", 7)


@pytest_twisted.ensureDeferred
async def test_a_client_set_to_v3_is_told_what_bookies_of_4_2_3_speak(
    new_journal: NewJournal, places: Callable[[str], Place]
) -> None:
    place = replace(places("genuine bookies, flat"), v2=False)
    journal = await new_journal(place).formatted()
    with pytest.raises(JournalError, match=r"no ledger was created: .* set useV2WireProtocol=true") as caught:
        await journal.start_segment(TxId(1), HADOOP_2_7)
    assert not isinstance(caught.value, JournalUnavailable), "another attempt does not help"
