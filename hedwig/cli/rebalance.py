"""Spread topics evenly: a hub with more topics than the average by --tolerance gives up what is above the average.

Loads are what hubs say in ZooKeeper; topics that are given up go to the hubs with the fewest when somebody asks for
them next, which subscribers do at once. Hubs are asked over HTTP (httpServerEnabled=true there; see `hedwig release`).

examples:
  hedwig rebalance --dry-run           what would be done
  hedwig rebalance --max 500           no more than so many topics of each hub
  hedwig rebalance --rate 100          so many topics a second at most
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    note,
    print_json,
    print_table,
)
from bookkeeper.console.subcommands import at_least
from hedwig.cli.region import add_region_arguments, region_of
from hedwig.cli.release import add_http_arguments, http_places

if TYPE_CHECKING:
    from hedwig.admin.asking import HttpPlaces
    from hedwig.admin.region import Region
    from hedwig.model import HubAddress

STEP = 50
TOLERANCE_PERCENT = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig rebalance`."""
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE_PERCENT,
        metavar="PERCENT",
        help="how far above the average a hub may be (default: %(default)s)",
    )
    parser.add_argument("--max", type=at_least(1), metavar="N", help="topics of each hub at most (default: no limit)")
    parser.add_argument(
        "--rate", type=at_least(1), default=200, metavar="N", help="topics a second at most (default: %(default)s)"
    )
    parser.add_argument("--dry-run", "-n", action="store_true", help="only say what would be done")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    add_http_arguments(parser)
    add_region_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Look, ask, and say what was done."""
    from hedwig.admin.balance import surplus

    if not args.tolerance >= 0:  # no number either
        raise CommandFailed(f"--tolerance {args.tolerance:g}: want 0 or more", EXIT_USAGE)
    places = http_places(args)

    async def hubs(region: Region) -> dict[HubAddress, int]:
        return await region.metadata.hubs()

    with region_of(args) as access:
        loads = access.run(hubs)
    wanted = {
        hub: count if args.max is None else min(count, args.max)
        for hub, count in surplus(loads, args.tolerance).items()
    }
    released, failed = dict.fromkeys(loads, 0), 0
    if not args.dry_run:
        for hub, count in wanted.items():
            failed += not _release(places, hub, count, args.rate, released)
    _print(args, loads, wanted, released)
    return EXIT_FAILURE if failed else EXIT_OK


def _release(places: HttpPlaces, hub: HubAddress, count: int, rate: int, released: dict[HubAddress, int]) -> bool:
    """Whether the hub could be asked for all of it."""
    from hedwig.admin.asking import HubNotAsked, release_some

    progress = Progress(f"topics of {hub}", count)
    began = time.monotonic()
    try:
        while released[hub] < count:
            step = min(STEP, rate, count - released[hub])
            some = release_some(places, hub, step)
            released[hub] += some
            progress.update(released[hub])
            if some < step:
                break
            if released[hub] < count:
                time.sleep(max(0.0, began + released[hub] / rate - time.monotonic()))
    except HubNotAsked as error:
        note(f"hedwig: {error}")
        return False
    finally:
        progress.close()
    return True


def _print(
    args: argparse.Namespace,
    loads: dict[HubAddress, int],
    wanted: dict[HubAddress, int],
    released: dict[HubAddress, int],
) -> None:
    hubs = sorted(loads, key=str)
    if args.json:
        print_json(
            [
                {"hub": str(hub), "topics": loads[hub], "to_release": wanted.get(hub, 0), "released": released[hub]}
                for hub in hubs
            ]
        )
        return
    print_table(
        ("hub", "topics", "to release", "released"),
        [(hub, loads[hub], wanted.get(hub, 0), released[hub]) for hub in hubs],
    )
    if not wanted:
        note(f"No hub has {args.tolerance:g}% more than the average: nothing to do.")
