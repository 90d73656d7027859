"""What pipelines say of an error of Spark."""

from __future__ import annotations

from pyspark.errors import PySparkException

from bookkeeper.spark.pipeline import told_by_spark

TRACE = """[PYTHON] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/bookkeeper/spark/exports/reading.py", line 1, in read
bookkeeper.errors.NoSuchLedger: ledger 7 is gone
    at org.apache.spark.Anything
bookkeeper.errors.NoSuchLedger: ledger 7 is gone
hedwig.errors.TopicBusy: it is
pyspark.errors.exceptions.base.PySparkValueError: of no interest
  bookkeeper.spark.exports.manifest.NotAnExport: no
"""


def test_lines_that_name_an_error_of_ours_are_told_once_and_else_everything() -> None:
    told = told_by_spark(PySparkException(TRACE))
    assert told == (
        "NoSuchLedger: ledger 7 is gone; TopicBusy: it is; bookkeeper.spark.exports.manifest.NotAnExport: no"
    )
    replay = PySparkException("journalmgr.namenode.errors.ReplayError: txid 7, OP_DELETE of /x: nothing is there")
    assert told_by_spark(replay) == "ReplayError: txid 7, OP_DELETE of /x: nothing is there"
    assert told_by_spark(PySparkException("java.io.IOException: disk")) == "java.io.IOException: disk"


def test_what_spark_says_is_told_without_the_stack_of_its_jvm() -> None:
    text = (
        "[FAILED_READ_FILE] of file:/x/1.parquet.\n\nJVM stacktrace:\norg.apache.spark.SparkException: x\n\tat a.b(C)"
    )
    assert told_by_spark(PySparkException(text)) == "[FAILED_READ_FILE] of file:/x/1.parquet."
    assert told_by_spark(PySparkException("java.io.IOException: no\n\tat a.b\n\tat c.d")) == "java.io.IOException: no"
    assert told_by_spark(PySparkException("\tat a.b")) == "PySparkException"
