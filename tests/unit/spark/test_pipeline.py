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


def test_all_faults_of_usage_are_told_in_whose_words_ever() -> None:
    faults = "2 faults in the configuration:\n  {}: x is no number\n  {}: is unknown; did you mean y?\n------\n"
    for words in (("option a of format b", "option c of format b"), ("--a", "-D c")):
        text = "Traceback (most recent call last):\nbookkeeper.errors.ConfigurationError: " + faults.format(*words)
        told = told_by_spark(PySparkException(text))
        assert told == (
            "ConfigurationError: 2 faults in the configuration:; "
            f"{words[0]}: x is no number; {words[1]}: is unknown; did you mean y?"
        )


def test_of_a_directory_that_is_there_it_is_told_what_to_do() -> None:
    class Exists(PySparkException):
        def getCondition(self) -> str:
            return "PATH_ALREADY_EXISTS"

        def getMessageParameters(self) -> dict[str, str]:
            return {"outputPath": "file:/backup/monday/ledgers"}

    error = Exists('[PATH_ALREADY_EXISTS] Path file:/backup/monday/ledgers already exists. Set mode as "overwrite" ...')
    assert told_by_spark(error) == "/backup/monday/ledgers already exists: name a directory that does not, or remove it"


def test_what_spark_says_is_told_without_the_stack_of_its_jvm() -> None:
    text = (
        "[FAILED_READ_FILE] of file:/x/1.parquet.\n\nJVM stacktrace:\norg.apache.spark.SparkException: x\n\tat a.b(C)"
    )
    assert told_by_spark(PySparkException(text)) == "[FAILED_READ_FILE] of file:/x/1.parquet."
    assert told_by_spark(PySparkException("java.io.IOException: no\n\tat a.b\n\tat c.d")) == "java.io.IOException: no"
    assert told_by_spark(PySparkException("\tat a.b")) == "PySparkException"
