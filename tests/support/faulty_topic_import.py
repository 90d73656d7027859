"""The tasks of an import of topics with a fault: one of them fails in the middle of a topic, with some of it stored.

    monkeypatch.setattr(publishing, "publishing", faulty_publishing("killed", marks, hub, times=1))

How it fails: `raises`, or `killed`; so many times over all processes: `marks` is a directory, in which each fault
leaves a file. Spark's processes do not know the tests' modules: this one is pickled by value.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import hedwig.blocking
from hedwig.spark.exports.publishing import publishing

PIECE, PIECES = 40, 2
"""Rows of a batch here, and batches before the fault."""


class Injected(Exception):
    """The fault."""


def faulty_publishing(how: str, marks: Path, hub: str, *, times: int) -> Callable[..., Any]:
    """In the place of `publishing.publishing`. hub: where to look whether something is stored."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    places = [str(marks / f"{how}-{number}") for number in range(times)]

    def faulty(*words: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
        publish = publishing(*words)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            return publish(_until_it_fails(batches, how, places, hub))

        return run

    return faulty


def _until_it_fails(batches: Iterator[Any], how: str, places: list[str], hub: str) -> Iterator[Any]:
    count = 0
    for batch in batches:
        for at in range(0, batch.num_rows, PIECE):
            if count == PIECES:
                _fail(how, places, hub, batch.column("topic")[at].as_py())
            count += 1
            yield batch.slice(at, PIECE)


def _fail(how: str, places: list[str], hub: str, topic: str) -> None:
    for place in places:
        try:
            Path(place).touch(exist_ok=False)
        except FileExistsError:
            continue
        with hedwig.blocking.connect(hub) as client, client.subscribe(topic, "watch", start=1) as messages:
            assert messages.receive(1, 90.0), "some are stored"
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise Injected(how)
