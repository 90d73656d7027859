"""Make an empty journal, and bind it to a namespace: that of a metadata server that exists, or a new one.

A journal that has data is asked about, and everything in it destroyed: segments in progress, their ledgers, all of it.

examples:
  journalmgr format file:///var/lib/edits                          a new namespace; its names are shown
  journalmgr format 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal' --cluster-id CID-1 --namespace-id 42 \\
      --block-pool-id BP-1-10.0.0.1-1421135800377                  that of an HDFS that runs already (its VERSION file)
  journalmgr format --force --json                                 do not ask
"""

from __future__ import annotations

import argparse

from bookkeeper.clock import wall_ms
from bookkeeper.console.output import EXIT_OK, confirm, note, print_json
from bookkeeper.console.subcommands import at_least
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, namespace_json, session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr format`."""
    add_journal_argument(parser)
    parser.add_argument("--cluster-id", metavar="TEXT", help="cluster id (default: CID- and a random UUID)")
    parser.add_argument("--namespace-id", type=at_least(1), metavar="N", help="namespace id (default: a random one)")
    parser.add_argument(
        "--block-pool-id",
        metavar="TEXT",
        help="block pool id (default: BP-, a random number, this host's address and the time)",
    )
    parser.add_argument("--force", action="store_true", help="do not ask, destroy what is there")
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Format, and print what the journal belongs to now."""
    import random

    from journalmgr.errors import HasData
    from journalmgr.ledger.connecting import local_hostname
    from journalmgr.namespace_ids import new_namespace

    namespace = new_namespace(
        random.SystemRandom(),
        address=local_hostname().rpartition("/")[2],
        now_ms=wall_ms(),
        cluster_id=args.cluster_id,
        namespace_id=args.namespace_id,
        block_pool_id=args.block_pool_id,
    )
    with session(args) as commands:
        journal = commands.open(commands.uri(args.journal), namespace)
        try:
            commands.call(lambda: journal.format(namespace))
        except HasData:
            confirm(f"{journal.description} has data. Destroy all of it?", force=args.force)
            commands.call(lambda: journal.format(namespace, force=True))
        if args.json:
            print_json({"journal": journal.description, "namespace": namespace_json(namespace)})
        else:
            print(f"cluster id     {namespace.cluster_id}")
            print(f"namespace id   {namespace.namespace_id}")
            print(f"block pool id  {namespace.block_pool_id}")
            note(f"Formatted {journal.description}.")
    return EXIT_OK
