r"""Print the stored messages of a topic, straight from its ledgers: nothing is fenced or consumed.

Messages that are acknowledged at the start are printed. If the bookies do not know the last acknowledged message, the
topic's hub is asked. A warning names messages behind the end that may be acknowledged too. Consumed messages are
deleted ledger by ledger, so older ones may still be stored.

examples:
  hedwig readtopic news                          all messages that are kept, one a line
  hedwig readtopic news --from 1000 -n 10        ten of them
  hedwig readtopic news --from -5 --json         the last five
  hedwig readtopic news -f '%o %T %h %s\n'       a format string: id, publish time, properties, body

format: %t topic, %o message id, %s body, %S its size, %x body in hex, %k key, %h header properties (k=v,k=v), %{NAME}
one of them, %T publish time (ms since 1970; -1: unknown), %y message type, %r region, %%, and \n \t \r \0 \xHH

"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, Progress, counted, note
from bookkeeper.console.subcommands import at_least
from hedwig.cli.formats import TOKENS, formatter_of
from hedwig.cli.region import add_region_arguments, region_of, shown, topic_of
from hedwig.cli.writing import write_out

if TYPE_CHECKING:
    from hedwig.admin.reading import Stored
    from hedwig.admin.region import Region
    from hedwig.model import LocalId
    from hedwig.wire.view import MessageView

    Piece = list[tuple[LocalId, MessageView]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig readtopic`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--from", dest="first", type=int, metavar="ID", help="first message; -N: the last N")
    parser.add_argument("--to", dest="last", type=at_least(1), metavar="ID", help="last message (default: the newest)")
    parser.add_argument("-n", "--count", type=at_least(1), metavar="N", help="at most so many")
    parser.add_argument(
        "--unconfirmed", action="store_true", help="print all stored messages, acknowledged or not; asks no hub"
    )
    parser.add_argument("-f", "--format", metavar="TEXT", help=f"of each message: {TOKENS.replace('%', '%%')}")
    parser.add_argument("--json", action="store_true", help="JSON lines")
    parser.add_argument("--length-prefixed", action="store_true", help="four bytes of length, and the body")
    add_region_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read and print."""
    topic = topic_of(args.topic)
    form = formatter_of(text_format=args.format, json_lines=args.json, length_prefixed=args.length_prefixed)
    if args.first == 0:
        raise CommandFailed("--from 0: messages are numbered from 1 on; -N stands for the last N", EXIT_USAGE)
    if args.first is not None and args.last is not None and args.last < args.first:
        raise CommandFailed(f"--from {args.first} --to {args.last}: the last one is before the first", EXIT_USAGE)

    async def look(region: Region) -> Stored:
        from hedwig.admin.reading import Stored
        from hedwig.admin.topic_ends import TopicEnds
        from hedwig.client_config import load_hedwig_client

        if args.unconfirmed:
            return await Stored.of(region, topic, None)
        context = region.client.context
        ends = TopicEnds(context.clock, context.network, load_hedwig_client(None).settings)
        try:
            return await Stored.of(region, topic, ends)
        finally:
            ends.close()

    out, printed = sys.stdout.fileno(), 0
    with region_of(args) as access:
        stored = access.run(look)
        first, last = _range(args, stored)
        progress = Progress("messages", max(0, last - first + 1)) if not sys.stdout.isatty() else None

        def messages(_: Region) -> AsyncGenerator[Piece, None]:
            return stored.messages(first, last)

        for piece in access.pieces(messages):
            write_out(out, b"".join([form(topic, message_id, message) for message_id, message in piece]))
            printed += len(piece)
            if progress is not None:
                progress.update(printed)
        if progress is not None:
            progress.close()
    _note_gone(args, stored)
    note(f"{counted(printed, 'message')} of topic {shown(topic)}, which has {_extent(stored)}")
    if stored.unconfirmed is not None and last >= stored.last:
        note(f"warning: {stored.unconfirmed}; --unconfirmed prints all stored messages")
    return EXIT_OK


def _note_gone(args: argparse.Namespace, stored: Stored) -> None:
    """Report requested messages that are deleted."""
    from hedwig.model import Gone, LocalId

    first = 1 if args.first is None else args.first
    if first < 0:
        first = max(1, stored.last + 1 + first)
    last = stored.first - 1 if args.last is None else min(args.last, stored.first - 1)
    if first <= last:
        gone = str(Gone(LocalId(first), LocalId(last))).capitalize()
        note(f"{gone} of topic {args.topic} are deleted: consumed, or beyond the retention of the hubs")


def _range(args: argparse.Namespace, stored: Stored) -> tuple[int, int]:
    """Of ids; empty where the last one is below the first."""
    first = stored.first if args.first is None else args.first
    if first < 0:
        first = stored.last + 1 + first
    first = max(first, stored.first)
    last = stored.last if args.last is None else min(args.last, stored.last)
    return first, last if args.count is None else min(last, first + args.count - 1)


def _extent(stored: Stored) -> str:
    if stored.last < stored.first:
        return f"none now; the last one was {stored.last}" if stored.last else "none"
    return f"{stored.first} to {stored.last}"
