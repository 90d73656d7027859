r"""Subscribe, and print messages as they come.

A subscription has a name and is kept: run again, it goes on behind what was printed. A new one begins with what is
published from now on, unless --from says where. A message is consumed once it was written to standard output. What a
pipe holds (64 KiB) when the program behind it ends or dies was written, and does not come again: where no message may
be missed, let --each run a program for each. Without --subscriber the subscription is temporary, and ends with the
command.

With --one-by-one each message is acknowledged by itself, once it was written, or once the command of --each has ended
with exit code 0; else it comes again. --shared lets several commands have one subscription, each with messages of its
own: a work queue. Both stay with the subscription, as their settings do. --from and they need hubs of this project;
with others the command fails.

A filter stays with the subscription too; --filter '$size >= 0' matches all messages again. A filter may take 524,288
steps for a message (LIKE: one for each byte of a long value), and read 2,000 properties. If a message needs more, the
hub suspends the subscription before this message. The command then ends with an error that names the message and the
remedy. No message is lost.

examples:
  hedwig sub news                                   what is published from now on
  hedwig sub news -s me                             ... and everything since the last time
  hedwig sub news -s me -e                          until nothing has come for a second
  hedwig sub news -s me -c 10 -f '%o %T %h %s\n'    ten, by a format string: id, publish time, properties, body
  hedwig sub news --from first -e                   all that is kept; also: --from 17, --from time:2026-11-22T10:00Z
  hedwig sub news -s me --filter "color = 'red'"    the hub passes over all others
  hedwig sub orders -s billing --json | ./bill.py   consumed as they are written
  hedwig sub jobs -s workers --shared --each ./work.sh --attempts 3 --dead-letter failed-jobs
                                                    a worker, one of many; what fails three times is put aside
  hedwig sub jobs -s workers --shared -f '%{hw.attempt} %s\n'    printed is done; which attempt, from 2 on

format: %t topic, %o message id, %s body, %S its size, %x body in hex, %k key, %h header properties (k=v,k=v), %{NAME}
one of them, %T publish time (ms since 1970; -1: unknown), %y message type, %r region, %%, and \n \t \r \0 \xHH

"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bookkeeper.cli.ledger.listener import watching_listener
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, Progress, counted, note
from bookkeeper.console.subcommands import at_least
from hedwig.cli.client import add_client_arguments, connected, end_on_sigterm, pairs_of, seconds
from hedwig.cli.each import Each, check_command
from hedwig.cli.formats import TOKENS, Formatter, formatter_of
from hedwig.cli.region import shown, subscriber_of, topic_of
from hedwig.cli.writing import write_out

if TYPE_CHECKING:
    from hedwig.client.faces.blocking import BlockingClient, BlockingSubscription
    from hedwig.model import Gone, Preferences, SubscribeMode, SubscriberId, Topic
    from hedwig.wire.receiving import Received

TAKEN_AT_ONCE = 500
IDLE_S = 1.0
RETRY_S = 1.0
SLOW_S = 2.0
"""A silence at the end that wants an explanation."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig sub`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-s", "--subscriber", metavar="NAME", help="name of the subscription (default: a temporary one)"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--create", action="store_true", help="it must be new")
    mode.add_argument("--attach", action="store_true", help="it must be there already")
    parser.add_argument("--force", action="store_true", help="take it from another client that holds it")
    parser.add_argument(
        "--from",
        dest="begin",
        type=_begin,
        metavar="WHERE",
        help="begin anew at `first`, a message's id, or time:WHEN (ISO 8601, UTC if nothing is said; or ms since 1970)",
    )
    parser.add_argument("--filter", metavar="EXPRESSION", help="only messages whose header is so; by the hub")
    parser.add_argument("--window", type=at_least(0), metavar="N", help="messages on their way at most; 0: no limit")
    parser.add_argument("--bound", type=at_least(1), metavar="N", help="only so many of the newest are kept for it")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the subscription, repeatable"
    )
    _add_queue_arguments(parser)
    parser.add_argument("-c", "--count", type=at_least(1), metavar="N", help="end after so many messages")
    parser.add_argument("-e", "--exit", action="store_true", help="end once nothing comes for --idle seconds")
    parser.add_argument(
        "--idle", type=seconds, default=IDLE_S, metavar="SECONDS", help="what -e waits (default: %(default)s)"
    )
    parser.add_argument(
        "--peek",
        action="store_true",
        help="consume nothing; the same messages are delivered again; the window limits their number",
    )
    parser.add_argument("-f", "--format", metavar="TEXT", help=f"of each message: {TOKENS.replace('%', '%%')}")
    parser.add_argument("--json", action="store_true", help="JSON lines")
    parser.add_argument("--length-prefixed", action="store_true", help="four bytes of length, and the body")
    parser.add_argument("-q", "--quiet", action="store_true", help="no count at the end")
    add_client_arguments(parser)


