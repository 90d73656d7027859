"""The `bookkeeper` program: finds the command, loads its module, maps its outcome to an exit code.

A command is a module with `add_arguments(parser)` and `run(args) -> int`. Only the module of the command that was
typed is imported, so `bookkeeper --help` and a bookie's start do not pay for the rest. Other packages add commands
through the entry-point group `bookkeeper.commands` (name = entry point, value = such a module).

Exit codes: 0 ok, 1 failure, 2 usage, 130 interrupted, 141 whoever read the output went away (as of `seq 9999 | head`,
without a word); `bookie` keeps BookKeeper's own (see `bookkeeper bookie --help`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from functools import partial

from bookkeeper.cli.lazy import LazyParser, add_verbose
from bookkeeper.cli.output import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    expected_text,
)

COMMANDS: dict[str, tuple[str, str]] = {
    "bookie": ("bookkeeper.cli.bookie", "run one bookie"),
    "zookeeper": ("bookkeeper.cli.zookeeper", "run the embedded ZooKeeper"),
    "localbookie": ("bookkeeper.cli.localbookie", "run a ZooKeeper and N bookies on this machine"),
    "standalone": ("bookkeeper.cli.standalone", "run a ZooKeeper and one bookie that keep their data"),
    "ledger": ("bookkeeper.cli.ledger.command", "create, write, read, tail, list, show and delete ledgers"),
    "shell": ("bookkeeper.cli.shell.command", "administration with Apache's command names; offline readers"),
    "perf": ("bookkeeper.cli.perf.command", "measure writes and reads"),
    "config": ("bookkeeper.cli.config", "show and check settings"),
    "auth": ("bookkeeper.cli.auth", "make the lines of a bookie's password file"),
    "demo": ("bookkeeper.cli.demo.command", "a cluster, real data, a killed bookie"),
}

EXAMPLES = """\
examples:
  bookkeeper standalone                              a ZooKeeper and a bookie, to play with
  bookkeeper localbookie 4                           four bookies on one machine
  seq 1000 | bookkeeper ledger write                 one entry per line; prints the ledger id
  bookkeeper ledger read 0                           ... and back
  bookkeeper shell simpletest -e 3 -w 2 -a 2 -n 100  does the cluster work?
  bookkeeper perf write -entrysize 1024 -time 20     how fast is it?

`bookkeeper COMMAND --help` has the options, defaults and examples of each command.

exit codes: 0 ok, 1 failure, 2 usage, 130 interrupted, 141 nobody reads the output any more (`| head`); those of a
bookie are in `bookkeeper bookie --help`
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (default: the process's arguments) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verbose = bool({"-v", "-vv", "--verbose"} & set(arguments))
    try:
        exit_code = _dispatch(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, not at interpreter exit, where nobody can say what went wrong
        return exit_code
    except CommandFailed as failure:
        print(f"bookkeeper: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone (`| head`); say nothing more, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the edge of the program: one line, the traceback only with -v
        if verbose:
            traceback.print_exc()
        text = expected_text(error)
        if text is None:  # only then is there more to be learnt from where it happened
            text = f"{type(error).__name__}: {error}" + ("" if verbose else " (-v shows where)")
        print(f"bookkeeper: {text}", file=sys.stderr)
        return EXIT_FAILURE


def _dispatch(arguments: list[str]) -> int:
    # The commands of other packages are looked up only for help and for names that are none of ours.
    commands = COMMANDS if arguments and arguments[0] in COMMANDS else all_commands()
    parser = LazyParser(
        prog="bookkeeper", description="Replicated logs that speak Apache BookKeeper's protocols.", epilog=EXAMPLES
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    add_verbose(parser)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module_name, summary) in commands.items():
        subparsers.add_parser(name, help=summary, fill=partial(_fill, module_name, summary))
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:
        return EXIT_USAGE if stop.code not in (0, None) else EXIT_OK
    return int(importlib.import_module(commands[args.command][0]).run(args) or EXIT_OK)


def all_commands() -> dict[str, tuple[str, str]]:
    """Name -> (module, summary) of our own commands and of those that other packages add."""
    import importlib.metadata

    commands = dict(COMMANDS)
    for entry_point in importlib.metadata.entry_points(group="bookkeeper.commands"):
        commands.setdefault(entry_point.name, (entry_point.value, f"from {entry_point.module}"))
    return commands


def _fill(module_name: str, summary: str, parser: argparse.ArgumentParser) -> None:
    module = importlib.import_module(module_name)
    parser.description = (module.__doc__ or summary).strip()
    module.add_arguments(parser)


class _ShowVersion(argparse.Action):
    """Looks the version up only when it is asked for: reading package metadata costs as much as the rest of a start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata

        try:
            version = importlib.metadata.version("pybookkeeper")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed)"
        print(f"pybookkeeper {version}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
