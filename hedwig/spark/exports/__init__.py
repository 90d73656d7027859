"""Exports of topics: their messages as Parquet with a manifest, and published again from that, each once.

    checking           whether a directory is an export, and unchanged
    contents           digest of a message; pure
    export             an export from beginning to end
    importing          an import from beginning to end
    manifest           an export as lines: directories, topics; pure
    message_digests    digests of messages in SQL
    options            options of an import; pure
    publishing         topics published by tasks, in order, each by a producer of its own
    stored             the table of messages

What ledgers and topics have in common is in bookkeeper.spark.exports. Importing this package imports neither pyspark
nor a reactor.
"""
