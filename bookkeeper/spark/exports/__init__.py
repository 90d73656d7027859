"""Exports: ledgers as Parquet with a manifest, and ledgers written anew from that.

    checking         whether a directory is an export, and unchanged
    chosen           the chosen ledgers, looked at by tasks
    digests          digests of entries in order; pure
    entry_digests    these digests in SQL
    export           an export from beginning to end
    importing        an import from beginning to end
    judging          what became of each ledger
    lines            lines of JSON, common to all manifests; pure
    manifest         an export as lines: directories, ledgers, versions; pure
    options          options of an export and of an import; pure
    packing          which entries go to which file; pure
    reading          entries read by tasks
    stored           tables of an export's directory
    writing          ledgers written by tasks

Importing this package imports neither pyspark nor a reactor.
"""
