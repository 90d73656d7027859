"""Exports: ledgers as Parquet with a manifest, and ledgers written anew from that.

    lines          pure  lines of JSON, and what every kind of manifest has
    manifest       pure  what an export is: directories, lines, versions
    digests        pure  digests of entries in their order;   entry_digests   the same in SQL
    packing        pure  which entries go to which file
    options        pure  the words of both
    stored               the tables of an export's directory, by Spark
    chosen, reading      what tasks do for an export: look at ledgers, read entries;   judging   what became of each
    export               an export from beginning to end
    checking             whether a directory is an export, and still the same
    writing              what tasks do for an import: write ledgers anew
    importing            an import from beginning to end

Importing this package imports neither pyspark nor a reactor.
"""
