"""Tables `underreplicated`, `damaged`, `recovery_processes`, `auto_recovery`: what waits for repair, and for whom."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.underreplication.format import CheckKind
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.model import LedgerId
from bookkeeper.spark.cluster.asking import rows_of, shares_of_ids
from bookkeeper.spark.cluster.id_runs import ids_of
from bookkeeper.spark.cluster.table import (
    PROBLEM,
    ClusterTable,
    Column,
    ManyOptions,
    Of,
    Row,
    time_or_none,
    told,
)
from bookkeeper.spark.options.bounds import Bounds


def _http(process: RecoveryProcess) -> str | None:
    return None if process.http is None else f"{process.http[0]}:{process.http[1]}"


# --- marks


def _marked(client: BlockingBookKeeper, options: ManyOptions, bounds: Bounds) -> Sequence[object]:
    return shares_of_ids(client, options, bounds, lambda ledgers, strays: ledgers.store.underreplication.ids(strays))


def _mark_rows(client: BlockingBookKeeper, options: Any, share: array[int]) -> Iterator[Sequence[Row]]:
    del options

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        marks = ledgers.store.underreplication
        processes = {each.session_id: str(each) for each in await marks.processes()}

        async def ask(ledger_id: int) -> Sequence[Row]:
            at = LedgerId(ledger_id)
            worker = locked_ms = process = problem = missing = marked_ms = None
            try:
                mark = await marks.read(at)
                if mark is None:
                    return ()  # repaired since it was listed
                missing, marked_ms = list(mark.missing), mark.marked_ms
            except MetadataCorrupt as error:
                problem = told(error)
            try:
                worker = await marks.lock_holder(at)
            except MetadataCorrupt as error:
                problem = problem or told(error)
            locked_ms = await marks.locked_ms(at)
            session = await marks.lock_session(at)
            if session is not None:
                process = processes.get(session)
            locked = session is not None
            return [
                (
                    ledger_id,
                    missing,
                    time_or_none(marked_ms),
                    locked,
                    worker or None,
                    process,
                    time_or_none(locked_ms),
                    problem,
                )
            ]

        async for piece in rows_of(ids_of(share), ask):
            yield piece

    return client.pieces(start)


UNDERREPLICATED = ClusterTable(
    "underreplicated",
    "ledgers that are marked as lacking copies",
    (
        Column("ledger_id", Of.LONG, "the ledger", nullable=False),
        Column("missing", Of.TEXTS, "bookies whose copies are missing"),
        Column("since", Of.TIME, "when the newest of these was added; null where that is not noted"),
        Column("locked", Of.BOOLEAN, "whether somebody is at work on it now"),
        Column("worker", Of.TEXT, "who holds its lock, by its own word; null while nobody does, or it does not say"),
        Column(
            "process", Of.TEXT, "the process that holds it; null for one that does not announce itself, as Apache's"
        ),
        Column("locked_since", Of.TIME, "since when it is held; null while it is not"),
        PROBLEM,
    ),
    _mark_rows,
    _marked,
    ManyOptions,
)


# --- damage


def _ids_of_damaged(ledgers: LedgerClient, strays: BadRecords) -> AsyncIterator[Sequence[int]]:
    return ledgers.store.underreplication.bad_copy_ids(strays)


def _damaged(client: BlockingBookKeeper, options: ManyOptions, bounds: Bounds) -> Sequence[object]:
    return shares_of_ids(client, options, bounds, _ids_of_damaged)


def _damage_rows(client: BlockingBookKeeper, options: Any, share: array[int]) -> Iterator[Sequence[Row]]:
    del options

    def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        tree = ledgers.store.underreplication

        async def ask(ledger_id: int) -> Sequence[Row]:
            try:
                reported = await tree.bad_copies(LedgerId(ledger_id))
            except MetadataCorrupt as error:
                return [(ledger_id, *(None,) * 5, told(error))]
            return [
                (
                    ledger_id,
                    each.bookie_id,
                    each.first_entry_id,
                    each.last_entry_id,
                    time_or_none(each.reported_ms),
                    each.reason or None,
                    None,
                )
                for each in (reported.ranges if reported is not None else ())
            ]

        return rows_of(ids_of(share), ask)

    return client.pieces(start)


DAMAGED = ClusterTable(
    "damaged",
    "ranges of entries of which a bookie says that its own copies are bad, and that nobody has made anew yet",
    (
        Column("ledger_id", Of.LONG, "the ledger", nullable=False),
        Column("bookie", Of.TEXT, "whose copies"),
        Column("first_entry_id", Of.LONG, "entry id, inclusive"),
        Column("last_entry_id", Of.LONG, "entry id, inclusive"),
        Column("reported", Of.TIME, "when; null where that is not noted"),
        Column("reason", Of.TEXT, "as the bookie says"),
        PROBLEM,
    ),
    _damage_rows,
    _damaged,
    ManyOptions,
)


# --- who does it


def _process_rows(client: BlockingBookKeeper, options: Any, share: object) -> Iterator[Sequence[Row]]:
    del options, share

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        marks = ledgers.store.underreplication
        processes, auditor = await marks.processes(), await marks.auditor_session()
        yield [
            (
                each.host,
                each.pid,
                each.bookie_id,
                _http(each),
                time_or_none(each.since_ms),
                None if each.session_id == 0 else each.session_id == auditor,
            )
            for each in processes
        ]

    return client.pieces(start)


PROCESSES = ClusterTable(
    "recovery_processes",
    "processes that announce that they audit and repair; Apache's do not announce themselves",
    (
        Column("host", Of.TEXT, "where it runs, by its own word", nullable=False),
        Column("pid", Of.LONG, "process id there", nullable=False),
        Column("bookie", Of.TEXT, "the id it votes with", nullable=False),
        Column("http", Of.TEXT, "host:port of its HTTP server; null where it serves none"),
        Column("since", Of.TIME, "when it began, by its own clock"),
        Column("is_auditor", Of.BOOLEAN, "whether it is the auditor now"),
    ),
    _process_rows,
)


def _state_rows(client: BlockingBookKeeper, options: Any, share: object) -> Iterator[Sequence[Row]]:
    del options, share

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        marks = ledgers.store.underreplication
        problems: list[str] = []
        auditor = delay_s = None
        times: list[int | None] = []
        try:
            auditor = await marks.current_auditor()
        except MetadataCorrupt as error:
            problems.append(told(error))
        try:
            delay_s = await marks.recovery_delay_s()
        except MetadataCorrupt as error:
            problems.append(told(error))
        for kind in (CheckKind.ALL_LEDGERS, CheckKind.PLACEMENT, CheckKind.REPLICAS):
            try:
                times.append(time_or_none(await marks.check_time_ms(kind)))
            except MetadataCorrupt as error:
                times.append(None)
                problems.append(told(error))
        enabled, locked = await marks.is_enabled(), await marks.locked_count()
        yield [(enabled, auditor, delay_s, locked, *times, "; ".join(problems) or None)]

    return client.pieces(start)


STATE = ClusterTable(
    "auto_recovery",
    "one row: whether lost copies are made anew, who is the auditor, when it last checked",
    (
        Column("enabled", Of.BOOLEAN, "whether auto-recovery is on", nullable=False),
        Column("auditor", Of.TEXT, "the id of the auditor; null while nobody stands"),
        Column("lost_bookie_recovery_delay_s", Of.LONG, "seconds that it waits for a lost bookie; null: not stored"),
        Column("locked", Of.LONG, "ledgers that are being repaired now, by workers of any kind", nullable=False),
        Column("ledgers_checked", Of.TIME, "when the check of all ledgers last ended; null: it never did"),
        Column("placement_checked", Of.TIME, "when the check of placement last ended, likewise"),
        Column("replicas_checked", Of.TIME, "when the check of replicas last ended, likewise"),
        PROBLEM,
    ),
    _state_rows,
)