def _add_queue_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("acknowledging one by one", "each of these asks for it")
    group.add_argument("--one-by-one", action="store_true", help="acknowledge each message by itself")
    group.add_argument("--shared", action="store_true", help="several commands may have the subscription at a time")
    group.add_argument(
        "--each",
        metavar="COMMAND",
        help="run this for each message, with its body (or what -f, --json say) as input, and HEDWIG_TOPIC, HEDWIG_ID, "
        "HEDWIG_ATTEMPT; exit code 0 acknowledges it; 126 and 127, of a command that cannot be run, end this",
    )
    group.add_argument(
        "--retry",
        type=seconds,
        default=RETRY_S,
        metavar="SECONDS",
        help="when a message that COMMAND refused comes again (default: %(default)s)",
    )
    group.add_argument(
        "--ack-timeout",
        type=seconds,
        metavar="SECONDS",
        help="then it comes again anyway; more than COMMAND takes (default at first: 60)",
    )
    group.add_argument("--attempts", type=at_least(0), metavar="N", help="deliveries of a message; 0: no end")
    group.add_argument("--dead-letter", metavar="TOPIC", help="where it goes then (default at first: nowhere)")
    group.add_argument(
        "--in-flight",
        type=at_least(1),
        metavar="N",
        help="messages that one command has at a time (default: with --each 1, else at first 1000)",
    )


def _begin(text: str) -> str:
    """As the option of the subscription has it."""
    if text == "first":
        return text
    if text.isdecimal() and int(text):
        return f"id:{text}"
    kind, _, when = text.partition(":")
    if kind == "time" and when.isdecimal():
        return text
    if kind == "time":
        with contextlib.suppress(ValueError):
            time = datetime.datetime.fromisoformat(when)
            time = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
            if time.timestamp() >= 0:
                return f"time:{round(time.timestamp() * 1000)}"
    raise argparse.ArgumentTypeError(f"{text!r} is neither `first`, nor a message's id, nor time:WHEN")


def run(args: argparse.Namespace) -> int:
    """Print until the end."""
    topic = topic_of(args.topic)
    form = formatter_of(text_format=args.format, json_lines=args.json, length_prefixed=args.length_prefixed)
    if args.subscriber is None and (args.attach or args.create or args.force or args.shared):
        raise CommandFailed(
            "--create, --attach, --force and --shared are about a subscription of a name: add -s NAME", EXIT_USAGE
        )
    temporary = args.subscriber is None
    subscriber = subscriber_of(_temporary_name() if temporary else args.subscriber)
    preferences = preferences_of(args)
    individual = _is_individual(preferences)
    if individual and args.peek:
        raise CommandFailed(
            "--peek: what is not acknowledged comes again by itself, and counts as tried; leave it out", EXIT_USAGE
        )
    if args.each is not None:
        check_command(args.each)
    end_on_sigterm()
    with connected(args) as client, _ended(client, topic, subscriber, temporary=temporary):
        subscription = client.subscribe(
            topic,
            subscriber,
            _mode(args),
            preferences=preferences,
            force=args.force,
            auto_consume=False,
            on_gone=lambda gone: _note_gone(args, topic, gone),
        )
        printer = _Printer(args, topic, subscription, form, individual=individual)
        quiet = args.quiet
        try:
            with subscription:
                printer.run()
        except BrokenPipeError:
            quiet = True
            raise
        finally:
            printer.end(quiet=quiet)
    return EXIT_OK


def _note_gone(args: argparse.Namespace, topic: Topic, gone: Gone) -> None:
    remark = "; some or all of them may be older than --from asks for" if gone.maybe else ""
    note(f"hedwig: {gone} of topic {shown(topic)} were deleted before they were read{remark}")


def _temporary_name() -> str:
    host = "".join(char for char in socket.gethostname() if char.isalnum() or char in "-.")
    return f"hedwig-sub-{host}-{os.getpid()}-{secrets.token_hex(4)}"


def _mode(args: argparse.Namespace) -> SubscribeMode:
    from hedwig.model import SubscribeMode

    if args.create:
        return SubscribeMode.CREATE
    return SubscribeMode.ATTACH if args.attach else SubscribeMode.CREATE_OR_ATTACH


def preferences_of(args: argparse.Namespace) -> Preferences:
    """What the options ask for. Raises CommandFailed."""
    from hedwig.filters import with_expression
    from hedwig.model import Preferences
    from hedwig.protocol.options import REPLAY

    # Peeked messages stay unconsumed, so a window would fill up and end the delivery. The window of a permanent
    # subscription is stored, and belongs to its readers.
    window = 0 if args.window is None and args.peek and args.subscriber is None else args.window
    options = dict(pairs_of(args.option, "--option"))
    if args.begin is not None:
        # Only a change of the option is a wish, so that who reconnects goes on: each run asks in words of its own.
        options[REPLAY] = f"{args.begin};{secrets.token_hex(4)}".encode()
    preferences = _queue_preferences(args).merged(
        Preferences(message_bound=args.bound, window_size=window, options=options)
    )
    return preferences if args.filter is None else with_expression(args.filter, preferences)


