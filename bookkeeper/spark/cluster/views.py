"""The tables of a cluster as temporary views in one go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from bookkeeper.config import ClientSettings, keys_of
from bookkeeper.config.table import nearest
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.cluster.catalogue import WHERE, table_called, tables
from bookkeeper.spark.cluster.table import ClusterTable
from bookkeeper.spark.options.tables import ALIASES


def cluster_views(
    spark: SparkSession,
    *,
    uri: str,
    prefix: str = "",
    only: Iterable[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> list[str]:
    """Make a temporary view `prefix` + table for each table; their names.

    uri: where the cluster is (metadataServiceUri). only: these tables instead of all; of all, one that needs an option
    which is not given is left out. options: words of the format besides: each goes to the
    tables that know it. Views of the same names are replaced. Nothing is read before a view is.
    Raises ConfigurationError for a table that there is not, or an option that no table knows.
    """
    given = dict(options or {})
    chosen = tables() if only is None else [table_called(name) for name in only]
    shared = {name.lower() for name in (*keys_of(ClientSettings), *ALIASES)}
    words = {table.name: [name for name in keys_of(table.options) if name != "table"] for table in chosen}
    own = {table: {name.lower() for name in names} for table, names in words.items()}
    for name in given:
        if name.lower() not in shared.union(*own.values()):
            meant = nearest(name, [*keys_of(ClientSettings), *(each for names in words.values() for each in names)])
            raise ConfigurationError(f"option {name} is unknown to every table of format {WHERE}{meant}")
    made = []
    for table in chosen:
        mine = {name: text for name, text in given.items() if name.lower() in shared | own[table.name]}
        if only is None and _lacks(table, mine):
            continue
        frame = spark.read.format(WHERE).options(table=table.name, uri=uri, **mine).load()
        frame.createOrReplaceTempView(f"{prefix}{table.name}")
        made.append(f"{prefix}{table.name}")
    return made


def _lacks(table: ClusterTable, given: Mapping[str, str]) -> bool:
    there = {name.lower() for name in given}
    return any(name.lower() not in there for name in table.needs)
