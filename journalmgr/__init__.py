"""The edit log of a metadata server: transactions that survive it, and are taken over by the next one.

    model contract errors     what a journal is, for whoever uses or implements one
    edits/                    transactions as bytes, XML and JSON
    ledger/  files/           journals: one ledger per segment; edits files in a directory
    journal_set plugins uri   several journals as one; a journal by its URI
    edit_log replica          writing, taking over, standing by, for any metadata server
    namenode/                 a name node's namespace on top of that
    verify copying salvage    is it whole? the same elsewhere; what can still be read
    config  cli/              Hadoop's keys; the `journalmgr` command

Segments, ledgers and files are those of Hadoop 2's HDFS: either continues what the other wrote.
"""
