"""Tables as Spark and Arrow have them: schemas, and rows as record batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bookkeeper.spark.cluster.table import ClusterTable, Of, Row
from bookkeeper.spark.columns import arrow_schema

_TYPES: dict[Of, DataType] = {
    Of.LONG: LongType(),
    Of.INT: IntegerType(),
    Of.DOUBLE: DoubleType(),
    Of.BOOLEAN: BooleanType(),
    Of.TEXT: StringType(),
    Of.TIME: TimestampType(),
    Of.TEXTS: ArrayType(StringType(), containsNull=False),
    Of.TEXT_BY_TEXT: MapType(StringType(), StringType(), valueContainsNull=False),
    Of.BYTES_BY_TEXT: MapType(StringType(), BinaryType(), valueContainsNull=False),
}


def schema_of(table: ClusterTable) -> StructType:
    """The schema of its rows."""
    return StructType([StructField(each.name, _TYPES[each.of], each.nullable) for each in table.columns])


def batch_of(table: ClusterTable, rows: Sequence[Row]) -> Any:
    """Rows as one record batch."""
    schema = arrow_schema(schema_of(table))
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            _array(column.of, values, field.type)
            for column, values, field in zip(table.columns, columns, schema, strict=True)
        ],
        schema=schema,
    )


def _array(of: Of, values: Sequence[Any], kind: Any) -> Any:
    if of is Of.TIME:
        return pa.array([None if each is None else each * 1000 for each in values], pa.int64()).cast(kind)
    return pa.array(values, kind)
