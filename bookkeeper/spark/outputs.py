"""Directories that pipelines write to: new ones only, on any path that Spark can use, and how far each run has come.

What a run finds there it never touches, and nobody is told to remove it: a directory with anything in it is refused
before the run asks or writes anything, and what an interrupt leaves behind is told from the run's own `OutputState`,
not from what is there.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from bookkeeper.errors import InvalidArgument


class Stage(enum.Enum):
    """How much of a directory one run has written."""

    NOTHING = enum.auto()
    BEGUN = enum.auto()
    """Some of it, or none yet."""
    ENDING = enum.auto()
    """All but the last of it, which may be there already: who is interrupted meanwhile cannot tell."""
    COMPLETE = enum.auto()


@dataclass(slots=True)
class OutputState:
    """How far a run has come with its directory. The run moves it on; who is interrupted reads it."""

    stage: Stage = Stage.NOTHING


_PATTERN = re.compile(r"([\\*?\[\]{}])")
"""What Spark takes for a pattern in a path that it reads, and as it is in one that it writes."""


def check_new(spark: SparkSession, directory: str) -> None:
    """Raise InvalidArgument where there is anything: known before hours of work rather than behind them."""
    if not _is_new(spark, directory):
        raise InvalidArgument(f"output {directory} exists: name a directory that does not, or an empty one")


def _is_new(spark: SparkSession, directory: str) -> bool:
    literal = _PATTERN.sub(r"\\\1", directory)
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true")  # `date=` in a path means nothing
    try:
        if files.load(literal).select("path").limit(1).count():
            return False
        files.load(f"{literal}/*")  # what Spark leaves out, too: empty directories, names that begin with _
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return True
    return False
