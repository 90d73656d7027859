"""Move a subscription forward: everything up to a message is consumed, and never delivered to it.

A hub takes no word for a message that it has not delivered, so the messages on the way are fetched, and dropped. Back
it never goes; nor beyond the end: where the records are at hand, that is refused before anything is consumed. While
another client holds the subscription it is busy; --force takes it from there.

examples:
  hedwig consume news me 1000      the next message will be 1001
  hedwig consume news me end       all that is there now
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, CommandFailed, Progress, note
from hedwig.cli.client import add_client_arguments, connected, seconds
from hedwig.cli.looking import add_look_arguments, look
from hedwig.cli.region import shown, subscriber_of, topic_of

if TYPE_CHECKING:
    from hedwig.client.faces.blocking import BlockingSubscription

IDLE_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig consume`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("subscriber", metavar="SUBSCRIBER")
    parser.add_argument("id", metavar="ID", help="of the last message that is consumed; or `end`")
    parser.add_argument("--force", action="store_true", help="take the subscription from another client that holds it")
    parser.add_argument(
        "--idle",
        type=seconds,
        default=IDLE_S,
        metavar="SECONDS",
        help="silence that means the end (default: %(default)s)",
    )
    add_client_arguments(parser)
    add_look_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Fetch and consume."""
    topic, subscriber = topic_of(args.topic), subscriber_of(args.subscriber)
    up_to = _id_of(args.id)
    known = look(args, topic)
    if known is not None and up_to is not None and up_to > known.last:
        raise CommandFailed(
            f"topic {shown(topic)} ends at {known.last}: {up_to} is not there yet, and nothing was consumed; `end` "
            "stands for all that is there"
        )
    from hedwig.model import SubscribeMode

    with (
        connected(args) as client,
        client.subscribe(topic, subscriber, SubscribeMode.ATTACH, force=args.force, auto_consume=False) as subscription,
    ):
        last, is_there = _consume(subscription, up_to, args.idle)
    what = f"subscriber {shown(subscriber)} of topic {shown(topic)}"
    if up_to is not None and last is not None and not is_there:
        note(f"{what}: consumed up to {last}, where the topic ends; {up_to} is not there yet")
        return EXIT_FAILURE
    if last is None:
        note(f"{what}: nothing was left to consume" + ("" if up_to is None else f" up to {up_to}"))
    else:
        note(f"{what}: consumed up to {last}")
    return EXIT_OK


def _id_of(text: str) -> int | None:
    """None: the end. Raises CommandFailed."""
    if text == "end":
        return None
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise CommandFailed(f"{text!r} is no message's id: they are numbers from 1 on; or `end`", EXIT_USAGE)
    return int(text)


def _consume(subscription: BlockingSubscription, up_to: int | None, idle_s: float) -> tuple[int | None, bool]:
    """The last message that was consumed, None where there was none up to `up_to`; whether that one is there, or is
    passed over by the subscription's filter, as later ones are there.
    """
    progress = Progress("messages")
    done = 0
    last: int | None = None
    while True:
        messages = subscription.receive(500, idle_s)
        wanted = messages if up_to is None else [each for each in messages if each.local_id <= up_to]
        if wanted:
            subscription.consume(wanted[-1])
            last = wanted[-1].local_id
            done += len(wanted)
            progress.update(done)
        if not messages or len(wanted) < len(messages) or last == up_to:
            progress.close()
            return last, last == up_to or len(wanted) < len(messages)
