"""`bookkeeper spark topics`."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bookkeeper.cli.spark.said_as import said_as
from bookkeeper.cli.spark.session import spark_session
from bookkeeper.console.figures import check_can_draw
from bookkeeper.console.output import (
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    counted,
    note,
    print_json_line,
    print_table,
)
from bookkeeper.console.output import readable_size as size
from hedwig.cli.spark_said_as import TOPICS
from hedwig.cli.spark_topics_plot import draw_topics
from hedwig.cli.spark_words import region_words, topics_of
from hedwig.spark.topics.following import Following, follow_topics
from hedwig.spark.topics.question import Clock, Emit, Windows
from hedwig.spark.topics.sinks import LAGS, SIZES, WINDOWS, FileSink, FunctionSink, Sink, TopicSink

EXIT_LATE = 3

UNKNOWN = "unknown"
LOOK_S = 2.0

_SIZES = ("topic", "messages", "bytes", "ledgers", "subscriptions", "why unknown")
_LAGS = ("topic", "subscription", "behind", "consumed", "last", "why unknown")


def run_topics(args: argparse.Namespace) -> int:
    """Follow the topics until the end, or an interrupt; say what was read."""
    topics = topics_of(args)
    uri, given = region_words(args)
    words = {**said_as(TOPICS), **given}
    _check(args)
    seen = Seen()
    sinks = _sinks(args, {"uri": uri, **words}, seen)
    is_kept = args.output is not None or args.to_topic is not None
    emit = Emit(args.emit or ("final" if is_kept else "changed"))
    checkpoint = args.checkpoint or (None if args.output is None else f"{args.output.rstrip('/')}/_checkpoint")
    goes_on = "" if checkpoint is None else f"the same command goes on where it was, by {checkpoint}"
    with spark_session(args, progress=False, interrupted=goes_on) as spark:
        query = follow_topics(
            spark,
            uri,
            sinks,
            topics=topics,
            prefix=args.prefix,
            windows=Windows(args.window, args.delay, Clock(args.clock), emit),
            checkpoint=checkpoint,
            once=args.once,
            every_s=args.every,
            options={"startingOffsets": args.start, **words},
        )
        note(f"following {counted(len(query.topics), 'topic')}")
        _wait(query)
    if args.plot is not None:
        args.plot.write_bytes(draw_topics(list(seen.windows.values()), list(seen.lags.values())))
        note(f"drawn: {args.plot}")
    return EXIT_LATE if query.totals.late else EXIT_OK


def _check(args: argparse.Namespace) -> None:
    if args.to_topic is not None and args.output is None and args.checkpoint is None:
        raise CommandFailed("--to-topic needs --checkpoint: without it a second run publishes all again", EXIT_USAGE)
    if args.to_topic is not None and args.topics is not None and args.to_topic in args.topics.split(","):
        raise CommandFailed(f"--to-topic {args.to_topic}: it is one of the topics that are read", EXIT_USAGE)
    if args.to_topic is not None and args.topics is None and args.to_topic.startswith(args.prefix):
        raise CommandFailed(
            f"--to-topic {args.to_topic}: it would be one of the topics that are read; name these (--topics), or give "
            "them a --prefix",
            EXIT_USAGE,
        )
    if args.plot is None:
        return
    if not args.once:
        raise CommandFailed("--plot draws what was read, in the end: give --once", EXIT_USAGE)
    check_can_draw(args.plot)


def _sinks(args: argparse.Namespace, words: Mapping[str, str], seen: Seen) -> list[Sink]:
    found: list[Sink] = []
    if args.output is not None:
        found.append(FileSink(args.output, args.format))
    if args.to_topic is not None:
        found.append(TopicSink(args.to_topic, words))
    if not found:
        found.append(FunctionSink(show_lines if args.json else show_tables, args.rows))
    if args.plot is not None:
        found.append(FunctionSink(seen.take))
    return found


def _wait(query: Following) -> None:
    progress = Progress("messages")
    try:
        with _interrupts() as interrupted:
            while not query.wait(LOOK_S):
                progress.update(query.totals.messages)
                if interrupted.is_set():
                    query.stop()
                    raise KeyboardInterrupt
    finally:
        progress.close()
        totals = query.totals
        late = f"; {counted(totals.late, 'part')} of windows came too late, and in none" if totals.late else ""
        note(f"read {counted(totals.messages, 'message')} of {counted(len(query.topics), 'topic')}{late}")


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Set by the first interrupt; the second is one. Spark's own handler would call Spark in the middle of a call."""
    seen = threading.Event()

    def take(number: int, frame: object) -> None:
        if seen.is_set():
            raise KeyboardInterrupt
        seen.set()

    before = signal.signal(signal.SIGINT, take)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


