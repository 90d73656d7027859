"""The cluster itself as tables: the format `bookkeeper.cluster`, option `table`.

    bookkeeper.spark.cluster_views(spark, uri="zk://zk1:2181/ledgers", prefix="bk_")
    spark.sql("SELECT state, count(*), sum(length) FROM bk_ledgers GROUP BY state")

    spark.read.format("bookkeeper.cluster").options(table="bookies", uri="zk://zk1:2181/ledgers").load()
    CREATE TEMPORARY VIEW b USING bookkeeper.cluster OPTIONS (table 'bookies', uri 'zk://zk1:2181/ledgers')

SQL takes the name of the format as it stands, or in backquotes: `bookkeeper.cluster`. Names of tables and options may
be in any case. What each ledger, bookie or topic is, a query reads when it runs; which there are, a view or DataFrame
lists when it is first read, and keeps: make it again (`cluster_views`) to see new ones.

    table                 pure  what a table is; how another package adds one
    id_runs               pure  many ids, cut into shares
    asking                      many questions, some at a time
    ledgers, extents, bookies, recovery, entry_logs, held_ledgers, unreadable    the tables of this package
    http_bookies                which bookies can be asked over HTTP
    catalogue                   which tables there are
    batches, source, views      schemas and Arrow; the format; views and help

Nothing is fenced, marked or written, and no column has a password. Unknown is null, and `problem` says why. A znode
that cannot be a row of its table has one in `unreadable`. Columns (`bookkeeper.spark.cluster_help(table)` has
their types and meanings; ids and indexes have no unit):

    bookies             bookie, state, host, port, http, endpoints, properties, total_bytes, free_bytes, problem
    cookies             bookie, host, instance_id, journal_directories, ledger_directories, index_directories,
                        layout_version, version, problem
    ledgers             ledger_id, state, ensemble_size, write_quorum, ack_quorum, last_entry_id, length, fragments,
                        digest_type, metadata_version, created, application, component, owner, custom, problem
    fragments           ledger_id, index, first_entry_id, last_entry_id, entries, bookies, problem
    extents             ledger_id, state, ensemble_size, write_quorum, ack_quorum, last_entry_id, length, fragments,
                        digest_type, metadata_version, created, application, component, owner, problem
    entry_logs          bookie, log_id, size_bytes, record_bytes, live_bytes, live_ratio, live_ledgers, is_written,
                        as_of, problem
    held_ledgers        bookie, first_ledger_id, last_ledger_id, ledgers, problem
    underreplicated     ledger_id, missing, since, locked, worker, process, locked_since, problem
    damaged             ledger_id, bookie, first_entry_id, last_entry_id, reported, reason, problem
    recovery_processes  host, pid, bookie, http, since, is_auditor
    auto_recovery       enabled, auditor, lost_bookie_recovery_delay_s, locked, ledgers_checked, placement_checked,
                        replicas_checked, problem
    unreadable          kind, path, problem
"""
