"""The `hedwig` program: its commands. What a command is and what exit codes mean: `bookkeeper.console.program`.

`hedwig hub` has exit codes of its own besides (see `hedwig hub --help`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bookkeeper.console.program import Program

COMMANDS: dict[str, tuple[str, str]] = {
    "hub": ("hedwig.cli.hub", "run one hub"),
    "pub": ("hedwig.cli.pub", "publish lines, files or texts"),
    "sub": ("hedwig.cli.sub", "subscribe, and print messages as they come"),
    "consume": ("hedwig.cli.consume", "move a subscription forward"),
    "unsubscribe": ("hedwig.cli.unsubscribe", "end subscriptions"),
    "topics": ("hedwig.cli.topics", "list topics"),
    "subscriptions": ("hedwig.cli.subscriptions", "list subscriptions, with their backlog"),
    "describe": ("hedwig.cli.describe", "a topic: who serves it, its ledgers, its subscriptions"),
    "readtopic": ("hedwig.cli.readtopic", "print the stored messages of a topic, from its ledgers"),
    "hubs": ("hedwig.cli.hubs", "list hubs, and how many topics each serves"),
    "release": ("hedwig.cli.release", "ask hubs to give topics up"),
    "rebalance": ("hedwig.cli.rebalance", "spread topics evenly over the hubs"),
    "perf": ("hedwig.cli.perf", "measure hubs"),
    "config": ("hedwig.cli.config", "show and check settings"),
}
"""Name -> module, summary; in the order of --help."""

EXAMPLES = """\
examples:
  bookkeeper standalone --hub                      a ZooKeeper, a bookie and a hub, to play with
  seq 1000 | hedwig pub numbers                    a message a line
  hedwig sub numbers -s me                         what is published, and next time what was missed
  hedwig subscriptions --min-backlog 1000          where somebody lags
  hedwig hub --conf conf/hw_server.conf            one hub of a cluster
  hedwig config check --conf conf/hw_server.conf

`hedwig COMMAND --help` has the options, defaults and examples of each command.

exit codes: 0 ok, 1 failure, 2 usage, 3 partial (a list omits records that cannot be read and names them on standard
error), 130 interrupted, 141 the output is no longer read (`| head`); those of a hub are in `hedwig hub --help`
"""

PROGRAM = Program(
    name="hedwig",
    description="Publish-subscribe on replicated logs; speaks Apache Hedwig's protocol.",
    examples=EXAMPLES,
    commands=COMMANDS,
    plugins="hedwig.commands",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (default: the process's arguments) and return its exit code."""
    return PROGRAM.run(argv)


if __name__ == "__main__":
    sys.exit(main())