class Seen:
    """What a picture shows: windows by topic, clock and start, and the newest lags. Bounded by what sinks show."""

    WINDOWS_MAX = 100_000

    def __init__(self) -> None:
        self.windows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.lags: dict[tuple[Any, ...], dict[str, Any]] = {}

    def take(self, kind: str, batch_id: int, rows: Sequence[dict[str, Any]], count: int) -> None:
        """For a FunctionSink."""
        del batch_id
        if kind == WINDOWS:
            self.windows.update({(row["topic"], row["clock"], row["window_start"]): row for row in rows})
            while len(self.windows) > self.WINDOWS_MAX:
                del self.windows[next(iter(self.windows))]
            if count > len(rows):
                note(f"{count - len(rows):,} windows are not drawn: too many in one batch")
        elif kind == LAGS:
            self.lags = {(row["topic"], row["subscriber"]): row for row in rows}


def show_lines(kind: str, batch_id: int, rows: Sequence[dict[str, Any]], count: int) -> None:
    """A line of JSON for each row."""
    for row in rows:
        print_json_line({"kind": kind, **{name: _plain(value) for name, value in row.items()}})
    _say_more(kind, batch_id, rows, count)


def show_tables(kind: str, batch_id: int, rows: Sequence[dict[str, Any]], count: int) -> None:
    """A table of the kind, if there are rows."""
    if not rows:
        return
    if kind == WINDOWS:
        header = ("window", "topic", "clock", "messages", "/s", "bytes", "/s", "first", "last")
        print_table(header, [_window_cells(row) for row in rows])
    elif kind == LAGS:
        names = ("topic", "subscriber", "messages_behind", "consumed_seq", "last_seq")
        print_table(_LAGS, [[*(_text(row[name]) for name in names), row["problem"] or ""] for row in rows])
    elif kind == SIZES:
        print_table(_SIZES, [_size_cells(row) for row in rows])
    _say_more(kind, batch_id, rows, count)
    print(flush=True)


def _window_cells(row: Mapping[str, Any]) -> list[object]:
    return [
        _plain(row["window_start"]),
        row["topic"],
        row["clock"],
        row["messages"],
        f"{row['messages_per_s']:.4g}",
        row["bytes"],
        f"{row['bytes_per_s']:.4g}",
        row["first_seq"],
        row["last_seq"],
    ]


def _size_cells(row: Mapping[str, Any]) -> list[object]:
    return [
        row["topic"],
        _text(row["messages"]),
        UNKNOWN if row["bytes"] is None else size(row["bytes"]),
        _text(row["ledgers"]),
        _text(row["subscriptions"]),
        row["problem"] or "",
    ]


def _say_more(kind: str, batch_id: int, rows: Sequence[dict[str, Any]], count: int) -> None:
    if count > len(rows):
        note(f"batch {batch_id}: {count - len(rows):,} more {kind}; --rows prints more, --output keeps all")


def _text(value: object) -> str:
    return UNKNOWN if value is None else str(value)


def _plain(value: object) -> object:
    if isinstance(value, datetime):  # Spark's are of this machine's time zone
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value if value is None or isinstance(value, int | float) else str(value)
