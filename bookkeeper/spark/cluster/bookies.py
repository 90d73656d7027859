"""Tables `bookies` and `cookies`: who belongs to the cluster, who is there now, and how much room each has.

A bookie is known that is registered or has a cookie. One that neither is, and that ledgers still name, is found by SQL:
`SELECT explode(bookies) FROM fragments`, without those of `bookies`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.errors import BookKeeperError, MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.bookies.cookie import parse_cookie
from bookkeeper.model import BookieId, BookieServiceInfo, Versioned
from bookkeeper.spark.cluster.asking import rows_of
from bookkeeper.spark.cluster.table import PROBLEM, ClusterTable, Column, Of, Row, told

WRITABLE, READ_ONLY, LOST = "writable", "read-only", "lost"

ASKED_AT_ONCE = 16
"""Bookies asked for their room."""

NOT_REGISTERED = "it is not registered, so nobody can ask it"


def http_of(info: BookieServiceInfo | None) -> tuple[str, int] | None:
    """Where a bookie serves HTTP, as its registration says."""
    for endpoint in () if info is None else info.endpoints:
        if endpoint.protocol == "http":
            return endpoint.host, endpoint.port
    return None


async def known_bookies(ledgers: LedgerClient) -> dict[BookieId, tuple[str, BookieServiceInfo | None]]:
    """State and registration of each, by id. A bookie that is just changing its mode counts as writable."""
    await ledgers.store.sync()
    available, cookies = await ledgers.available_bookies(), await ledgers.store.cookies.all()
    found: dict[BookieId, tuple[str, BookieServiceInfo | None]] = dict.fromkeys(cookies, (LOST, None))
    found |= {each: (READ_ONLY, info) for each, info in available.read_only.items()}
    found |= {each: (WRITABLE, info) for each, info in available.writable.items()}
    return dict(sorted(found.items()))


def _bookie_rows(client: BlockingBookKeeper, options: Any, share: object) -> Iterator[Sequence[Row]]:
    del options, share

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        known = await known_bookies(ledgers)
        unusable = (await ledgers.available_bookies()).unusable

        async def ask(bookie_id: BookieId) -> Sequence[Row]:
            state, info = known[bookie_id]
            if info is None:
                return [(bookie_id, state, *(None,) * 7, NOT_REGISTERED)]
            address, http = info.address(), http_of(info)
            total = free = None
            problem = unusable.get(bookie_id)
            try:
                space = await ledgers.bookie_info(bookie_id)
                total, free = space.total_bytes, space.free_bytes
            except BookKeeperError as error:
                problem = problem or f"its room is not known: {told(error)}"
            endpoints = [f"{each.protocol}://{each.host}:{each.port}" for each in info.endpoints]
            host, port = address or (None, None)
            return [
                (
                    bookie_id,
                    state,
                    host,
                    port,
                    None if http is None else f"{http[0]}:{http[1]}",
                    endpoints,
                    sorted(info.properties.items()),
                    total,
                    free,
                    problem,
                )
            ]

        async for piece in rows_of(known, ask, ASKED_AT_ONCE):
            yield piece

    return client.pieces(start)


BOOKIES = ClusterTable(
    "bookies",
    "every bookie that is registered or has a cookie",
    (
        Column("bookie", Of.TEXT, "its id", nullable=False),
        Column("state", Of.TEXT, "writable, read-only, or lost: it has a cookie and is not registered", nullable=False),
        Column("host", Of.TEXT, "for clients, as its registration says; null where there is none"),
        Column("port", Of.INT, "TCP port for clients, likewise"),
        Column("http", Of.TEXT, "host:port of its HTTP server, likewise; null too where it serves no HTTP"),
        Column("endpoints", Of.TEXTS, "protocol://host:port of each, likewise"),
        Column("properties", Of.TEXT_BY_TEXT, "what else its registration says"),
        Column("total_bytes", Of.LONG, "bytes of the disks of its ledger directories, each disk once, as it says"),
        Column("free_bytes", Of.LONG, "bytes of these that are free"),
        PROBLEM,
    ),
    _bookie_rows,
)


def _cookie_rows(client: BlockingBookKeeper, options: Any, share: object) -> Iterator[Sequence[Row]]:
    del options, share

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        await ledgers.store.sync()
        cookies = await ledgers.store.cookies.all()
        yield [cookie_row(bookie_id, cookies[bookie_id]) for bookie_id in sorted(cookies)]

    return client.pieces(start)


def cookie_row(bookie_id: BookieId, data: Versioned[bytes]) -> Row:
    """The row of `cookies`."""
    try:
        cookie = parse_cookie(data.value, f"cookie of {bookie_id}")
    except (MetadataCorrupt, MetadataTooNew) as error:
        return bookie_id, *(None,) * 6, data.version, told(error)
    return (
        bookie_id,
        cookie.bookie_id,
        cookie.instance_id,
        list(cookie.journal_dirs),
        list(cookie.ledger_dirs),
        list(cookie.ledger_dirs if cookie.index_dirs is None else cookie.index_dirs),
        cookie.layout_version,
        data.version,
        None,
    )


COOKIES = ClusterTable(
    "cookies",
    "the cookie of every bookie that ever belonged to the cluster",
    (
        Column("bookie", Of.TEXT, "whose it is, by the znode's name", nullable=False),
        Column("host", Of.TEXT, "whose it is, by its own word (bookieHost)"),
        Column("instance_id", Of.TEXT, "of the cluster it was made in; null in cookies older than that"),
        Column("journal_directories", Of.TEXTS, "paths on the bookie's machine"),
        Column("ledger_directories", Of.TEXTS, "likewise"),
        Column("index_directories", Of.TEXTS, "likewise; the ledger directories where it names none"),
        Column("layout_version", Of.INT, "of the cookie's format, 3 to 5"),
        Column("version", Of.LONG, "of the znode: how often it was changed", nullable=False),
        PROBLEM,
    ),
    _cookie_rows,
)
