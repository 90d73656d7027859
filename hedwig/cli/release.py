"""Ask hubs to give topics up, so that other hubs serve them: in order, and the subscribers are told to follow.

A topic goes to the hub with the fewest topics when somebody asks for it next. The hub is asked over HTTP
(httpServerEnabled=true there): at the host of its address, and httpServerPort of these settings, unless --http says
where its HTTP server is; where the hub has httpServerPort=0, its log says so. A hub to play with that can be asked:
`bookkeeper standalone --hub --hub-setting httpServerEnabled=true --hub-setting httpServerPort=8080`.

examples:
  hedwig release news sport                                   these topics, by whoever serves them
  hedwig release --hub 10.0.0.1:4080 --count 100              any hundred of one hub
  hedwig release news --http 10.0.0.1:4080=127.0.0.1:8001     its HTTP server is elsewhere
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, CommandFailed, counted, note
from bookkeeper.console.subcommands import at_least
from hedwig.cli.region import add_region_arguments, region_of, region_settings, shown, topic_of
from hedwig.cli.words import operands_last

if TYPE_CHECKING:
    from hedwig.admin.asking import HttpPlaces
    from hedwig.admin.region import Region
    from hedwig.model import HubAddress, Topic

STEP = 50
"""Topics of one request: progress is seen, and an interrupt stops what has not been asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig release`."""
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument("--hub", metavar="HOST:PORT", help="of this hub; with --count")
    parser.add_argument("--count", type=at_least(1), metavar="N", help="any so many topics of --hub")
    add_http_arguments(parser)
    add_region_arguments(parser)


def add_http_arguments(parser: argparse.ArgumentParser) -> None:
    """--http."""
    parser.add_argument(
        "--http",
        action="append",
        default=[],
        metavar="HUB=HOST:PORT",
        help="where a hub's HTTP server is, repeatable (default: its host, with httpServerPort of these settings)",
    )


def arrange(words: list[str]) -> list[str]:
    """Operands may stand among the options."""
    return operands_last(words, add_arguments)


def run(args: argparse.Namespace) -> int:
    """Ask."""
    if bool(args.topics) == (args.hub is not None) or (args.hub is None) != (args.count is None):
        raise CommandFailed("name topics, or a hub with --hub HOST:PORT --count N", EXIT_USAGE)
    places = http_places(args)
    if args.hub is not None:
        hub = _registered(args)
        released = release_from(places, hub, args.count)
        note(f"{counted(released, 'topic')} released by {hub}")
        if released < args.count:
            note("It had no more.")
        return EXIT_OK
    return _release_topics(args, places)


def _registered(args: argparse.Namespace) -> HubAddress:
    async def hubs(region: Region) -> dict[HubAddress, int]:
        return await region.metadata.hubs()

    with region_of(args) as access:
        found = access.run(hubs)
    for hub in found:
        if args.hub in (str(hub), f"{hub.host}:{hub.port}"):
            return hub
    there = ", ".join(sorted(f"{hub.host}:{hub.port}" for hub in found)) or "none"
    raise CommandFailed(f"no hub {args.hub} is registered; those there are: {there}")


def _release_topics(args: argparse.Namespace, places: HttpPlaces) -> int:
    from bookkeeper.errors import BookKeeperError, InvalidArgument
    from hedwig.admin.asking import release_topic

    topics = [topic_of(word) for word in args.topics]
    failed = 0
    with region_of(args) as access:
        for topic in topics:

            async def owner(region: Region, topic: Topic = topic) -> HubAddress | None:
                return await region.owner(topic)

            try:
                hub = access.run(owner)
                if hub is None:
                    note(f"topic {shown(topic)}: nobody serves it")
                elif release_topic(places, hub, topic):
                    note(f"topic {shown(topic)}: released by {hub}")
                else:
                    note(f"topic {shown(topic)}: {hub} did not serve it any more")
            except InvalidArgument as error:
                note(f"hedwig: {error}")
                failed += 1
            except BookKeeperError as error:
                note(f"hedwig: topic {shown(topic)}: {error}")
                failed += 1
    return EXIT_FAILURE if failed else EXIT_OK


def http_places(args: argparse.Namespace) -> HttpPlaces:
    """Where the HTTP servers are. Raises CommandFailed for a word that does not say so."""
    from bookkeeper.system.hosts import check_no_number
    from hedwig.admin.asking import HttpPlaces

    named: dict[str, tuple[str, int]] = {}
    for word in args.http:
        hub, separator, place = word.partition("=")
        host, _, port = place.rpartition(":")
        if not separator or not hub or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise CommandFailed(f"--http {word!r}: write it as HUB=HOST:PORT", EXIT_USAGE)
        try:
            check_no_number(host)
        except ValueError as error:
            raise CommandFailed(f"--http {word!r}: {error}", EXIT_USAGE) from error
        named[hub] = (host.strip("[]"), int(port))
    return HttpPlaces(region_settings(args).http_server_port, named)


def release_from(places: HttpPlaces, hub: HubAddress, count: int) -> int:
    """How many topics the hub gave up, of so many: a piece at a time. Raises HubNotAsked."""
    from hedwig.admin.asking import release_some

    released = 0
    while released < count:
        step = min(STEP, count - released)
        some = release_some(places, hub, step)
        released += some
        if some < step:
            break
    return released
