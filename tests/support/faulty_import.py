"""The tasks of an import with a fault: one of them fails once, behind the first ledger that it finished.

    monkeypatch.setattr(writing, "writing", faulty_writing("killed", marks))

How it fails: `raises`, or `killed`. `marks` is a directory, in which the fault leaves a file, so that it happens once
over all processes. Spark's processes do not know the tests' modules: this one is pickled by value.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from bookkeeper.spark.exports.writing import writing


class Injected(Exception):
    """The fault."""


def faulty_writing(how: str, marks: Path) -> Callable[..., Any]:
    """In the place of `writing.writing`."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    place = str(marks / how)

    def faulty(*words: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
        write = writing(*words)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            found = write(batches)
            for result in found:
                _fail_once(how, place, found)
                yield result

        return run

    return faulty


def _fail_once(how: str, place: str, found: Any) -> None:
    try:
        Path(place).touch(exist_ok=False)
    except FileExistsError:
        return
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    found.throw(Injected(how))
