"""Our errors out of Spark's."""

from __future__ import annotations

from bookkeeper.spark.spark_errors import told

TRACE = """[PYTHON] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/bookkeeper/spark/exports/reading.py", line 1, in read
bookkeeper.errors.NoSuchLedger: ledger 7 is gone
    at org.apache.spark.Anything
bookkeeper.errors.NoSuchLedger: ledger 7 is gone
  bookkeeper.spark.exports.manifest.NotAnExport: no
"""


def test_lines_that_name_an_error_of_ours_are_told_once_and_else_everything() -> None:
    assert told(TRACE) == "NoSuchLedger: ledger 7 is gone; bookkeeper.spark.exports.manifest.NotAnExport: no"
    assert told("java.io.IOException: disk") == "java.io.IOException: disk"
