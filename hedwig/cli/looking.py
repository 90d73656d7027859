"""What the records say of a topic, before a hub is asked about it: a hub that is asked about a topic makes it.

Commands that talk to hubs need not be told where the records are. Without --uri they are looked for where hubs have
them by default, or as the environment says, and believed only where one of the command's own hubs is registered: they
might be those of another region. Where they are not found, hubs are asked as ever.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.console.output import CommandFailed
from hedwig.cli.client import client_settings
from hedwig.cli.region import shown

if TYPE_CHECKING:
    from hedwig.admin.region import Region
    from hedwig.config.hub import HubConfig
    from hedwig.model import HubAddress, LocalId, Topic

PROBE_TIMEOUT_S = 1.0
"""For a ZooKeeper that nobody named: one that does not answer at once is not waited for."""


@dataclass(frozen=True, slots=True)
class Known:
    """A topic that is there. last: the id of its last message."""

    last: LocalId


def add_look_arguments(parser: argparse.ArgumentParser) -> None:
    """--uri, --region."""
    group = parser.add_argument_group("records, which are looked at first, so that a misspelt topic is not made")
    group.add_argument(
        "--uri",
        metavar="URI",
        help="metadataServiceUri of the hubs (default: of the environment, else zk://localhost:2181/ledgers, if the "
        "hub is registered there)",
    )
    group.add_argument("--region", metavar="NAME", help="of the hubs (default: of the environment, else standalone)")


def look(args: argparse.Namespace, topic: Topic) -> Known | None:
    """The topic; None where the records are not at hand. Raises CommandFailed where there is no such topic.

    Raises ConfigurationError, BookKeeperError too where --uri says where they are.
    """
    from bookkeeper.errors import BookKeeperError
    from hedwig.config.load import load_hub

    stated = args.uri is not None
    words = {"metadataServiceUri": args.uri, "region": args.region}
    servers = client_settings(args).servers
    try:
        config = load_hub(None, {key: word for key, word in words.items() if word}).settings
        if not stated and not _is_reachable(config):
            return None
        found = _ask(config, topic, None if stated else servers)
    except BookKeeperError:
        if stated:
            raise
        return None  # of a place that nobody named, it says nothing about this topic
    if isinstance(found, _NoTopic):
        raise CommandFailed(f"there is no topic {shown(topic)!r} in {found.where}; nothing was done")
    return found


@dataclass(frozen=True, slots=True)
class _NoTopic:
    where: str


def _ask(config: HubConfig, topic: Topic, servers: Iterable[HubAddress] | None) -> Known | _NoTopic | None:
    """servers: believe only where one of these is registered."""
    from hedwig.admin.blocking import connect

    async def ask(region: Region) -> Known | _NoTopic | None:
        if servers is not None and not _share(await region.metadata.hubs(), servers):
            return None
        if not (await region.metadata.look(topic)).exists:
            return _NoTopic(region.paths.root)
        return Known(await region.last_id(topic))

    with connect(config) as access:
        return access.run(ask)


def _is_reachable(config: HubConfig) -> bool:
    """Whether something listens there."""
    from bookkeeper.metadata.uri import parse_uri

    for server in parse_uri(config.metadata_service_uri).servers:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
        except OSError:
            continue
        return True
    return False


def _share(registered: Iterable[HubAddress], servers: Iterable[HubAddress]) -> bool:
    """Whether a hub is among both, by whichever name."""
    return not _places(registered).isdisjoint(_places(servers))


def _places(hubs: Iterable[HubAddress]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for hub in hubs:
        found.add((hub.host, hub.port))
        try:
            found.update((str(each[4][0]), hub.port) for each in socket.getaddrinfo(hub.host, hub.port))
        except OSError:
            continue  # a name that is unknown here: it is compared as it stands
    return found
