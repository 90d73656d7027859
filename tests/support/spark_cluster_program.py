"""A program that spark-submit runs on a cluster of machines, with the project in a wheel: its facts as JSON lines.

    work    what its tasks are, a batch read, tables that other packages add, a topic as a stream; a batch write in
            which an executor is killed; a stream from ledgers to ledgers in which one is, and then the program
    rest    the same stream from its checkpoint to its end, what both writes have committed, an audit as the command

It imports nothing of the tests but `faulty_ledger_sink`, from its own directory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from faulty_ledger_sink import register_faulty_sink  # type: ignore[import-not-found]
from pyspark.sql import DataFrame, SparkSession

import bookkeeper.spark
import hedwig.spark
from bookkeeper.cli.main import main as bookkeeper_command

FACT = "FACT "
PATIENCE_S = 600


def tell(name: str, fact: object) -> None:
    """A line for who started this."""
    sys.stdout.write(f"{FACT}{json.dumps([name, fact])}\n")
    sys.stdout.flush()


def about_this_task(_: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """In a task: where it runs."""
    import bookkeeper

    yield {
        "pid": os.getpid(),
        "directory": os.getcwd(),
        "environment": sorted(os.environ),
        "python": sys.executable,
        "package": bookkeeper.__file__,
    }


def counted(rows: DataFrame, *what: str) -> list[int]:
    """Rows, and sums or counts."""
    found = rows.selectExpr("count(*)", *what).first()
    assert found is not None
    return [int(each) for each in found]


class Program:
    """One run. given: what the test chose."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given, self._uri = given, given["uri"]
        self._spark = SparkSession.builder.getOrCreate()
        bookkeeper.spark.register(self._spark)
        hedwig.spark.register(self._spark)
        register_faulty_sink(self._spark)

    def work(self) -> None:
        """Up to where it is killed."""
        context = self._spark.sparkContext
        tell("tasks", context.parallelize(range(4), 4).mapPartitions(about_this_task).collect())
        tell(
            "read", counted(self._ledgers(minPartitions=4), "sum(length(value))", "count(DISTINCT ledger_id, entry_id)")
        )
        tell("tables", {name: self._table(name, **words) for name, words in self._given["tables"].items()})
        tell("help", bookkeeper.spark.cluster_help())
        tell("topic", self._topic())
        self._write_a_batch()
        self._stream("faulty-bookkeeper", fault="task hangs, committed hangs", marks=self._given["stream_marks"])

    def rest(self) -> None:
        """From the checkpoint on."""
        query = self._stream("bookkeeper")
        tell("query", query)
        for name, whose in (("batch", {"job": self._given["job"]}), ("stream", {"query": query})):
            rows = self._spark.read.format("bookkeeper").options(**self._commits, **whose).load()
            tell(name, counted(rows, "count(DISTINCT value)", "sum(length(value))"))
        # As a command of the same program: it takes the session of spark-submit, and ends it.
        executors = self._spark.sparkContext.master
        code = bookkeeper_command(["spark", "audit", "--uri", self._uri, "--json", "--ledgers", self._given["audited"]])
        tell("audit", [executors, code])

    @property
    def _commits(self) -> dict[str, str]:
        return {"uri": self._uri, "commitPath": self._given["commits"]}

    def _ledgers(self, **options: object) -> DataFrame:
        words = {"uri": self._uri, "ledgers": self._given["ledgers"], **options}
        return self._spark.read.format("bookkeeper").options(**words).load()

    def _table(self, name: str, **words: str) -> list[int] | str:
        try:
            return counted(
                self._spark.read.format("bookkeeper.cluster").options(uri=self._uri, table=name, **words).load()
            )
        except Exception as error:  # noqa: BLE001 - whatever Spark makes of ours
            return str(error)

    def _topic(self) -> list[int]:
        stream = self._spark.readStream.format("hedwig").options(**self._given["topic"]).load()
        writer = stream.writeStream.format("memory").queryName("messages").trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{self._given['checkpoint']}-topic").start()
        assert query.awaitTermination(PATIENCE_S)
        return counted(self._spark.table("messages"), "count(DISTINCT offset)", "sum(length(value))")

    def _write_a_batch(self) -> None:
        rows = self._ledgers(minPartitions=2).selectExpr("concat(ledger_id, ':', entry_id) AS value")
        writer = rows.write.format("faulty-bookkeeper").mode("append").options(**self._commits, job=self._given["job"])
        writer.options(fault="task hangs", marks=self._given["batch_marks"]).save()
        tell("written", True)

    def _stream(self, sink: str, **options: str) -> str:
        words = {"uri": self._uri, "ledgers": self._given["ledgers"], "startingOffsets": "earliest"}
        rows = self._spark.readStream.format("bookkeeper").options(
            **words, maxEntriesPerTrigger=self._given["entries_per_trigger"], minPartitions=2
        )
        values = rows.load().selectExpr("concat(ledger_id, ':', entry_id) AS value")
        writer = values.writeStream.format(sink).options(**self._commits, **options).trigger(availableNow=True)
        query = writer.option("checkpointLocation", self._given["checkpoint"]).start()
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
        return str(query.id)


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    getattr(Program(wanted), wanted["stage"])()
