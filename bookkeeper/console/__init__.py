"""What console programs share: commands, options, output, reactors, supervision.

auto_recovery     the parts of auto-recovery, out of a configuration
config_files      whether the files that settings name can be used
connection        options that find a cluster, and the blocking client they open
figures           figures as PNG (extra `plot`)
http_questions    requests to the HTTP servers of many processes at once
known_bookies     whether a cluster knows a bookie
ledger_options    options of commands that create ledgers
output            data to standard output, notes and progress to standard error
program           a program: its commands, and the exit code of each outcome
reactor           reactors for commands
subcommands       parsers of commands, filled when the command is typed
supervision       the wait for a signal or for the end of a supervised process
"""
