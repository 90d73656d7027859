r"""Publish messages: each line of standard input, or each FILE as one message.

A message counts once it is durable. Many are under way at a time; reading waits where hubs are slower. After the first
one that fails no more are read, and what is under way is waited for. Ctrl-C waits for that too; a second one does not.

examples:
  seq 1000 | hedwig pub numbers                     a message a line
  tail -F app.log | hedwig pub logs --rate 500      no more than 500 a second
  hedwig pub photos cat.jpg dog.jpg -H kind=image   a message a file, with a header property
  hedwig pub news -m hello -i                       this text; prints the message's id
  printf 'a:1\0b:2\0' | hedwig pub kv --null -K :   key a, body 1; key b, body 2
  hedwig sub old -e --length-prefixed | hedwig pub new --length-prefixed
  hedwig pub orders --once < orders.txt             each stored once, though hubs die and answers are lost
  hedwig pub orders --producer till7 < orders.txt   ... run again under this name, from the same first line: not again
  hedwig pub results --keep 2592000 < results.txt   hubs keep the topic's messages for 30 days, consumed or not

"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    counted,
    json_line,
    note,
)
from bookkeeper.console.subcommands import at_least
from hedwig.cli.client import add_client_arguments, connected, end_on_sigterm, pairs_of
from hedwig.cli.formats import escaped
from hedwig.cli.input import read_delimited, read_length_prefixed
from hedwig.cli.region import shown, topic_of
from hedwig.cli.words import operands_last
from hedwig.model import KEY_PROPERTY

if TYPE_CHECKING:
    from hedwig.client.faces.blocking import BlockingClient, BlockingPublisher
    from hedwig.model import MessageId, Topic

SIZE_MAX = 64 * 1024 * 1024
"""Of one message that is read before hubs are asked what they think of it."""

KEEP_S_MAX = 1000 * 365 * 86_400

LOOKED_AT_EVERY = 500
"""Messages handed over between two looks at what was answered."""

FAILURES_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig pub`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("files", nargs="*", metavar="FILE", help="messages; - is standard input (default: its lines)")
    parser.add_argument("-m", "--message", action="append", default=[], metavar="TEXT", help="a message, repeatable")
    parser.add_argument(
        "-d", "--delimiter", default=r"\n", metavar="TEXT", help=r"between messages; \n \t \0 \xHH (default: \n)"
    )
    parser.add_argument("-0", "--null", action="store_true", help=r"the same as -d '\0'")
    parser.add_argument(
        "--length-prefixed", "--binary", action="store_true", help="four bytes of length, big-endian, and the body"
    )
    parser.add_argument(
        "-K", "--key-delimiter", metavar="TEXT", help=f"what is before it becomes the property {KEY_PROPERTY!r}"
    )
    parser.add_argument("-k", "--key", metavar="TEXT", help=f"the property {KEY_PROPERTY!r} of all messages")
    parser.add_argument(
        *("-H", "--header", "--property"),
        dest="headers",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a header property of all messages, repeatable",
    )
    parser.add_argument("--type", dest="message_type", metavar="TEXT", help="the message type of all messages")
    parser.add_argument("-c", "--count", type=at_least(1), metavar="N", help="at most so many messages")
    parser.add_argument("--rate", type=at_least(1), metavar="N", help="at most so many messages a second")
    parser.add_argument("-i", "--ids", action="store_true", help="print the id of each message once it is durable")
    parser.add_argument("--json", action="store_true", help="JSON lines of ids, and a last one of counts")
    once = parser.add_mutually_exclusive_group()
    once.add_argument("--once", action="store_true", help="store each message once, in order, whatever becomes of hubs")
    once.add_argument(
        "--producer",
        metavar="NAME",
        help="the same, under a name that nobody else has at a time: what was published under it is known again by its "
        "number",
    )
    parser.add_argument(
        "--first", type=at_least(1), metavar="N", help="number of the first message, with --producer (default: 1)"
    )
    parser.add_argument(
        "--keep",
        type=_seconds,
        metavar="SECONDS",
        help="keep the topic's messages for this time, consumed or not; 0: only while subscriptions need them "
        "(default: the time last set for the topic, else the hubs' keep_unsubscribed_ms)",
    )
    add_client_arguments(parser)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= KEEP_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {KEEP_S_MAX}; 86400 is a day")
    return found


def arrange(words: list[str]) -> list[str]:
    """Operands may stand among the options."""
    return operands_last(words, add_arguments)


def run(args: argparse.Namespace) -> int:
    """Publish all."""
    topic = topic_of(args.topic)
    batches = _batches(args)  # before anything is connected to: it checks what the options say
    properties = pairs_of(args.headers, "-H")
    if args.key is not None:
        properties = {**properties, KEY_PROPERTY: os.fsencode(args.key)}
    producer = "" if args.once else None if args.producer is None else os.fsencode(args.producer)
    if args.first is not None and not args.producer:
        raise CommandFailed("--first is of the messages of a --producer: name one", EXIT_USAGE)
    if producer == b"":
        raise CommandFailed("--producer '': give at least one character, or --once", EXIT_USAGE)
    end_on_sigterm()
    with connected(args) as client:
        publisher = client.publisher(
            topic,
            message_type=args.message_type,
            producer=producer,
            first=1 if args.first is None else args.first,
            keep_s=args.keep,
        )
        publishing = Publishing(args, topic, client, publisher, properties)
        return publishing.run(batches)


def _batches(args: argparse.Namespace) -> Iterator[list[bytes]]:
    """Messages as they come. Raises CommandFailed for options that contradict each other."""
    if args.null and args.delimiter != r"\n":
        raise CommandFailed("--null and --delimiter: give one of them", EXIT_USAGE)
    if args.message and args.files:
        raise CommandFailed("--message and FILE: give one of them", EXIT_USAGE)
    if args.key is not None and args.key_delimiter is not None:
        raise CommandFailed("--key and --key-delimiter: give one of them", EXIT_USAGE)
    if args.key_delimiter == "":
        raise CommandFailed("--key-delimiter '': give at least one character", EXIT_USAGE)
    delimiter = b"\0" if args.null else escaped(args.delimiter)
    if not delimiter:
        raise CommandFailed("--delimiter '': give at least one character", EXIT_USAGE)
    if args.message:
        return iter([[os.fsencode(text) for text in args.message]])
    if args.files:
        return _files(args.files)
    chunks = _standard_input()
    if args.length_prefixed:
        return read_length_prefixed(chunks, SIZE_MAX)
    return read_delimited(chunks, delimiter, SIZE_MAX)


def _files(names: Iterable[str]) -> Iterator[list[bytes]]:
    for name in names:
        if name == "-":
            yield [b"".join(_standard_input())]
        else:
            yield [Path(name).read_bytes()]


def _standard_input() -> Iterator[bytes]:
    descriptor = sys.stdin.fileno()
    while chunk := os.read(descriptor, 256 * 1024):
        yield chunk


def _is_waiting() -> bool:
    """Whether standard input has nothing now: who types, or follows a log, wants to hear of what was published."""
    try:
        return not select.select([sys.stdin.fileno()], [], [], 0)[0]
    except (OSError, ValueError):
        return False


class Publishing:
    """Messages on their way, and what became of them."""

    def __init__(
        self,
        args: argparse.Namespace,
        topic: Topic,
        client: BlockingClient,
        publisher: BlockingPublisher,
        properties: Mapping[str, bytes],
    ) -> None:
        self._topic, self._client, self._publisher, self._properties = topic, client, publisher, properties
        self._key_delimiter = None if args.key_delimiter is None else escaped(args.key_delimiter)
        self._rate, self._count_max = args.rate, args.count
        self._tells_ids, self._json = args.ids or args.json, args.json
        self._files: list[str] = args.files
        self._what = "file" if args.files else "message" if args.message else "line"
        if args.length_prefixed or args.null or args.delimiter != r"\n":
            self._what = "message"
        self._under_way: deque[tuple[int, Future[MessageId]]] = deque()
        self._handed = self._published = self._failed = 0
        self._cut_off = False
        self._progress = Progress("messages")

    def run(self, batches: Iterable[list[bytes]]) -> int:
        """Publish all; the exit code."""
        broken: CommandFailed | None = None
        began = time.monotonic()
        try:
            try:
                for batch in batches:
                    if not self._hand_over(batch, began):
                        break
                    if self._under_way and _is_waiting():
                        self._settle(wait=True)
            except CommandFailed as error:  # bad input: what came before it is published
                broken = error
            self._settle(wait=True)
        except (KeyboardInterrupt, SystemExit):
            self._end_early()
            raise
        finally:
            self._progress.close()
            self._settle(wait=False)
            self._tell_counts()
        if broken is not None:
            raise broken
        return EXIT_FAILURE if self._failed else EXIT_OK

    @property
    def _unanswered(self) -> int:
        """An interrupt may come at any place: what was handed over and not counted since is on its way, or was."""
        return self._handed - self._published - self._failed

    def _end_early(self) -> None:
        """Wait for what is under way, unless there is another interrupt."""
        self._progress.close()
        self._settle(wait=False)
        if self._unanswered:
            answers = counted(self._unanswered, "message")
            try:
                note(f"Waiting for the answer to {answers}; Ctrl-C again ends it at once.")
                self._client.close()
            except BaseException:  # another interrupt, maybe before the waiting has begun: what is open stays so
                self._cut_off = True
                self._client.end()
                raise

    def _hand_over(self, batch: list[bytes], began: float) -> bool:
        """Whether there is more to do."""
        for message in batch:
            if self._count_max is not None and self._handed >= self._count_max:
                return False
            if self._rate is not None:
                self._pace(began)
            body, properties = message, self._properties
            if self._key_delimiter is not None:
                key, separator, rest = message.partition(self._key_delimiter)
                if separator:
                    body, properties = rest, {**properties, KEY_PROPERTY: key}
            self._handed += 1
            try:
                answer = self._publisher.publish_soon(body, properties)
            except Exception:
                self._handed -= 1  # refused: it is on no way
                raise
            self._under_way.append((self._handed, answer))
            if self._handed % LOOKED_AT_EVERY == 0:
                self._settle(wait=False)
                if self._failed:
                    return False
        self._settle(wait=False)
        return not self._failed

    def _pace(self, began: float) -> None:
        ahead_s = self._handed / self._rate - (time.monotonic() - began)
        if ahead_s > 0:
            time.sleep(ahead_s)
            self._settle(wait=False)

    def _settle(self, *, wait: bool) -> None:
        """Take note of answers, in the order of messages; wait: for all of them."""
        from bookkeeper.errors import BookKeeperError

        under_way, told = self._under_way, []
        while under_way and (wait or under_way[0][1].done()):
            number, future = under_way[0]
            try:
                message_id = future.result()
            except BookKeeperError as error:
                under_way.popleft()
                if not self._cut_off:
                    self._tell_failure(number, error)
            else:
                under_way.popleft()
                self._published += 1
                if self._tells_ids:
                    told.append((number, message_id))
        if told:
            print("\n".join([self._id_line(*each) for each in told]), flush=True)
        self._progress.update(self._published)

    def _id_line(self, number: int, message_id: MessageId) -> str:
        return json_line({self._what: number, "id": message_id.local}) if self._json else str(message_id.local)

    def _tell_failure(self, number: int, error: Exception) -> None:
        self._failed += 1
        if self._failed <= FAILURES_SHOWN:
            note(f"hedwig: {self._name_of(number)}: {error}")

    def _name_of(self, number: int) -> str:
        """Of a message, to whoever gave it."""
        if not self._files:
            return f"{self._what} {number}"
        return "standard input" if self._files[number - 1] == "-" else self._files[number - 1]

    def _tell_counts(self) -> None:
        left = self._unanswered
        if self._json:
            counts = {"published": self._published, "failed": self._failed, "unanswered": left}
            print(json_line({"topic": shown(self._topic), **counts}))
            return
        words = [f"{counted(self._published, 'message')} published to {shown(self._topic)}"]
        if self._failed:
            words.append(f"{self._failed:,} failed")
        if left:
            words.append(f"{left:,} not answered: they may be there or not")
        note("; ".join(words))
