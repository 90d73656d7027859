"""Giving Python packages to tasks on machines where they are not installed: wheels, as they are.

Spark sends files to its tasks (`--py-files` of spark-submit, SparkContext.addPyFile), and puts those on their path
whose names end in .zip, .egg or .jar. A wheel is a zip file by another name: it would be sent, and not be found. So a
copy goes that is called .zip. From there entry points are found as well, by the metadata that a wheel holds.

The process of the driver that plans a stream looks for all of this in a directory that is never there (Spark 4.3): it
would find none of our formats. It has the path of each archive in its environment, as every process of Python has then.

Before a format is registered: with it Spark notes what its tasks have on their path. Thread: any.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from zipimport import zipimporter

from pyspark import SparkContext
from pyspark.sql import SparkSession

WHEEL, ZIP = ".whl", ".zip"
PATH = "PYTHONPATH"

_PACKAGE = __name__.partition(".")[0]
_shipped: set[tuple[str | None, str]] = set()


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    """Until the program ends: executors that start late fetch the copies from there."""
    return tempfile.TemporaryDirectory(prefix="bookkeeper-spark-")


def ship(spark: SparkSession, files: Iterable[str]) -> None:
    """Put wheels, and what Spark knows itself (.zip, .egg, .jar, .py), on the path of the session's tasks.

    Raises OSError for a wheel that cannot be read.
    """
    context = spark.sparkContext
    for file in files:
        if (context.applicationId, file) not in _shipped:
            context.addPyFile(_as_zip(file))
            _add_to_path(context, file)
            _shipped.add((context.applicationId, file))


def ship_own(spark: SparkSession) -> None:
    """The archive that this package was imported from, where it was one: spark-submit had it in --py-files."""
    loader = getattr(sys.modules[_PACKAGE].__spec__, "loader", None)
    if not isinstance(loader, zipimporter):
        return
    if loader.archive.endswith(WHEEL):
        ship(spark, [loader.archive])
    else:
        _add_to_path(spark.sparkContext, loader.archive)


def _add_to_path(context: SparkContext, file: str) -> None:
    path = context.environment.get(PATH, "")
    file = os.path.abspath(file)
    if file not in path.split(os.pathsep):
        context.environment[PATH] = f"{path}{os.pathsep}{file}" if path else file


def _as_zip(file: str) -> str:
    if not file.endswith(WHEEL):
        return file
    return shutil.copyfile(file, Path(_directory().name, Path(file).stem + ZIP)).__fspath__()
