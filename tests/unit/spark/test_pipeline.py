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
  bookkeeper.spark.exports.manifest.NotAnExport: no
"""


def test_lines_that_name_an_error_of_ours_are_told_once_and_else_everything() -> None:
    told = told_by_spark(PySparkException(TRACE))
    assert told == "NoSuchLedger: ledger 7 is gone; bookkeeper.spark.exports.manifest.NotAnExport: no"
    assert told_by_spark(PySparkException("java.io.IOException: disk")) == "java.io.IOException: disk"
