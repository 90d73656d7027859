"""Log output: one line per event on stderr, as text or as JSON, from our loggers and from stdlib logging alike.

    2026-08-01T12:00:00.123Z INFO [bookie.server] Serving on 10.0.0.1:3181 bookie_id=10.0.0.1:3181
    {"Timestamp": "...", "SeverityText": "INFO", "Body": "Serving on ...", "Attributes": {"bookie_id": ...}}

Fields of an event that its template does not show follow the message. A failure's traceback is printed only with
`verbose`; otherwise only its last line is printed. Line ends and all other unprintable characters are escaped
(`bookkeeper.printable`): an event stays one line, and text of a peer cannot control a terminal that shows the log.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from string import Formatter
from typing import Any, TextIO

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from bookkeeper.ports import Clock
from bookkeeper.printable import printable

_HIDDEN = frozenset({"format", "message", "isError", "why", "time", "failure", "traceback"})
_SEVERITY = {"debug": "DEBUG", "info": "INFO", "warn": "WARN", "error": "ERROR", "critical": "FATAL"}
_STDLIB_QUIET = ("kazoo", "py4j")
_SMALL_TALK = frozenset({"log_legacy", "twisted.internet.base"})
"""Where Twisted itself logs at info what is nothing to an operator: "... starting on 3181", "Main loop terminated."."""

FIELD_SIZE_MAX = 1000
"""Characters of one field that are printed; what a peer sent must not flood the log."""


class LogFormat(Enum):
    """How events are printed."""

    TEXT = "text"
    JSON = "json"


@implementer(ILogObserver)
class StreamObserver:
    """Prints events to a stream. Any thread (a line is one write)."""

    def __init__(self, stream: TextIO, log_format: LogFormat, *, level: LogLevel, verbose: bool = False) -> None:
        self._stream = stream
        self._write = _json_line if log_format is LogFormat.JSON else _text_line
        self._rank = _rank(level)
        self._verbose = verbose

    def __call__(self, event: LogEvent) -> None:
        """Print one event, unless it is below the level. Twisted's own small talk ("... starting on 3181") is debug."""
        level = event.get("log_level", LogLevel.info)
        if level is LogLevel.info and event.get("log_namespace") in _SMALL_TALK:
            level = LogLevel.debug
        if _rank(level) < self._rank:
            return
        try:
            self._stream.write(self._write(event, self._verbose) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # The reader of our stderr is gone, or stderr is closed: there is nowhere left to report it.
            self._rank = sys.maxsize


def _rank(level: Any) -> int:
    return list(LogLevel.iterconstants()).index(level)


def _when(event: LogEvent) -> str:
    moment = datetime.fromtimestamp(event.get("log_time", 0.0), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _severity(event: LogEvent) -> str:
    return _SEVERITY.get(getattr(event.get("log_level"), "name", ""), "INFO")


def _name(event: LogEvent) -> str:
    return str(event.get("log_namespace", "?")).removeprefix("bookkeeper.")


def _shown(event: LogEvent) -> set[str]:
    template = event.get("log_format")
    if not isinstance(template, str):
        return set()
    return {field.split(".")[0].split("[")[0].rstrip("()") for _, field, _, _ in Formatter().parse(template) if field}


def _fields(event: LogEvent) -> Iterator[tuple[str, Any]]:
    shown = _shown(event)
    for key, value in event.items():
        if not key.startswith("log_") and key not in _HIDDEN and key not in shown:
            yield key, value


def _body(event: LogEvent, verbose: bool) -> str:
    body = formatEvent(event)
    failure = event.get("log_failure")
    if failure is not None:
        detail = failure.getTraceback() if verbose else f"{failure.type.__name__}: {failure.getErrorMessage()}"
        body = f"{body}: {detail}" if body else detail
    return body


def _clip(value: object) -> str:
    text = str(value)
    return text if len(text) <= FIELD_SIZE_MAX else text[:FIELD_SIZE_MAX] + "..."


def _text_line(event: LogEvent, verbose: bool) -> str:
    parts = [_when(event), _severity(event), f"[{_name(event)}]", _body(event, verbose)]
    parts += [f"{key}={_clip(value)}" for key, value in _fields(event)]
    return printable(" ".join(parts))


def _json_line(event: LogEvent, verbose: bool) -> str:
    attributes: dict[str, Any] = {"logger": _name(event)}
    for key, value in event.items():
        if not key.startswith("log_") and key not in _HIDDEN:
            attributes[key] = value if isinstance(value, int | float | bool | None) else _clip(value)
    return json.dumps(
        {
            "Timestamp": _when(event),
            "SeverityText": _severity(event),
            "Body": _body(event, verbose),
            "Attributes": attributes,
        }
    )


class StdlibBridge(logging.Handler):
    """Hands records of stdlib logging (kazoo) to a twisted observer."""

    def __init__(self, observer: StreamObserver) -> None:
        super().__init__()
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        level = {"WARNING": "warn"}.get(record.levelname, record.levelname.lower())
        event: LogEvent = {
            "log_time": record.created,
            "log_level": LogLevel.lookupByName(level) if level in _SEVERITY else LogLevel.info,
            "log_namespace": record.name,
            "log_format": "{text}",
            "text": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            event["text"] = f"{event['text']}: {record.exc_info[1]}"
        self._observer(event)


def start_logging(
    log_format: LogFormat = LogFormat.TEXT,
    *,
    level: LogLevel = LogLevel.info,
    verbose: bool = False,
    stream: TextIO | None = None,
    libraries: bool = True,
) -> None:
    """Send all logs of this process to `stream` (stderr). Call once, before the reactor runs.

    libraries: third-party ones that use stdlib logging are heard from WARNING on, or from DEBUG with `level` debug;
    False: nothing is done about them, and kazoo is not heard.
    """
    observer = StreamObserver(stream or sys.stderr, log_format, level=level, verbose=verbose)
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=False)
    if not libraries:
        return
    root = logging.getLogger()
    root.addHandler(StdlibBridge(observer))
    root.setLevel(logging.DEBUG if level is LogLevel.debug else logging.WARNING)
    for name in _STDLIB_QUIET:
        logging.getLogger(name).setLevel(root.level)


def show_metadata_session() -> None:
    """Print what kazoo warns about its connection, for a command that sends no logs anywhere else. Repeatable."""
    if logging.lastResort is not None:
        logging.getLogger("kazoo").addHandler(logging.lastResort)


class LogLimit:
    """Lets each subject through once per interval, so that no client can fill the log. Thread: reactor.

    on_left_out: called an interval after the first line that was left out, with all of them: "3 x this, 1 x that".
    Bound: `SUBJECTS_MAX` subjects, and so lines, an interval; further ones are left out, whatever their subjects.
    """

    SUBJECTS_MAX = 1000
    SUBJECTS_TOLD_MAX = 8

    def __init__(
        self, clock: Clock, interval_s: float = 10.0, *, on_left_out: Callable[[str], object] | None = None
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._on_left_out = on_left_out
        self._last: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()
        self._other_count = 0  # left out, of subjects beyond those that are told
        self.suppressed_count = 0

    def admits(self, subject: str) -> bool:
        """True when the subject may be logged now; False (and counted) when it was logged less than an interval ago."""
        now = self._clock.seconds()
        last = self._last.get(subject)
        if last is not None and now - last < self._interval_s:
            self._leave_out(subject)
            return False
        if len(self._last) >= self.SUBJECTS_MAX and not self._forget(now):
            self._leave_out(subject)
            return False
        self._last.pop(subject, None)  # the subjects stay in the order of their times
        self._last[subject] = now
        return True

    def _forget(self, now: float) -> bool:
        """Forget subjects that were logged an interval ago or earlier; return whether there are such."""
        old = list(itertools.takewhile(lambda item: now - item[1] >= self._interval_s, self._last.items()))
        for subject, _ in old:
            del self._last[subject]
        return bool(old)

    def _leave_out(self, subject: str) -> None:
        self.suppressed_count += 1
        if self._on_left_out is None:
            return
        if not self._left_out:
            self._clock.callLater(self._interval_s, self._tell, self._on_left_out)
        if subject in self._left_out or len(self._left_out) < self.SUBJECTS_TOLD_MAX:
            self._left_out[subject] += 1
        else:
            self._other_count += 1

    def _tell(self, on_left_out: Callable[[str], object]) -> None:
        told = [f"{count} x {subject}" for subject, count in self._left_out.items()]
        if self._other_count:
            told.append(f"{self._other_count} x other")
        self._left_out.clear()
        self._other_count = 0
        on_left_out(", ".join(told))
