"""Pipelines over the cluster on Spark: on this machine, or on the master that --master names.

Needs the extra `spark`. Where they run the package must be installed, or given with --py-files of spark-submit.

examples:
  bookkeeper spark audit                                  every copy of every entry of the cluster
  bookkeeper spark audit --ledgers 100-200 --repair       some ledgers; what is bad is queued for auto-recovery
  bookkeeper spark audit --output /backup/audit-1         the result as Parquet, too
  bookkeeper spark space --by application                 whose ledgers take the space, and what is garbage
  bookkeeper spark whatif --lose-rack /rack-1 --add 3     what a loss means, and where the copies would go
  bookkeeper spark export --output /backup/monday         every closed ledger as Parquet, with a manifest
  bookkeeper spark import /backup/monday --job restore-1  the same ledgers written anew; again: goes on where it was
  bookkeeper spark forget --query ID --older-than 2592000 what a stream wrote to ledgers more than 30 days ago, deleted
  bookkeeper spark sweep --older-than 3600 --dry-run      ledgers that writes of Spark have left behind
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

from bookkeeper.console.output import EXIT_USAGE, CommandFailed
from bookkeeper.console.subcommands import LazyParser
from bookkeeper.errors import ConfigurationError

_HERE = "bookkeeper.cli.spark"

ACTIONS = {
    "audit": (f"{_HERE}.audit_words", "every copy of every entry, verified"),
    "export": (f"{_HERE}.export_words", "ledgers to Parquet, with a manifest"),
    "forget": (f"{_HERE}.forget_words", "delete the oldest batches that a stream wrote to ledgers"),
    "import": (f"{_HERE}.import_words", "ledgers of an export, written anew"),
    "space": (f"{_HERE}.space_words", "where the disk space is"),
    "sweep": (f"{_HERE}.sweep_words", "delete what writes of Spark left behind"),
    "whatif": (f"{_HERE}.whatif_words", "bookies lost or added, other quorums"),
}
"""By name a module and what it does. The module has `add_arguments(parser)` and `run(args) -> exit code`, and imports
pyspark in the latter only."""

PLUGINS = "bookkeeper.spark.actions"
"""Entry points of other packages: a name and such a module. The first line of its docstring says what it does."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Actions of `bookkeeper spark`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=LazyParser)
    for name, (module, summary) in _all_actions().items():
        actions.add_parser(name, help=summary, fill=partial(_fill, module))


def _all_actions() -> dict[str, tuple[str, str]]:
    found = dict(ACTIONS)
    for each in entry_points(group=PLUGINS):
        if each.name not in found:
            found[each.name] = (each.value, _summary(each.value))
    return dict(sorted(found.items()))


def _summary(module: str) -> str:
    text = (import_module(module).__doc__ or "").strip().partition("\n")[0]
    return text.rpartition(": ")[2].rstrip(".")


def _fill(module: str, parser: argparse.ArgumentParser) -> None:
    import_module(module).add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    lacking = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if lacking:
        raise CommandFailed(f"{', '.join(lacking)}: not installed; pip install 'pybookkeeper[spark]'", EXIT_USAGE)
    try:
        return int(import_module(_all_actions()[args.action][0]).run(args))
    except ConfigurationError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
