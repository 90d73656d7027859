"""Words that the pipelines over topics share: which topics, of which region."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bookkeeper.cli.spark.words import task_options
from bookkeeper.console.connection import client_settings, parse_settings
from bookkeeper.console.output import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

PASSWORD = "passwd"


def add_region(parser: argparse.ArgumentParser) -> None:
    """Where the records of the hubs are."""
    group = parser.add_argument_group("region")
    group.add_argument("--region", metavar="NAME", help="the region (default: standalone)")
    group.add_argument("--zk-prefix", metavar="PATH", help="above all that hubs keep in ZooKeeper (default: /hedwig)")


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Which topics."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--topics", metavar="NAME,...", help="these topics (default: all of the region)")
    choice.add_argument("--prefix", default="", metavar="TEXT", help="topics whose names begin so, as they are now")


def topics_of(args: argparse.Namespace) -> Sequence[str] | None:
    """Those that were named; None for all. Raises CommandFailed for what no topic can be called."""
    from hedwig.spark.topic_options import parse_topics

    if args.topics is None:
        return None
    try:
        return parse_topics(args.topics)
    except ValueError as error:
        raise CommandFailed(f"--topics: {error}", EXIT_USAGE) from None


def region_words(args: argparse.Namespace) -> tuple[str, Mapping[str, str]]:
    """The cluster's address, and options of the format hedwig: of the region, of the client, and what -D says besides.

    The password that a file or the environment has for ledgers is not that of topics, which -D alone says.
    Raises ConfigurationError for what is said of the client and cannot be.
    """
    from bookkeeper.config import ClientSettings, keys_of
    from bookkeeper.spark.options.tables import hidden_names

    defines = parse_settings(args.defines)
    of_client = copy.copy(args)
    of_client.defines = [f"{key}={value}" for key, value in defines.items() if key in keys_of(ClientSettings)]
    uri = client_settings(of_client).metadata_service_uri
    told = task_options(of_client)
    told.pop("password", None)
    given = {"region": args.region, "zk_prefix": args.zk_prefix}
    others = {key: value for key, value in defines.items() if key == PASSWORD or key not in keys_of(ClientSettings)}
    return uri, {**{name: value for name, value in given.items() if value is not None}, **told, **hidden_names(others)}
