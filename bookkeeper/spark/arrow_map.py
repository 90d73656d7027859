"""`DataFrame.mapInArrow` where pandas is not installed.

Spark 4.3 asks for pandas as soon as one of its vectorized functions is made, also for this one, which hands over Arrow
batches and nothing of pandas. Where pandas is not there the function is made as Spark makes it behind that question.
The extra `spark` names the release of Spark to which that belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

ArrowMap = Callable[[Iterator[Any]], Iterator[Any]]
"""From the Arrow record batches of a partition to others."""


def map_in_arrow(rows: DataFrame, function: ArrowMap, schema: StructType | str) -> DataFrame:
    """The rows that a function makes of the batches of each partition; its batches have the columns of `schema`."""
    if find_spec("pandas") is not None:
        return rows.mapInArrow(function, schema)
    made = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = made(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)  # noqa: SLF001 - see above
