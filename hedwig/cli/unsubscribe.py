"""End subscriptions for good: what they have not consumed is not kept for them any more.

examples:
  hedwig unsubscribe news me
  hedwig unsubscribe news me you --force      without being asked
"""

from __future__ import annotations

import argparse

from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, confirm, counted, note
from hedwig.cli.client import add_client_arguments, connected
from hedwig.cli.looking import add_look_arguments, look
from hedwig.cli.region import shown, subscriber_of, topic_of
from hedwig.cli.words import operands_last


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig unsubscribe`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("subscribers", nargs="+", metavar="SUBSCRIBER")
    parser.add_argument("--force", action="store_true", help="do not ask")
    add_client_arguments(parser)
    add_look_arguments(parser)


def arrange(words: list[str]) -> list[str]:
    """Operands may stand among the options."""
    return operands_last(words, add_arguments)


def run(args: argparse.Namespace) -> int:
    """Ask, and end them."""
    topic = topic_of(args.topic)
    subscribers = [subscriber_of(word) for word in args.subscribers]
    confirm(
        f"{counted(len(subscribers), 'subscription')} of topic {shown(topic)} will be deleted, with what waits for "
        f"{'it' if len(subscribers) == 1 else 'them'}.",
        force=args.force,
    )
    from hedwig.errors import NotSubscribed, PubSubError

    look(args, topic)
    failed = 0
    with connected(args) as client:
        for subscriber in subscribers:
            try:
                client.unsubscribe(topic, subscriber)
            except NotSubscribed:  # of which hubs say the status alone
                note(f"hedwig: there is no subscriber {shown(subscriber)!r} of topic {shown(topic)!r}")
                failed += 1
            except PubSubError as error:
                note(f"hedwig: subscriber {shown(subscriber)} of topic {shown(topic)}: {error}")
                failed += 1
            else:
                note(f"subscriber {shown(subscriber)} of topic {shown(topic)}: ended")
    return EXIT_FAILURE if failed else EXIT_OK
