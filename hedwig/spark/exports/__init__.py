"""Exports of topics: their messages as Parquet with a manifest, and published again from that, each once.

    manifest       pure  what an export is: directories, lines
    contents       pure  digest of a message: what of it counts;   message_digests   the same in SQL
    options        pure  the words of both
    stored               the table of messages, by Spark
    export               an export from beginning to end
    checking             whether a directory is an export, and still the same
    publishing           what tasks do for an import: publish a topic in order, by a producer of its own
    importing            an import from beginning to end

What ledgers and topics have in common is in bookkeeper.spark.exports. Importing this package imports neither pyspark
nor a reactor.
"""