def _queue_preferences(args: argparse.Namespace) -> Preferences:
    from hedwig.client.subscriptions.work_queue import one_by_one
    from hedwig.model import Preferences

    said = (args.each, args.ack_timeout, args.attempts, args.dead_letter, args.in_flight)
    if not (args.one_by_one or args.shared) and all(each is None for each in said):
        return Preferences()
    return one_by_one(
        shared=args.shared,
        timeout_s=args.ack_timeout,
        attempts_max=args.attempts,
        dead_letter=None if args.dead_letter is None else topic_of(args.dead_letter),
        in_flight_max=1 if args.each is not None and args.in_flight is None else args.in_flight,
    )


def _is_individual(preferences: Preferences) -> bool:
    from hedwig.protocol.options import ack_options

    return ack_options(preferences) is not None


@contextlib.contextmanager
def _ended(client: BlockingClient, topic: Topic, subscriber: SubscriberId, *, temporary: bool) -> Iterator[None]:
    """A temporary subscription does not outlive this: messages would be kept for it for ever."""
    from hedwig.errors import NotSubscribed

    try:
        yield
    finally:
        if temporary:
            slow = threading.Timer(
                SLOW_S, note, ["Waiting for a hub, to end the temporary subscription; Ctrl-C ends that at once."]
            )
            slow.daemon = True
            slow.start()
            try:
                client.unsubscribe(topic, subscriber)
            except NotSubscribed:
                pass
            except BaseException:
                note(
                    f"hedwig: the temporary subscription could not be ended: `hedwig unsubscribe {shown(topic)} "
                    f"{shown(subscriber)}` does that"
                )
                raise
            finally:
                slow.cancel()


class _Printer:
    """Messages of one subscription to standard output."""

    def __init__(
        self,
        args: argparse.Namespace,
        topic: Topic,
        subscription: BlockingSubscription,
        form: Formatter,
        *,
        individual: bool,
    ) -> None:
        self._topic, self._subscription, self._form = topic, subscription, form
        self._count, self._idle_s, self._consumes = args.count, args.idle if args.exit else None, not args.peek
        self._progress = None if sys.stdout.isatty() else Progress("messages")
        self._printed = 0
        self._window = subscription.preferences.window_size if args.peek else None
        self._printing = threading.Lock()
        self._individual, self._retry_s = individual, args.retry
        self._each: Each | None = None
        if args.each is not None:
            plain = args.format is None and not args.json and not args.length_prefixed
            self._each = Each(
                args.each, topic, lambda message: message.body if plain else form(topic, message.local_id, message)
            )

    def run(self) -> None:
        """Until the end. Raises BrokenPipeError when nobody reads the output any more, though nothing more may come."""
        from bookkeeper.errors import ClientClosed

        if self._each is not None:
            self._hand_out(self._each)
            return
        with watching_listener(sys.stdout.fileno(), self._let_go) as listener:
            try:
                is_done = self._print_all()
            except ClientClosed as error:  # `_let_go` closed the subscription while it waited
                if not listener.gone:
                    raise
                raise BrokenPipeError from error
            if not is_done and listener.gone:  # `_let_go` closed it between two messages
                raise BrokenPipeError

    def _let_go(self) -> None:
        with self._printing:  # what was written is consumed first
            self._subscription.close()

    def _print_all(self) -> bool:
        """Print messages; return whether all that were asked for are printed. False: no further message came."""
        out, topic, form = sys.stdout.fileno(), self._topic, self._form
        while True:
            at_most = TAKEN_AT_ONCE if self._count is None else min(TAKEN_AT_ONCE, self._count - self._printed)
            if not at_most:
                return True
            messages = self._subscription.receive(at_most, self._idle_s)
            if not messages:
                return False
            data = b"".join([form(topic, each.local_id, each) for each in messages])
            with self._printing:
                self._printed += len(messages)  # first: a signal may end this behind any step, also behind the write
                try:
                    write_out(out, data)
                except OSError:
                    self._printed -= len(messages)
                    raise
                self._done(messages)
            if self._window and self._printed >= self._window:
                note(
                    f"hedwig: the subscription's window delivers no more than {counted(self._window, 'message')} until "
                    "messages are consumed; --window N stores another window, 0 for no limit"
                )
                self._window = None
            if self._progress is not None:
                self._progress.update(self._printed)

    def _done(self, messages: list[Received]) -> None:
        if self._individual:
            for each in messages:
                self._subscription.ack(each)
        elif self._consumes:
            self._subscription.consume(messages[-1])

    def _hand_out(self, each: Each) -> None:
        while self._count is None or self._printed < self._count:
            messages = self._subscription.receive(1, self._idle_s)
            if not messages:
                return
            [message] = messages
            takes = each.takes(message)
            self._printed += 1
            if takes:
                self._subscription.ack(message)
            else:
                self._subscription.nack(message, self._retry_s)

    def end(self, *, quiet: bool) -> None:
        """Say how many there were."""
        if self._progress is not None:
            self._progress.close()
        if not quiet:
            note(f"{counted(self._printed, 'message')} of topic {shown(self._topic)}")
