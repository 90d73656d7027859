"""The options of `bookkeeper spark import`."""

from __future__ import annotations

import argparse

from bookkeeper.cli.spark.words import add_common, commit_path, name_of_write
from bookkeeper.console.subcommands import at_least

EPILOG = """\
Before anything is written the whole export is read: a manifest that is missing or of another version, files that are
missing or have changed are refused. Then each ledger is written anew, with a new id, the custom metadata that it had,
and `imported-from` (the export's id / the exported ledger's); it is read back, its digest compared, and only then
committed. The same command again goes on where it was, and writes nothing that was committed: it prints the same ids.
What an import that died has left behind `bookkeeper spark sweep` deletes.

Passwords are not in an export: new ledgers have that of -D passwd=..., or none.

examples:
  bookkeeper spark import /backup/monday --job restore-1 --dry-run     is the export whole, and what would be written?
  bookkeeper spark import /backup/monday --job restore-1 --output /tmp/new-ids

exit codes: 0 imported, 1 failure, 2 usage, 130 interrupted: the same command goes on where it was
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Write the ledgers of an export anew."
    parser.epilog = EPILOG
    parser.add_argument("directory", metavar="DIR", help="of the export")
    parser.add_argument("--job", type=name_of_write, required=True, metavar="NAME",
                       help="of this import: the same goes on where it was")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="check everything, and write nothing")
    parser.add_argument("--output", metavar="PATH", help="a new directory for the new ids as Parquet (default: none)")
    for word, what in (("ensemble", "bookies of a ledger"), ("write-quorum", "copies of an entry"),
                       ("ack-quorum", "copies to wait for")):  # fmt: skip
        parser.add_argument(f"--{word}", type=at_least(1), metavar="N", help=f"{what} (default: as it had)")
    parser.add_argument(
        "--allow-loss", action="store_true", help="leave out ledgers of which something is lost (default: fail)"
    )
    parser.add_argument("--commit-path", type=commit_path, metavar="PATH",
                       help="znode of the commits: option commitPath of writes (default: theirs)")  # fmt: skip
    parser.add_argument("--rows", type=at_least(0), default=100, metavar="N",
                       help="print at most so many new ids (default: %(default)s)")  # fmt: skip
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from bookkeeper.cli.spark.exports import run_import

    return run_import(args)
