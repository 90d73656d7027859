"""Shell commands on the cluster's metadata and its bookies."""

from __future__ import annotations

import argparse
import dataclasses
import socket
from dataclasses import dataclass

from bookkeeper.cli.shell.base import ShellCommand, add_force, connect, no_arguments, with_store
from bookkeeper.console.connection import store_settings
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    CommandFailed,
    confirm,
    end_partial,
    note,
    print_json,
    print_line,
    print_table,
    readable_size,
)
from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.bookies.cookie import parse_cookie
from bookkeeper.metadata.bookies.counts import count_bookies
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.metadata.underreplication.recovery_processes import find_auditor
from bookkeeper.model import BookieId, BookieServiceInfo


def _metaformat(args: argparse.Namespace) -> int:
    uri = store_settings(args).metadata_service_uri

    async def exists(store: MetadataStore) -> bool:
        return await store.admin.exists()

    async def format_it(store: MetadataStore) -> str:
        return await store.admin.format()

    if not args.force and with_store(args, exists, make=True):
        if args.non_interactive:
            raise CommandFailed(f"{uri} holds a cluster; -nonInteractive needs -force to format it")
        confirm(f"Format the metadata of {uri}? Every ledger of this cluster is forgotten.", force=False)
    note(f"formatted; instance id {with_store(args, format_it, make=True)}")
    return EXIT_OK


def _initnewcluster(args: argparse.Namespace) -> int:
    uri = store_settings(args).metadata_service_uri

    async def use(store: MetadataStore) -> str:
        if args.if_absent and await store.admin.exists():
            return await store.admin.instance_id()
        return await store.admin.initialise()

    note(f"cluster {uri}: instance id {with_store(args, use, make=True)}")
    return EXIT_OK


def _initnewcluster_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--if-absent", action="store_true", help="succeed when the cluster exists already")


def _whatisinstanceid(args: argparse.Namespace) -> int:
    async def use(store: MetadataStore) -> str:
        return await store.admin.instance_id()

    print_line(with_store(args, use))
    return EXIT_OK


def _listbookies_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-rw", "-readwrite", "--readwrite", action="store_const", const="rw", dest="which",
                       help="writable ones")  # fmt: skip
    which.add_argument("-ro", "-readonly", "--readonly", action="store_const", const="ro", dest="which",
                       help="read-only ones")  # fmt: skip
    which.add_argument("-a", "-all", "--all", action="store_const", const="all", dest="which",
                       help="every bookie with a cookie, registered or not")  # fmt: skip
    parser.add_argument("-h", "-hostnames", "--hostnames", action="store_true", help="resolve addresses to names too")
    parser.set_defaults(which=None)


@dataclass(frozen=True, slots=True)
class _Listed:
    bookie_id: BookieId
    state: str
    address: str
    problem: str = ""


def _listbookies(args: argparse.Namespace) -> int:
    async def use(store: MetadataStore) -> list[_Listed]:
        available = await store.bookies.current()
        problems = dict(available.unusable)
        found = []
        if args.which != "ro":
            found += [_listed(id_, "read-write", info) for id_, info in available.writable.items()]
        if args.which != "rw":
            found += [_listed(id_, "read-only", info) for id_, info in available.read_only.items()]
        if args.which == "all":
            known = {bookie.bookie_id for bookie in found}
            cookies = await store.cookies.all()
            found += [_Listed(id_, "not registered", "-") for id_ in cookies if id_ not in known]
            for id_, cookie in sorted(cookies.items()):
                try:
                    parse_cookie(cookie.value, f"cookie of {id_}")
                except MetadataCorrupt as error:
                    problems.setdefault(id_, str(error))
        for problem in problems.values():
            bad_records.add_unreadable(problem)
        found = [dataclasses.replace(each, problem=problems.get(each.bookie_id, "")) for each in found]
        return sorted(found, key=lambda bookie: bookie.bookie_id)

    bad_records = BadRecords()
    rows = [dataclasses.asdict(bookie) for bookie in with_store(args, use)]
    if args.hostnames:
        rows = [{**row, "hostname": _hostname(row["address"])} for row in rows]
    if args.json:
        print_json(rows)
    else:
        for row in rows:
            row["state"] += ", unreadable" if row["problem"] else ""  # new ledgers do not use it
        names = ["bookie_id", "state", "address", *(["hostname"] if args.hostnames else [])]
        print_table(["bookie", *names[1:]], [[row[name] for name in names] for row in rows])
    return end_partial(bad_records)


