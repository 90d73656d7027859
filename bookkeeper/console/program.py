"""What every console program here does: find the command, load its module, map its outcome to an exit code.

A command is a module with `add_arguments(parser)` and `run(args) -> int`, and, where it takes words that argparse does
not, `arrange(words)`, which makes others of them. Only the module of the command that was
typed is imported, so `--help` and a service's start do not pay for the rest. Other packages add commands through the
program's entry-point group (name = entry point, value = such a module).

What a command prints arrives, or the exit code is not 0: also where standard output was closed by whoever started it.

Exit codes: 0 ok, 1 failure, 2 usage, 3 partial (a list omits records that cannot be read), 130 interrupted, 141 the
output is no longer read (silently, as in `seq 9999 | head`); a service may have others besides.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bookkeeper.console.output import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    closed_stream,
    drop_output,
    expected_text,
    indented,
    lost_output,
    prepare_streams,
)
from bookkeeper.console.subcommands import LazyParser, add_verbose

Commands = Mapping[str, tuple[str, str]]
"""Name -> module, summary."""


@dataclass(frozen=True, slots=True)
class Program:
    """One console program.

    name: as it is typed. examples: shown at the end of --help. commands: its own. plugins: the entry-point group of
    commands that other packages add.
    """

    name: str
    description: str
    examples: str
    commands: Commands
    plugins: str

    def run(self, argv: Sequence[str] | None = None) -> int:
        """Run it with `argv` (default: the process's arguments) and return its exit code.

        Without `argv` the process is to end with that code: an interrupt that comes later changes nothing any more.
        """
        if argv is not None:
            return self._run(list(argv))
        try:
            exit_code = self._run(sys.argv[1:])
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return EXIT_INTERRUPTED
        return exit_code

    def _run(self, arguments: list[str]) -> int:
        closed = prepare_streams()
        try:
            exit_code, said = self._outcome(arguments, closed)
            lost = lost_output()  # here, not at interpreter exit, where nobody can say what went wrong
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            # Whoever read our output is gone (`| head`); say nothing more, not even at interpreter exit.
            drop_output()
            return EXIT_BROKEN_PIPE
        for text in dict.fromkeys((said, lost)):  # once, where they are the same
            if text is not None:
                print(indented(f"{self.name}: {text}"), file=sys.stderr)
        return exit_code if lost is None else exit_code or EXIT_FAILURE

    def _outcome(self, arguments: list[str], closed: frozenset[str]) -> tuple[int, str | None]:
        """Exit code, and what went wrong if anything did."""
        verbose = bool({"-v", "--verbose"} & set(arguments))  # until it is known which words are values
        try:
            commands, args = self._parsed(arguments)
            if isinstance(args, int):
                return args, None
            verbose = bool(getattr(args, "verbose", False))
            return int(importlib.import_module(commands[args.command][0]).run(args) or EXIT_OK), None
        except CommandFailed as failure:
            if verbose and failure.__cause__ is not None:
                traceback.print_exception(failure.__cause__)
            return failure.exit_code, str(failure)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the program: one line, the traceback only with -v
            if verbose:
                traceback.print_exc()
            text = lost_output() if isinstance(error, OSError) and error.filename is None else None
            text = text or closed_stream(error, closed) or expected_text(error)
            if text is None:  # only then is there more to be learnt from where it happened
                text = f"{type(error).__name__}: {error}" + ("" if verbose else " (-v shows where)")
            return EXIT_FAILURE, text

    def _parsed(self, arguments: list[str]) -> tuple[Commands, argparse.Namespace | int]:
        """The commands among which one was looked for, and what was asked for; an exit code where that was all."""
        # The commands of other packages are looked up only for help and for names that are none of ours.
        commands = self.commands if arguments and arguments[0] in self.commands else self.all_commands()
        parser = LazyParser(prog=self.name, description=self.description, epilog=self.examples)
        parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
        add_verbose(parser)
        subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
        for name, (module_name, summary) in commands.items():
            subparsers.add_parser(name, help=summary, fill=partial(_fill, module_name, summary))
        try:
            return commands, parser.parse_args(_arranged(arguments, commands))
        except SystemExit as stop:
            return commands, EXIT_USAGE if stop.code not in (0, None) else EXIT_OK

    def all_commands(self) -> Commands:
        """Its own commands and those that other packages add."""
        import importlib.metadata

        commands = dict(self.commands)
        for entry_point in importlib.metadata.entry_points(group=self.plugins):
            commands.setdefault(entry_point.name, (entry_point.value, f"from {entry_point.module}"))
        return commands


def _arranged(arguments: list[str], commands: Commands) -> list[str]:
    """The words as the command wants them before they are parsed, if it has a wish."""
    at = next((position for position, word in enumerate(arguments) if not word.startswith("-")), None)
    if at is None or arguments[at] not in commands:
        return arguments
    arrange = getattr(importlib.import_module(commands[arguments[at]][0]), "arrange", None)
    return arguments if arrange is None else [*arguments[: at + 1], *arrange(arguments[at + 1 :])]


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
