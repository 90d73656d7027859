"""Runs `bookkeeper spark namespace`, prints and draws what was found."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping
from functools import partial
from typing import Any

from bookkeeper.cli.spark.said_as import said_as
from bookkeeper.cli.spark.session import spark_session, unfinished
from bookkeeper.cli.spark.words import EXIT_UNKNOWN
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.figures import check_can_draw
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, counted, note, print_json, print_table
from bookkeeper.console.output import readable_size as size
from bookkeeper.errors import ConfigurationError, InvalidArgument
from bookkeeper.spark.outputs import OutputState
from bookkeeper.spark.said_as import Words
from journalmgr.cli.session import check_uri, note_foreign
from journalmgr.cli.spark_namespace_plot import draw_growth
from journalmgr.config import SHARED_EDITS, JournalSettings, load_journal, variable_of
from journalmgr.spark.edit_options import read_edit_options
from journalmgr.spark.namespaces.options import given_options
from journalmgr.spark.namespaces.report import NamespaceReport, namespace

_LEDGERS = "dfs.namenode.bookkeeperjournal."
KEYS = (SHARED_EDITS, f"{_LEDGERS}zk.availablebookies", f"{_LEDGERS}digestPw", "journalmgr.ledgers.client-conf")
"""Settings of the journal that say where it is and how it is opened; all others are words of the format."""

WORDS = Words.of_command({"journal": "JOURNAL"})
"""-D has all others."""

GROWTH_SQL = (
    "unix_millis(time) AS ms",
    *("files_made", "files_deleted", "bytes_added", "bytes_removed", "files", "directories", "bytes"),
)
UNITS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d %H:00"}
NO_TIME = "(no time)"

Rows = list[dict[str, Any]]


def run_namespace(args: argparse.Namespace) -> int:
    """Run it, print and draw what was found."""
    try:
        uri, options = _journal(args)
        read_edit_options(given_options(uri, options))  # before Spark is started, which takes a while
    except ConfigurationError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    if args.plot is not None:
        check_can_draw(args.plot)
    state = OutputState()
    try:
        with spark_session(args, interrupted=partial(unfinished, args.output, state)) as spark:
            found = namespace(
                spark,
                uri,
                base=args.base,
                at_txid=args.at_txid,
                depth=args.depth,
                by=args.by,
                skip_unknown=args.skip_unknown,
                output=args.output,
                options=options,
                state=state,
                say=note,
            )
            growth = _rows(found.growth.selectExpr(*GROWTH_SQL))
            _show(args, found, growth)
    except InvalidArgument as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    if args.plot is not None:
        args.plot.write_bytes(draw_growth(found.txid, args.by, growth))
        note(f"drawn: {args.plot}")
    return EXIT_UNKNOWN if found.unknown else EXIT_OK


def _journal(args: argparse.Namespace) -> tuple[str, Mapping[str, str]]:
    """The journal's URI, and options of the format. Raises CommandFailed, ConfigurationError."""
    given = parse_settings(args.defines)
    loaded = load_journal(args.conf, {word: text for word, text in given.items() if word in KEYS})
    note_foreign(args.conf, loaded)
    settings = loaded.settings
    uri = args.journal or settings.shared_edits_dir
    if not uri:
        raise CommandFailed(
            f"no journal is named: give its URI, or set {SHARED_EDITS} (-D, {variable_of(SHARED_EDITS)} in the "
            "environment, or --conf)",
            EXIT_USAGE,
        )
    if check_uri(uri) != "bookkeeper":
        raise CommandFailed(
            f"{uri}: Spark reads journals on ledgers; `journalmgr copy` makes one of a journal on files", EXIT_USAGE
        )
    return uri, {
        **said_as(WORDS),
        **_opened_with(settings),
        **{word: text for word, text in given.items() if word not in KEYS},
    }


def _opened_with(settings: JournalSettings) -> dict[str, str]:
    if settings.client_conf:
        raise CommandFailed(
            f"journalmgr.ledgers.client-conf={settings.client_conf}: tasks of Spark do not read this machine's files; "
            "give its keys with -D",
            EXIT_USAGE,
        )
    options = {"zkLedgersRootPath": settings.ledgers_root}
    if settings.digest_password:
        options["password"] = settings.digest_password.decode()
    return options


def _rows(frame: Any) -> Rows:
    return [row.asDict() for row in frame.collect()]


def _show(args: argparse.Namespace, found: NamespaceReport, growth: Rows) -> None:
    """Print what was found, as JSON where that is asked for."""
    rows = args.rows
    owners = _rows(found.owners.limit(rows))
    directories = _rows(found.directories.drop("newest_mtime").orderBy("stored_bytes", ascending=False).limit(rows))
    directories.sort(key=lambda row: str(row["path"]))
    latest = [{"time": time_text(row["ms"], args.by), **row} for row in growth[-rows:]]
    if args.json:
        print_json(
            {
                "journal": found.journal,
                "namespace_id": found.namespace_id,
                "txid": found.txid,
                "transactions": found.transactions,
                "passed_over": found.passed_over,
                "unknown": found.unknown,
                "files": found.file_count,
                "directories": found.directory_count,
                "symlinks": found.symlink_count,
                "bytes": found.size,
                "owners": owners,
                "usage": directories,
                "extensions": _rows(found.extensions.limit(rows)),
                "storage": _rows(found.storage.limit(rows)),
                "growth": [{name: row[name] for name in row if name != "ms"} for row in latest],
                "operations": _rows(found.operations),
            }
        )
        return
    usage = ("files", "directories", "symlinks")
    print_table(
        ("owner", *usage, "bytes", "with all copies"),
        [(row["owner"] or "(unknown)", *(row[name] for name in usage), *_sizes(row)) for row in owners],
    )
    print()
    print_table(
        ("directory", *usage, "bytes", "with all copies"),
        [(row["path"], *(row[name] for name in usage), *_sizes(row)) for row in directories],
    )
    print()
    print_table(
        (args.by, "files made", "deleted", "bytes added", "removed", "files", "bytes"),
        [
            (
                row["time"],
                row["files_made"],
                row["files_deleted"],
                size(row["bytes_added"]),
                size(row["bytes_removed"]),
                row["files"],
                size(row["bytes"]),
            )
            for row in latest
        ],
    )
    note(
        f"namespace id {found.namespace_id} at txid {found.txid:,}: {counted(found.file_count, 'file')}, "
        f"{counted(found.directory_count, 'directory', 'directories')}, {counted(found.symlink_count, 'symlink')}, "
        f"{size(found.size)}"
    )
    if found.unknown:
        kinds = _rows(found.operations.where("outcome = 'unknown'"))
        which = ", ".join(f"{row['count']:,} {row['op']}" for row in kinds) or "for the base"
        note(
            f"passed over {counted(found.unknown, 'operation')} of unknown meaning: {which}; this is not the "
            "namespace for certain"
        )


def _sizes(row: Mapping[str, Any]) -> tuple[str, str]:
    coded = f" and {row['coded_files']:,} erasure coded" if row["coded_files"] else ""
    return size(row["bytes"]), size(row["stored_bytes"]) + coded


def time_text(ms: int | None, by: str) -> str:
    """A day or hour of UTC as people read it."""
    return NO_TIME if ms is None else datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime(UNITS[by])
