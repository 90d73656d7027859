"""The Spark session of a command: on the master it was told, with Spark's own progress bar, stopped when it is over.

An interrupt is Python's own: Spark's handler calls Spark in the middle of a call and leaves traces; py4j logs
its stack and raises it all the same, and those of calls that fail as Spark is stopped then, so these are left out. What
Spark raises and no pipeline took ends the command with what it says, without the stack of its JVM.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import bookkeeper.spark
from bookkeeper.console.output import CommandFailed, note

if TYPE_CHECKING:
    from bookkeeper.spark.outputs import OutputState

Ending = str | Callable[[], str]
"""What is said where an interrupt ends a command, or what tells that then."""


@contextmanager
def spark_session(args: argparse.Namespace, *, progress: bool = True, interrupted: Ending = "") -> Iterator[Any]:
    """A session for the time of a `with`. args: those of `words.add_spark_arguments`. progress: of long jobs, shown.

    interrupted: what becomes of what was begun, and how to go on; said where an interrupt ends it, unless it is "".
    """
    from bookkeeper.spark.pipeline import SPARK_ERRORS, told_by_spark
    from bookkeeper.spark.process_client import show_warnings

    show_warnings()
    shown = progress and sys.stderr.isatty()  # not in a file, or a mail of cron
    config = {"spark.ui.showConsoleProgress": str(shown).lower()}
    spark = bookkeeper.spark.local_session(args.master, config=config, py_files=args.py_files)
    quiet = _Quiet()
    signal.signal(signal.SIGINT, quiet.interrupt)
    logging.getLogger().addFilter(quiet)
    try:
        yield spark
    except SPARK_ERRORS as error:
        raise CommandFailed(told_by_spark(error)) from error
    except KeyboardInterrupt:
        text = interrupted if isinstance(interrupted, str) else interrupted()
        if text:
            note(f"interrupted; {text}")
        raise
    finally:
        spark.stop()


class _Quiet(logging.Filter):
    """Leaves out what py4j logs from an interrupt on: on the logger of all, which has this filter, and on its own."""

    interrupted = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal."""
        self.interrupted = True
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        signal.default_int_handler(number, frame)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is shown."""
        return not (self.interrupted and "py4j" in Path(record.pathname).parts)


def unfinished(output: str | None, state: OutputState) -> str:
    """What becomes of a directory of rows where a command is interrupted that writes nothing else.

    Only what this run itself has begun is to be removed: what stood there before is not known to be worth nothing.
    """
    from bookkeeper.spark.outputs import Stage

    if output is None:
        return ""
    match state.stage:
        case Stage.NOTHING:
            return "nothing was written"
        case Stage.COMPLETE:
            return f"{output} is complete"
        case _:
            return f"{output} is not complete: remove it, or take another directory for the next"


def unfinished_export(output: str, state: OutputState) -> str:
    """The same of an export, which is one from its manifest on."""
    from bookkeeper.spark.outputs import Stage

    match state.stage:
        case Stage.BEGUN:
            return f"{output} has no manifest and is no export: remove it, or take another directory for the next"
        case Stage.ENDING:
            return f"the manifest of {output} was being written: an import with --dry-run tells whether it is an export"
        case Stage.COMPLETE:
            return f"the export in {output} is complete"
        case _:
            return "nothing was written"
