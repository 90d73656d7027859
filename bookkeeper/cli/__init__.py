"""The `bookkeeper` command.

    main.py        the commands; program.py: what every console program does with them, exit codes among it
    console/subcommands.py        only the options of the command that was typed are looked up
    output.py      tables, JSON, progress, questions: one behaviour for all commands
    connection.py  --uri, --conf, -D and the client they make; reactor.py: the metadata store without a client
    console/ledger_options.py    quorums and passwords of new ledgers
    config.py      `config show|check`; config_files.py: are the files that settings name fit for use?
    bookie.py      `bookie`: one bookie process
    zookeeper.py, localbookie.py, standalone.py    a real cluster as processes that console/supervision.py watches
    ledger/        `ledger create|write|read|tail|list|show|delete`
    shell/         `shell`: Apache's names and flags, offline readers among them
    metadata/      `metadata check|keep|discard`: the store compared with the bookies
    perf/          `perf write|read|bench`: measurements with their calibration
    demo/          `demo`: a cluster, real data, a killed bookie

Everything may be imported here and nothing imports this package.
"""
