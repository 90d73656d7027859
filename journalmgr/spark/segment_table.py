"""Table `segments` of the format bookkeeper.cluster: the segments of journals on ledgers, as their znodes record them.

    segments   journal, name, first_txid, last_txid, in_progress, transactions, ledger_id, layout_version, is_current,
               problem

Option `journal`: the znode of a journal in the cluster's ZooKeeper, or its URI; several with commas between them.
Nobody who writes is disturbed: no ledger is opened.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.connecting import metadata_settings
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config.keys import Kind, key
from bookkeeper.errors import ConfigurationError, InvalidArgument
from bookkeeper.metadata.uri import parse_uri as parse_cluster_uri
from bookkeeper.metadata.zookeeper import ZooKeeperStore
from bookkeeper.spark.cluster.asking import ROWS
from bookkeeper.spark.cluster.table import PROBLEM, WHAT, ClusterOptions, ClusterTable, Column, Of, Row, told
from bookkeeper.spark.options.bounds import Bounds
from journalmgr.config import SHARED_EDITS
from journalmgr.errors import NotFormatted, SegmentUnreadable
from journalmgr.ledger.connecting import check_root
from journalmgr.ledger.znodes import JournalZnodes, Listed
from journalmgr.segment import FINALISED_PREFIX, INPROGRESS_PREFIX, parse_current
from journalmgr.uri import parse_uri

SCHEME = "bookkeeper"
PORT = 2181


def parse_journals(value: str) -> tuple[str, ...]:
    """Znodes or URIs of journals on ledgers. Raises ValueError."""
    found = []
    for each in (part.strip() for part in value.split(",")):
        try:
            if "://" not in each:
                check_root(each)
            elif (where := parse_uri(each)).scheme != SCHEME:
                raise ValueError(f"{each!r} is no journal on ledgers: want {SCHEME}://ZOOKEEPER;ZOOKEEPER/ZNODE")
            else:
                check_root(where.path.rstrip("/"))
        except InvalidArgument as error:
            raise ValueError(str(error)) from error
        found.append(each)
    return tuple(found)


_JOURNALS: Kind[tuple[str, ...]] = Kind(
    "znode or URI, comma-separated", lambda value: parse_journals(value) if value else ()
)


@dataclass(frozen=True, slots=True)
class SegmentOptions(ClusterOptions):
    """Which journals."""

    journals: tuple[str, ...] = key(
        "journal", _JOURNALS, "", WHAT,
        f"Journals: /ZNODE in the cluster's ZooKeeper, or {SCHEME}://ZK;ZK/ZNODE as {SHARED_EDITS} has it.",
    )  # fmt: skip

    def faults(self) -> Iterable[tuple[tuple[str, ...], str]]:
        """What is wrong between words."""
        if not self.journals:
            yield ("journal",), "is missing: whose segments, e.g. /hdfsjournal"


def root_in(journal: str, servers: Sequence[str]) -> str:
    """The znode of a journal in the ZooKeeper of these servers. Raises ConfigurationError for one in another."""
    if "://" not in journal:
        return journal
    where = parse_uri(journal)
    if not {_whole(each) for each in where.servers} & {_whole(each) for each in servers}:
        raise ConfigurationError(
            f"option journal: {journal} is in another ZooKeeper than the cluster, which is at {';'.join(servers)}: "
            "give the address of the journal's cluster as uri, or its znode alone where the servers have two names"
        )
    return where.path.rstrip("/")


def _whole(server: str) -> str:
    host, colon, port = server.rpartition(":")
    return f"{host}:{port}".lower() if colon and port.isdigit() else f"{server}:{PORT}".lower()


def segment_rows(
    journal: str, listed: Sequence[Listed], unreadable: Mapping[str, SegmentUnreadable], current: str | None
) -> list[Row]:
    """The rows of one journal; a finalised segment hides what an interrupted recovery left of it in progress.

    current: the znode of the segment that is being written.
    """
    ended = {(each.segment.first_txid, each.segment.ledger_id) for each in listed if not each.segment.in_progress}
    rows: list[Row] = []
    for each in listed:
        one = each.segment
        if one.in_progress and (one.first_txid, one.ledger_id) in ended:
            continue
        count = None if one.last_txid is None else one.last_txid - one.first_txid + 1
        rows.append(
            (
                journal,
                one.name,
                one.first_txid,
                one.last_txid,
                one.in_progress,
                count,
                one.ledger_id,
                one.layout_version or None,
                each.path == current,
                None,
            )
        )
    for name, error in sorted(unreadable.items()):
        rows.append((journal, name, None, None, _in_progress(name), None, None, None, None, told(error)))
    return rows


def _in_progress(name: str) -> bool | None:
    """By its znode's name alone; None where that does not say."""
    begins = (INPROGRESS_PREFIX, FINALISED_PREFIX)
    return name.startswith(INPROGRESS_PREFIX) if name.startswith(begins) else None


