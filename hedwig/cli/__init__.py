"""The `hedwig` command.

    main.py      the commands; one module for each, and only that of the command that was typed is imported
    hub.py       `hub`: one hub process
    config.py    `config show|check`

Another command is a module with `add_arguments(parser)` and `run(args) -> int` (see `bookkeeper.console.program`),
and a line in main.py. Everything may be imported here and nothing imports this package.
"""