def _listed(bookie_id: BookieId, state: str, info: BookieServiceInfo) -> _Listed:
    address = info.address()
    return _Listed(bookie_id, state, f"{address[0]}:{address[1]}" if address else "-")


def _hostname(address: str) -> str:
    return socket.getfqdn(address.rpartition(":")[0]) if address != "-" else "-"


@dataclass(frozen=True, slots=True)
class _Space:
    """One line of bookieinfo; None: unknown."""

    bookie_id: str
    free_bytes: int | None = None
    total_bytes: int | None = None
    error: str = ""


def _bookieinfo(args: argparse.Namespace) -> int:
    found: list[_Space] = []
    bad_records = BadRecords()
    failed = False
    with connect(args) as client:
        available = client.available_bookies()
        for _, problem in sorted(available.unusable.items()):
            bad_records.add_unreadable(problem)
        for bookie_id in sorted({*available.writable, *available.read_only}):
            try:
                info = client.bookie_info(bookie_id)
            except Exception as error:  # noqa: BLE001 - one bookie that does not answer does not hide the others
                readable = bookie_id not in available.unusable
                failed |= readable
                found.append(_Space(bookie_id, error=str(error) if readable else "its registration cannot be read"))
                continue
            found.append(_Space(bookie_id, info.free_bytes, info.total_bytes))
    if args.json:
        print_json([dataclasses.asdict(space) for space in found])
    else:
        told = [space for space in found if not space.error]
        free, total = sum(space.free_bytes or 0 for space in told), sum(space.total_bytes or 0 for space in told)
        print_table(
            ("bookie", "free bytes", "", "total bytes", "", "error"),
            [*map(_space_row, found), _space_row(_Space("in the cluster", free, total))],
        )
    partial = end_partial(bad_records)
    return EXIT_FAILURE if failed else partial


def _space_row(space: _Space) -> tuple[object, ...]:
    if space.free_bytes is None or space.total_bytes is None:
        return space.bookie_id, "-", "-", "-", "-", space.error
    free, total = space.free_bytes, space.total_bytes
    return space.bookie_id, free, readable_size(free), total, readable_size(total), space.error


def _clusterinfo(args: argparse.Namespace) -> int:
    uri = store_settings(args).metadata_service_uri

    async def use(store: MetadataStore) -> dict[str, object]:
        auditor = await find_auditor(store.underreplication, bad_records)
        marked = False
        async for _ in store.underreplication.ids(BadRecords()):
            marked = True
            break
        available = await store.bookies.current()
        counts = count_bookies(available, await store.cookies.all(), bad_records)
        layout = await store.admin.layout()
        return {
            "metadataServiceUri": uri,
            "instanceId": await store.admin.instance_id(),
            "ledgerLayout": "none yet" if layout is None else layout.kind.word,
            "auditorElected": auditor.is_elected,
            "auditorId": auditor.bookie_id or "",
            "clusterUnderReplicated": marked,
            "ledgerReplicationEnabled": await store.underreplication.is_enabled(),
            "totalBookiesCount": counts.total,
            "writableBookiesCount": counts.writable,
            "readonlyBookiesCount": counts.read_only,
            "unavailableBookiesCount": counts.unavailable,
        }

    bad_records = BadRecords()
    info = with_store(args, use)
    if args.json:
        print_json(info)
    else:
        print_table(("fact", "value"), [(name, _yes_or_no(value)) for name, value in info.items()])
    return end_partial(bad_records)


def _yes_or_no(value: object) -> object:
    return {True: "yes", False: "no", "": "-"}.get(value, value) if isinstance(value, bool | str) else value


METAFORMAT = ShellCommand("metaformat -force", add_force, _metaformat)
INITNEWCLUSTER = ShellCommand(
    "--uri zk+hierarchical://127.0.0.1:2181/ledgers initnewcluster", _initnewcluster_arguments, _initnewcluster
)
WHATISINSTANCEID = ShellCommand("whatisinstanceid", no_arguments, _whatisinstanceid)
LISTBOOKIES = ShellCommand("listbookies -rw", _listbookies_arguments, _listbookies)
BOOKIEINFO = ShellCommand("--json bookieinfo", no_arguments, _bookieinfo)
CLUSTERINFO = ShellCommand("clusterinfo", no_arguments, _clusterinfo)