def _znodes(ledgers: LedgerClient, root: str) -> tuple[JournalZnodes, str]:
    """A journal's znodes and its URI."""
    store = ledgers.store
    assert isinstance(store, ZooKeeperStore)
    znodes = JournalZnodes(store.tree, ledgers.context.clock, metadata_settings(ledgers.settings), root)
    return znodes, f"{SCHEME}://{';'.join(_servers(ledgers))}{root}"


def _servers(ledgers: LedgerClient) -> Sequence[str]:
    return parse_cluster_uri(ledgers.settings.metadata_service_uri).servers


def _not_there(journal: str) -> NotFormatted:
    return NotFormatted(f"{journal} has no list of segments: it was never formatted, or is called otherwise")


def _shares(client: BlockingBookKeeper, options: SegmentOptions, bounds: Bounds) -> Sequence[object]:
    """The znodes of the journals. Raises NotFormatted, ConfigurationError for one in another ZooKeeper."""
    del bounds

    async def start(ledgers: LedgerClient) -> AsyncGenerator[str]:
        await ledgers.store.sync()
        for each in options.journals:
            root = root_in(each, _servers(ledgers))
            znodes, journal = _znodes(ledgers, root)
            if not await znodes.exists(znodes.list_path):
                raise _not_there(journal)
            yield root

    return list(client.pieces(start))


def _rows(client: BlockingBookKeeper, options: SegmentOptions, share: str) -> Iterator[Sequence[Row]]:
    del options

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        znodes, journal = _znodes(ledgers, share)
        await znodes.sync()
        found = await znodes.segments_leniently()
        if found is None:
            raise _not_there(journal)
        pointer = await znodes.read(znodes.current_path)  # `read_current` would make it
        current = None if pointer is None else parse_current(pointer[0], znodes.current_path)
        rows = segment_rows(journal, *found, None if current is None else current.path)
        for first in range(0, len(rows), ROWS):
            yield rows[first : first + ROWS]

    return client.pieces(start)


SEGMENTS = ClusterTable(
    "segments",
    "every segment of journals on ledgers",
    (
        Column("journal", Of.TEXT, "its URI", nullable=False),
        Column("name", Of.TEXT, "of the segment's znode", nullable=False),
        Column("first_txid", Of.LONG, "txid, inclusive"),
        Column("last_txid", Of.LONG, "txid, inclusive; null while it is in progress"),
        Column("in_progress", Of.BOOLEAN, "not finalised yet"),
        Column("transactions", Of.LONG, "how many; null while it is in progress"),
        Column("ledger_id", Of.LONG, "where they are"),
        Column("layout_version", Of.INT, "how they are encoded; null where the record does not say"),
        Column("is_current", Of.BOOLEAN, "whether the journal says that it is being written"),
        PROBLEM,
    ),
    _rows,
    _shares,
    SegmentOptions,
    needs=("journal",),
)
