"""The `bookkeeper` program: its commands. What a command is and what exit codes mean: `program`.

`bookkeeper bookie` keeps BookKeeper's own exit codes (see `bookkeeper bookie --help`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bookkeeper.console.program import Program

COMMANDS: dict[str, tuple[str, str]] = {
    "bookie": ("bookkeeper.cli.bookie", "run one bookie"),
    "autorecovery": ("bookkeeper.cli.autorecovery", "run auto-recovery: an auditor candidate and a replication worker"),
    "zookeeper": ("bookkeeper.cli.zookeeper", "run the embedded ZooKeeper"),
    "localbookie": ("bookkeeper.cli.localbookie", "run a ZooKeeper and N bookies on this machine"),
    "standalone": ("bookkeeper.cli.standalone", "run a ZooKeeper and one bookie that keep their data"),
    "ledger": ("bookkeeper.cli.ledger.command", "create, write, read, tail, list, show and delete ledgers"),
    "shell": ("bookkeeper.cli.shell.command", "administration with Apache's command names; offline readers"),
    "perf": ("bookkeeper.cli.perf.command", "measure writes and reads"),
    "why": ("bookkeeper.cli.why.command", "what is the matter with a ledger, a disk, a bookie, and what to do"),
    "metadata": ("bookkeeper.cli.metadata.command", "compare the metadata store with the bookies, after a restore"),
    "spark": ("bookkeeper.cli.spark.command", "pipelines on Spark: audit every copy, sweep what writes left"),
    "config": ("bookkeeper.cli.config", "show and check settings"),
    "auth": ("bookkeeper.cli.auth", "make the lines of a bookie's password file"),
    "demo": ("bookkeeper.cli.demo.command", "a cluster, real data, a killed bookie"),
}

EXAMPLES = """\
examples:
  bookkeeper standalone                              a ZooKeeper and a bookie, to play with
  bookkeeper localbookie 4                           four bookies on one machine
  seq 1000 | bookkeeper ledger write                 one entry per line; prints the ledger id
  bookkeeper ledger read 0                           ... and back
  bookkeeper shell simpletest -e 3 -w 2 -a 2 -n 100  does the cluster work?
  bookkeeper perf write -entrysize 1024 -time 20     how fast is it?

`bookkeeper COMMAND --help` has the options, defaults and examples of each command.

exit codes: 0 ok, 1 failure, 2 usage, 3 partial (a list omits records that cannot be read and names them on standard
error), 130 interrupted, 141 the output is no longer read (`| head`); those of a bookie: `bookkeeper bookie --help`
"""

PROGRAM = Program(
    name="bookkeeper",
    description="Replicated logs that speak Apache BookKeeper's protocols.",
    examples=EXAMPLES,
    commands=COMMANDS,
    plugins="bookkeeper.commands",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (default: the process's arguments) and return its exit code."""
    return PROGRAM.run(argv)


if __name__ == "__main__":
    sys.exit(main())
