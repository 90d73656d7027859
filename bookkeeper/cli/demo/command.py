"""A real cluster on this machine, real data, a killed bookie: what the software promises, shown.

exit codes: 0 all promises held, 1 one did not, 2 usage, 130 stopped by Ctrl-C or SIGTERM, with nothing left behind

examples:
  bookkeeper demo             every part
  bookkeeper demo ledgers     one part
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import io
import sys
import time
from collections.abc import Callable

from bookkeeper.console.output import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, CommandFailed
from bookkeeper.console.subcommands import add_verbose
from bookkeeper.console.supervision import stopping_on_signals

PARTS = {"ledgers": "bookkeeper.cli.demo.ledgers:run"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper demo`."""
    add_verbose(parser)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to run (default: all): {', '.join(_parts())}")


def _parts() -> dict[str, str]:
    parts = dict(PARTS)
    for entry_point in importlib.metadata.entry_points(group="bookkeeper.demo"):
        parts.setdefault(entry_point.name, entry_point.value)
    return parts


def run(args: argparse.Namespace) -> int:
    """Run the parts one after the other."""
    parts = _parts()
    unknown = [name for name in args.parts if name not in parts]
    if unknown:
        raise CommandFailed(f"no demo part {unknown[0]!r}; there are: {', '.join(parts)}", EXIT_USAGE)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # it takes a while: what is done shows at once, in a pipe too
    with stopping_on_signals(EXIT_INTERRUPTED):
        for name in args.parts or parts:
            _run_part(name, parts[name])
    return EXIT_OK


def _run_part(name: str, where: str) -> None:
    module, _, function = where.partition(":")
    print(f"=== {name}", flush=True)
    started = time.perf_counter()
    part: Callable[[], None] = getattr(importlib.import_module(module), function)
    part()
    print(f"=== {name}: done in {time.perf_counter() - started:.1f} s", flush=True)
