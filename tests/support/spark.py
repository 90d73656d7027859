"""One Spark session for all tests of a run: local, two task slots, small, no web page.

Starting it takes some seconds, so it is made once and stopped when the process ends. `local[2,3]`: a task that fails is
tried three times, as on a cluster.
"""

from __future__ import annotations

import atexit
import functools
import tempfile
from typing import Any

SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Starts sooner, on few cores: what runs for seconds pays for no optimising compiler."""

OF_SPARK = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
"""Variables by which every Java gets options that Spark starts for a program, also for a command of ours."""


@functools.cache
def spark_session() -> Any:
    """The session."""
    from bookkeeper.spark.sessions import local_session

    directory = tempfile.mkdtemp(prefix="spark-tests-")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": directory,
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.driver.memory": "1g",
    }
    spark = local_session("local[2,3]", name="tests", config=settings)
    atexit.register(spark.stop)
    return spark
