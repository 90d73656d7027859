"""The cluster as DataFrames: Spark's Python data sources over ledgers, and pipelines on them.

    import bookkeeper.spark
    bookkeeper.spark.register(spark)
    spark.read.format("bookkeeper").option("uri", "zk://zk1:2181/ledgers").option("ledgers", "7").load()
    print(bookkeeper.spark.options_help())

        options, bounds, planning       pure: the words of a source, pushed filters, who reads what
          option_kinds, said_as         pure: what words of several sources share; in whose words an error speaks
        process_client                  one client per process that Spark forked
        option_help                     pure: the words as text for people (`print(bookkeeper.spark.options_help())`)
        columns, filters                Arrow batches and schemas; Spark's filters as bounds
        ledger_source                   the format bookkeeper: planner and tasks
          ledger_options, ledger_extents, ledger_slices, ledger_partition
        ledger_stream                   the same as a stream
          stream_offsets                pure: what makes a micro-batch the same when it is planned again
          id_ranges, ledger_offsets     pure: how far it has come;   ledger_sight   how far ledgers may be read
        unconfirmed                     warnings about entries that a query leaves out and that may be acknowledged
        ledger_sink                     the format bookkeeper, written: one ledger a task, committed together, once
          sink_options, sink_ledger     its words;   the ledger of one task
          sink_commit_format            pure: what is kept of commits in the metadata store
          sink_commits                  begin, commit, give up;      sink_history   the same for users
          sink_purpose, sink_sweep      what a ledger is for;   deleting those that nothing will ever commit
          sink_retention                forgetting batches that were committed long ago
        audit/                          the format bookkeeper.audit: every copy, verified through its bookie
        space/, whatif/                 pipelines: where the space is; what losses, additions, other quorums mean
          pipeline, outputs             what pipelines share;   directories they write to, new ones only
        stored_copies/                  the copies of a bookie that does not run, verified in its directories
        exports/                        ledgers to Parquet with a manifest, and from there to ledgers again
        cluster/                        the format bookkeeper.cluster: the cluster itself as tables
        arrow_map                       Arrow batches to Arrow batches in tasks, without pandas
        environment, sessions           Python and Java for Spark on this machine; a session to try things with
        registration, shipping          making the formats known to a session; wheels for tasks without the package

Nothing is read from the driver's disk or environment: what planner and tasks need is in the options. Needs the extra
`spark`. Importing this package imports neither pyspark nor a reactor.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bookkeeper.spark.cluster.catalogue import cluster_help
    from bookkeeper.spark.cluster.views import cluster_views
    from bookkeeper.spark.exports.export import export_ledgers
    from bookkeeper.spark.exports.importing import import_ledgers
    from bookkeeper.spark.options.help import options_help
    from bookkeeper.spark.registration import register
    from bookkeeper.spark.sessions import local_session
    from bookkeeper.spark.sink.history import commit_of_job, commits_of_job, commits_of_query, committed_writes
    from bookkeeper.spark.sink.retention import forget
    from bookkeeper.spark.sink.sweep import sweep

__all__ = [
    "cluster_help",
    "cluster_views",
    "commit_of_job",
    "commits_of_job",
    "commits_of_query",
    "committed_writes",
    "export_ledgers",
    "forget",
    "import_ledgers",
    "local_session",
    "options_help",
    "register",
    "sweep",
]


def __getattr__(name: str) -> object:
    if name == "register":
        from bookkeeper.spark.registration import register

        return register
    if name == "local_session":
        from bookkeeper.spark.sessions import local_session

        return local_session
    if name == "cluster_views":
        from bookkeeper.spark.cluster.views import cluster_views

        return cluster_views
    if name == "cluster_help":
        from bookkeeper.spark.cluster.catalogue import cluster_help

        return cluster_help
    if name == "options_help":
        from bookkeeper.spark.options.help import options_help

        return options_help
    if name == "export_ledgers":
        from bookkeeper.spark.exports.export import export_ledgers

        return export_ledgers
    if name == "import_ledgers":
        from bookkeeper.spark.exports.importing import import_ledgers

        return import_ledgers
    if name == "forget":
        from bookkeeper.spark.sink.retention import forget

        return forget
    if name == "sweep":
        from bookkeeper.spark.sink.sweep import sweep

        return sweep
    if name in ("commit_of_job", "commits_of_job", "commits_of_query", "committed_writes"):
        from bookkeeper.spark.sink import history

        return getattr(history, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
