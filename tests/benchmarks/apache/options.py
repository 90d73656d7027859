"""The words of a benchmark's command line, and its runs: each is a file of JSON lines in a directory."""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Callable
from pathlib import Path

from bookkeeper.console.output import counted

RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
"""A run's id names a file and a directory among the runs, never one elsewhere and never a hidden one."""


class Refused(Exception):
    """It cannot run so; the message says why."""


def parser_of(
    name: str, description: str, *, example: str, repetitions: int, seconds: float, minutes: float, cache: str
) -> argparse.ArgumentParser:
    """`run`, `plan` and `report` with their options. example: of cells; the numbers are defaults, told to the user."""
    parser = argparse.ArgumentParser(prog=name, description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    for command_name, meaning in (("run", "measure, or resume with --id"), ("plan", "only say what would run")):
        command = commands.add_parser(command_name, help=meaning)
        command.add_argument("--cells", default="", help=f"comma-separated globs: {example}")
        command.add_argument("--reps", type=positive(int), help=f"repetitions ({repetitions})")
        command.add_argument("--seconds", type=positive(float), help=f"of a measurement ({seconds:g})")
        command.add_argument("--id", type=run_id, default="", help="of the run; one that exists is resumed")
        command.add_argument("--directory", type=Path, help=f"where both write ({cache} of the checkout)")
        command.add_argument("--minutes", type=positive(float), default=minutes, help="stop after these")
    report = commands.add_parser("report", help="the tables again")
    report.add_argument(
        "name", nargs="?", type=run_name, default="", help="id of a run or a file; the newest run when absent"
    )
    return parser


def positive(kind: type[int] | type[float]) -> type[int] | type[float]:
    """A type of argparse's: such a number above 0."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not (value > 0 and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' * (kind is int)}number above 0")
        return value

    return parse  # type: ignore[return-value]  # argparse takes any callable


def run_id(text: str) -> str:
    """A type of argparse's: what RUN_ID matches, or nothing."""
    if text and not RUN_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no id of a run: use letters, digits, '-', '_' and '.', not '.' first, 100 at most"
        )
    return text


def run_name(text: str) -> str:
    """A type of argparse's: the id of a run, or its file."""
    return text if text.endswith(".jsonl") else run_id(text)


def file_of(cache: Path, name: str) -> Path:
    """The JSON lines of a run; of the newest for "". Raises Refused."""
    if not name:
        files = sorted(cache.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        if not files:
            raise Refused(f"no run in {cache}")
        return files[-1]
    path = Path(name) if name.endswith(".jsonl") else cache / f"{name}.jsonl"
    if not path.exists():
        raise Refused(f"there is no {path}")
    return path


def minutes_text(seconds: float) -> str:
    """At least one."""
    return counted(max(1, round(seconds / 60)), "minute")


def progress() -> Callable[[str], None]:
    """Tells what goes on before there are results, each line with the seconds since now."""
    began = time.monotonic()
    return lambda text: print(f"[{time.monotonic() - began:3.0f} s] {text}", flush=True)
