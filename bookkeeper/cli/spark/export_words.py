"""The options of `bookkeeper spark export` and `bookkeeper spark import`."""

from __future__ import annotations

import argparse
from typing import Any

from bookkeeper.cli.connection import add_connection_arguments
from bookkeeper.cli.lazy import at_least

EXPORT_EPILOG = """\
What is written: entries as Parquet below DIR/entries/date=DAY (ledger_id, entry_id, value), a line for each ledger
below DIR/ledgers, and last of all DIR/manifest: without it DIR is no export. DIR is any path that Spark can use; tasks
on other machines must reach it. Each ledger's entries and bytes are compared with its metadata, and its digest is made
of what is in the files. Ledgers that are not closed are left out, and listed, but for --open. Nothing is fenced or
changed.

Passwords are not exported, nor any digest that is made with one: -D passwd=... or --as-administrator reads, and the
import writes with a password of its own.

examples:
  bookkeeper spark export --output /backup/monday                         every closed ledger
  bookkeeper spark export --ledgers 7,100-200 --open --output /backup/7   some, and what is confirmed of open ones
  bookkeeper spark export --application pulsar --as-administrator --output hdfs://nn/backup/pulsar

exit codes: 0 exported, 1 failure, 2 usage, 3 exported, but something is lost (--allow-loss)
"""

IMPORT_EPILOG = """\
Before anything is written the whole export is read: a manifest that is missing or of another version, files that are
missing or have changed are refused. Then each ledger is written anew, with a new id, the custom metadata that it had,
and `imported-from` (the export's id / the exported ledger's); it is read back, its digest compared, and only then
committed. The same command again goes on where it was, and writes nothing that was committed: it prints the same ids.
What an import that died has left behind `bookkeeper spark sweep` deletes.

Passwords are not in an export: new ledgers have that of -D passwd=..., or none.

examples:
  bookkeeper spark import /backup/monday --job restore-1 --dry-run     is the export whole, and what would be written?
  bookkeeper spark import /backup/monday --job restore-1 --output /tmp/new-ids

exit codes: 0 imported, 1 failure, 2 usage
"""


def add_export(actions: Any) -> None:
    """The options of the export. actions: of argparse, to add it to."""
    export = actions.add_parser(
        "export", help="ledgers to Parquet, with a manifest", description="Export ledgers to Parquet, with a manifest.",
        epilog=EXPORT_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    export.add_argument("--ledgers", default="all", metavar="IDS", help="all, or e.g. 3,7,10-20 (default: %(default)s)")
    export.add_argument("--output", required=True, metavar="DIR", help="a new directory for the export")
    export.add_argument("--owner", default="", metavar="NAME", help="only ledgers of this owner (default: all)")
    export.add_argument("--application", default="", metavar="NAME",
                        help="only ledgers of this application (default: all)")  # fmt: skip
    export.add_argument("--open", action="store_true", help="open ledgers, too, up to what is confirmed now")
    export.add_argument("--as-administrator", action="store_true",
                        help="read each ledger with the password that its metadata names")  # fmt: skip
    export.add_argument("--allow-loss", action="store_true",
                        help="go on without what is lost, and say so in the manifest")  # fmt: skip
    export.add_argument("--file-bytes", type=at_least(1 << 20), default=1 << 27, metavar="N",
                        help="payload of a file, about, at most (default: %(default)s)")  # fmt: skip
    export.add_argument("--master", default="local[*]", metavar="URL", help="of Spark (default: %(default)s)")
    export.add_argument("--json", action="store_true", help="JSON instead of text")
    add_connection_arguments(export)


def add_import(actions: Any) -> None:
    """The options of the import."""
    taken = actions.add_parser(
        "import", help="ledgers of an export, written anew", description="Write the ledgers of an export anew.",
        epilog=IMPORT_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    taken.add_argument("directory", metavar="DIR", help="of the export")
    taken.add_argument("--job", required=True, metavar="NAME", help="of this import: the same goes on where it was")
    taken.add_argument("--dry-run", action="store_true", help="check everything, and write nothing")
    taken.add_argument("--output", metavar="PATH", help="a new directory for the new ids as Parquet (default: none)")
    for word, what in (("ensemble", "bookies of a ledger"), ("write-quorum", "copies of an entry"),
                       ("ack-quorum", "copies to wait for")):  # fmt: skip
        taken.add_argument(f"--{word}", type=at_least(1), metavar="N", help=f"{what} (default: as it had)")
    taken.add_argument("--allow-loss", action="store_true", help="leave out ledgers of which something is lost")
    taken.add_argument("--commit-path", metavar="PATH", help="option commitPath of writes (default: theirs)")
    taken.add_argument("--rows", type=at_least(0), default=100, metavar="N",
                       help="print at most so many new ids (default: %(default)s)")  # fmt: skip
    taken.add_argument("--master", default="local[*]", metavar="URL", help="of Spark (default: %(default)s)")
    taken.add_argument("--json", action="store_true", help="JSON instead of a table")
    add_connection_arguments(taken)
