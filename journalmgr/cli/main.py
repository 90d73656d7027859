"""The `journalmgr` program: its commands. What a command is and what exit codes mean: `bookkeeper.console.program`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bookkeeper.console.program import Program

COMMANDS: dict[str, tuple[str, str]] = {
    "format": ("journalmgr.cli.format", "make an empty journal, bound to a namespace"),
    "segments": ("journalmgr.cli.segments", "list the segments of a journal"),
    "dump": ("journalmgr.cli.dump", "print the transactions of a journal, or of a file of edits"),
    "tail": ("journalmgr.cli.tail", "follow a journal"),
    "verify": ("journalmgr.cli.verify", "read everything, and tell what is wrong"),
    "recover": ("journalmgr.cli.recover", "stop whoever writes, and finalise what was left open"),
    "purge": ("journalmgr.cli.purge", "delete segments below a txid, which a checkpoint must cover"),
    "fs": ("journalmgr.cli.fs", "look at and change the files of a name node"),
    "namenode": ("journalmgr.cli.namenode", "run one server of a name node on a journal"),
    "perf": ("journalmgr.cli.perf", "measure a journal, and how long a failover takes"),
    "copy": ("journalmgr.cli.copy", "copy a journal into another one"),
    "config": ("journalmgr.cli.config", "show and check settings"),
}

EXAMPLES = """\
examples:
  journalmgr format 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal'
  journalmgr segments file:///var/lib/edits --json
  journalmgr dump edits_0000000000000000001-0000000000000000091 --format xml
  JM_dfs_namenode_shared_edits_dir=file:///var/lib/edits journalmgr verify
  journalmgr segments --conf /etc/hadoop/hdfs-site.xml

JOURNAL is 'bookkeeper://ZOOKEEPER;ZOOKEEPER/ZNODE' or file:///DIRECTORY; without it the setting
dfs.namenode.shared.edits.dir counts (environment, --conf, -D). The quotes belong to it: a shell ends a command at `;`.

`journalmgr COMMAND --help` has the options, defaults and examples of each command.

exit codes: 0 ok, 1 failure or findings, 2 usage, 3 partial (a list omits records that cannot be read and names them on
standard error), 130 interrupted, 141 the output is no longer read (`| head`)
"""

PROGRAM = Program(
    name="journalmgr",
    description="Edit logs of metadata servers, on ledgers or in files; compatible with HDFS's.",
    examples=EXAMPLES,
    commands=COMMANDS,
    plugins="journalmgr.commands",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (default: the process's arguments) and return its exit code."""
    return PROGRAM.run(argv)


if __name__ == "__main__":
    sys.exit(main())
