"""The format bookkeeper for a test that wants a write to fail at one step, once.

    spark.dataSource.register(FaultySink)
    frame.write.format("faulty-bookkeeper").option("fault", "task killed").option("marks", directory)...

    task raises, task killed                 partition 0, after its first Arrow batch is in a ledger
    task hangs, committed hangs              there; tells its process id by the pipe `begun`, waits for the pipe `never`
    commit raises, commit killed             before anything is committed
    committed raises, committed killed       after the commit took effect: its answer is lost
    abort raises                             after a commit that raised: nobody cleans up

Several faults have commas between them. `marks` is a directory, in which each fault that happened leaves a file, so
that it happens once over all processes.
Spark's processes do not know the tests' modules: `register_faulty_sink` has this one pickled by value.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext, cloudpickle

from bookkeeper.spark.ledgers.source import LedgerSource
from bookkeeper.spark.sink.options import read_sink_options
from bookkeeper.spark.sink.sink import LedgerBatchWriter, LedgerStreamWriter, LedgerWritten, check_rows


class Injected(Exception):
    """The fault."""


class _Faults:
    """Given to a writer as `faults`."""

    def __init__(self, wanted: str, marks: str) -> None:
        self._wanted = {step: how for step, _, how in (each.strip().rpartition(" ") for each in wanted.split(","))}
        self.marks = marks

    def reach(self, step: str) -> None:
        """Fail here, if that was asked for and has not happened yet."""
        how = self._wanted.get(step)
        if how is None and step == "commit":
            how = self._wanted.get("abort")  # which nothing comes to but behind a commit that failed
        if how is None:
            return
        try:
            Path(self.marks, f"{step} {how}").touch(exist_ok=False)
        except FileExistsError:
            return
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hangs":
            Path(self.marks, "begun").write_text(str(os.getpid()))
            Path(self.marks, "never").read_text()
        raise Injected(f"{step} {how}")

    def rows(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, with the fault of a task among them."""
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number and not context.partitionId():
                self.reach("task")
            yield batch


class _BatchWriter(LedgerBatchWriter):
    faults: _Faults

    def write(self, iterator: Iterator[Any]) -> LedgerWritten:
        return super().write(self.faults.rows(iterator))

    def commit(self, messages: Any) -> None:
        self.faults.reach("commit")
        super().commit(messages)
        self.faults.reach("committed")

    def abort(self, messages: Any) -> None:
        self.faults.reach("abort")
        super().abort(messages)
        Path(self.faults.marks, "aborted").touch()


class _StreamWriter(LedgerStreamWriter):
    faults: _Faults

    def write(self, iterator: Iterator[Any]) -> LedgerWritten:
        return super().write(self.faults.rows(iterator))

    def commit(self, messages: Any, batchId: int) -> None:
        self.faults.reach("commit")
        super().commit(messages, batchId)
        self.faults.reach("committed")

    def abort(self, messages: Any, batchId: int) -> None:
        self.faults.reach("abort")
        super().abort(messages, batchId)
        Path(self.faults.marks, "aborted").touch()


class FaultySink(LedgerSource):
    """The sink with a fault."""

    @classmethod
    def name(cls) -> str:
        return "faulty-bookkeeper"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        check_rows(schema, overwrite=overwrite)
        return self._faulty(_BatchWriter)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        check_rows(schema, overwrite=overwrite)
        return self._faulty(_StreamWriter)

    def _faulty(self, kind: Any) -> Any:
        words = {word: value for word, value in self.options.items() if word not in ("fault", "marks")}
        writer = kind(read_sink_options(words))
        writer.faults = _Faults(self.options["fault"], self.options["marks"])
        return writer


def register_faulty_sink(spark: Any) -> None:
    """Make the format known to a session."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(FaultySink)
