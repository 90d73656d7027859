"""The `bookkeeper` command.

    main.py        the command tree; loads only the module of the command that was asked for
    output.py      tables, JSON, progress, questions: one behaviour for all commands
    bookie.py      `bookie`: one bookie process
    cluster.py     `zookeeper`, `localbookie`, `standalone`: a real cluster as supervised processes
    ledger/        `ledger create|write|read|tail|list|show|delete`
    shell/         `shell`: Apache's names and flags, offline readers among them
    perf/          `perf write|read|bench`: measurements with their calibration
    demo/          `demo`: a cluster, real data, a killed bookie

Everything may be imported here and nothing imports this package.
"""
