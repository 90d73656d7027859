"""The options by which commands that need no hub find a region, and the access they open."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_USAGE, CommandFailed, note
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose
from hedwig.errors import MalformedRequest
from hedwig.model import SubscriberId, Topic
from hedwig.names import shown, subscriber_part, topic_part

__all__ = ["Problems", "add_region_arguments", "region_of", "region_settings", "shown", "subscriber_of", "topic_of"]

if TYPE_CHECKING:
    from hedwig.admin.blocking import Access
    from hedwig.config.hub import HubConfig


def add_region_arguments(parser: argparse.ArgumentParser) -> None:
    """--conf, --uri, --region, -D: as hubs have them, so that a hub's file serves here too."""
    group = parser.add_argument_group("region")
    group.add_argument("--conf", "-c", type=Path, metavar="FILE", help="a hub's conf file (default: none)")
    group.add_argument(
        "--uri", help="metadataServiceUri (default: as the hubs', else zk://localhost:2181/ledgers)", metavar="URI"
    )
    group.add_argument("--region", metavar="NAME", help="the region (default: as the hubs', else standalone)")
    group.add_argument(
        "-D",
        "-o",
        dest="defines",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"one setting, repeatable; {SEEN_BY_OTHERS}",
    )
    add_verbose(parser)


def region_settings(args: argparse.Namespace) -> HubConfig:
    """Those of the region's hubs. Raises ConfigurationError listing every fault."""
    from hedwig.config.load import load_hub

    if "verbose" in args:
        from bookkeeper.logs import show_metadata_session

        show_metadata_session()
    overrides = dict(parse_settings(args.defines))
    if args.uri:
        overrides["metadataServiceUri"] = args.uri
    if args.region:
        overrides["region"] = args.region
    return load_hub(args.conf, overrides).settings


@contextlib.contextmanager
def region_of(args: argparse.Namespace) -> Iterator[Access]:
    """Access to the region that the command line names."""
    from hedwig.admin.blocking import connect

    with connect(region_settings(args)) as access:
        yield access


def topic_of(word: str) -> Topic:
    """A topic by its name on the command line. Raises CommandFailed for what none can be called."""
    topic = Topic(os.fsencode(word))
    try:
        topic_part(topic)
    except MalformedRequest as error:
        raise CommandFailed(str(error), EXIT_USAGE) from None
    return topic


def subscriber_of(word: str) -> SubscriberId:
    """A subscriber by its name on the command line. Raises CommandFailed."""
    subscriber = SubscriberId(os.fsencode(word))
    try:
        subscriber_part(subscriber)
    except MalformedRequest as error:
        raise CommandFailed(str(error), EXIT_USAGE) from None
    return subscriber


class Problems:
    """What is wrong with single rows of a list, on standard error, each text once; the exit code knows of it."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self, what: str, problem: str) -> None:
        """Note it."""
        self.count += 1
        note(f"warning: {what}: {problem}")
