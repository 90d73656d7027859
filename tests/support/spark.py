"""One Spark session for all tests of a run: local, two task slots, small, no web page.

Starting it takes some seconds, so it is made once and stopped when the process ends. The workers run the interpreter of
the tests. `local[2,3]`: a task that fails is tried three times, as on a cluster.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import tempfile
from typing import Any

from bookkeeper.embedded.java import find_java


@functools.cache
def spark_session() -> Any:
    """The session."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    from pyspark.sql import SparkSession

    import bookkeeper.spark

    directory = tempfile.mkdtemp(prefix="spark-tests-")
    spark = (
        SparkSession.builder.master("local[2,3]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", directory)
        .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        .config("spark.driver.memory", "1g")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    atexit.register(spark.stop)
    bookkeeper.spark.register(spark)
    return spark
