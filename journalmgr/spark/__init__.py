"""The edit log of a name node as a DataFrame: Spark's Python data source `editlog` over a journal on ledgers.

    import journalmgr.spark
    journalmgr.spark.register(spark)
    spark.read.format("editlog").load("bookkeeper://zk1:2181;zk2:2181/hdfsjournal").where("op = 'OP_DELETE'")
    print(journalmgr.spark.options_help())

        edit_options, option_help       pure: the words of the source, and as text for people
        edit_columns, edit_entries      pure: operations as columns; entries as records, checked
        edit_spans, edit_search         pure: which segments, gaps, limits; which entry holds a txid
        edit_batches                    Arrow batches and schemas
        edit_segments, edit_plan        what the journal has now; who reads what
        edit_slices                     a task's reading
        edit_source, edit_stream        the format: planner and tasks of a query, and of a stream
        segment_table                   segments: a table of the format bookkeeper.cluster, found by entry point
        namespaces/                     the pipeline `namespace`: the edit log as its namespace, and who uses how much
        registration                    making the format known to a session

Nothing is fenced and nothing is changed: a segment in progress is read as far as it is confirmed. Needs the extra
`spark`. Importing this package imports neither pyspark nor a reactor.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from journalmgr.spark.namespaces.report import namespace
    from journalmgr.spark.option_help import options_help
    from journalmgr.spark.registration import register

__all__ = ["namespace", "options_help", "register"]


def __getattr__(name: str) -> object:
    if name == "register":
        from journalmgr.spark.registration import register

        return register
    if name == "options_help":
        from journalmgr.spark.option_help import options_help

        return options_help
    if name == "namespace":
        from journalmgr.spark.namespaces.report import namespace

        return namespace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
