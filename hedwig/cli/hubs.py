"""The hubs that are there, and how many topics each says it serves.

examples:
  hedwig hubs
  hedwig hubs --json
  hedwig hubs -D zk_host=zk1:2181,zk2:2181 --region east
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bookkeeper.console.output import end_partial, note, print_json, print_table
from bookkeeper.metadata.bad_records import BadRecords
from hedwig.cli.region import add_region_arguments, region_of

if TYPE_CHECKING:
    from hedwig.admin.region import Region
    from hedwig.model import HubAddress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig hubs`."""
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    add_region_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the registrations."""

    bad_records = BadRecords()

    async def hubs(region: Region) -> dict[HubAddress, int]:
        return await region.metadata.hubs(bad_records)

    with region_of(args) as access:
        found = access.run(hubs)
    rows = sorted(found.items(), key=lambda each: str(each[0]))
    if args.json:
        shown: list[dict[str, object]] = [
            {"hub": str(hub), "host": hub.host, "port": hub.port, "ssl_port": hub.ssl_port, "topics": count}
            for hub, count in rows
        ]
        shown += [{"hub": None, "path": each.path, "unreadable": each.problem} for each in bad_records.named]
        print_json(shown)
        return end_partial(bad_records)
    print_table(
        ("hub", "TLS port", "topics"),
        [(f"{hub.host}:{hub.port}", "-" if hub.ssl_port is None else hub.ssl_port, count) for hub, count in rows],
    )
    if not rows:
        note("No hub is registered: topics are kept, and nobody serves them (`hedwig hub` starts one).")
    return end_partial(bad_records)
