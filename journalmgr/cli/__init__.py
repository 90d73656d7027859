"""The `journalmgr` command.

    main.py       the commands; what they have in common with `bookkeeper` is in bookkeeper.console.program
    session.py    JOURNAL, --conf, -D; the journals they open, on a reactor in another thread
    records.py    how transactions are printed
    format.py segments.py dump.py verify.py tail.py recover.py purge.py copy.py       one command each
    fs.py fs_actions.py fs_content.py fs_common.py fs_patterns.py       files of a name node, through its HTTP interface

A command is a module with `add_arguments(parser)` and `run(args)`; commands wait in the main thread, so that Ctrl-C
reaches them. What they do is in the package above: here is only how it is asked for and told.
"""
