"""One event is one line, whatever is in it."""

from __future__ import annotations

import io
import json
import logging

import pytest
from twisted.internet.task import Clock
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from bookkeeper.logs import FIELD_SIZE_MAX, LogFormat, LogLimit, StdlibBridge, StreamObserver


class Output:
    """A logger that writes to memory, and the lines it wrote."""

    def __init__(
        self, log_format: LogFormat = LogFormat.TEXT, *, level: LogLevel = LogLevel.info, verbose: bool = False
    ):
        self.stream = io.StringIO()
        self.observer = StreamObserver(self.stream, log_format, level=level, verbose=verbose)
        self.log = Logger(namespace="bookkeeper.bookie.server", observer=self.observer)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_text_lines_have_time_level_module_message_and_the_fields_not_shown() -> None:
    output = Output()
    output.log.info("Serving on {port}", port=3181, bookie_id="b1")
    (line,) = output.lines
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert "T" in time
    assert rest == "INFO [bookie.server] Serving on 3181 bookie_id=b1"


def test_json_lines_are_json_with_upstreams_names() -> None:
    output = Output(LogFormat.JSON)
    output.log.warn("Disk {directory} is full", directory="/l1", used=0.97)
    (line,) = output.lines
    event = json.loads(line)
    assert event["SeverityText"] == "WARN"
    assert event["Body"] == "Disk /l1 is full"
    assert event["Attributes"] == {"logger": "bookie.server", "directory": "/l1", "used": 0.97}


@pytest.mark.parametrize("log_format", LogFormat)
def test_line_breaks_and_long_fields_from_a_peer_stay_in_one_line(log_format: LogFormat) -> None:
    output = Output(log_format)
    output.log.info("Refused", reason="a\nb\r\n" + "z" * 10_000)
    (line,) = output.lines
    assert len(line) < FIELD_SIZE_MAX + 300


@pytest.mark.parametrize("log_format", LogFormat)
def test_texts_from_a_peer_have_no_control_characters(log_format: LogFormat) -> None:
    hostile = "a\x1b]0;t\x07\x9b2J\x7f\u202eb\u2066\u061c\u2028\r\n"
    output = Output(log_format)
    output.log.info("Refused {name}", name=hostile, reason=hostile)
    output.log.error("Failed: {error}", error=ValueError(hostile))
    with pytest.raises(ValueError, match="a") as caught:
        raise ValueError(hostile)
    output.log.failure("It failed", failure=Failure(caught.value))
    text = output.stream.getvalue()
    assert text.count("\n") == 3
    assert text.replace("\n", "").isprintable()
    assert text.count("u202e") == 4 if log_format is LogFormat.TEXT else 5


def test_events_below_the_level_are_dropped() -> None:
    output = Output(level=LogLevel.warn)
    output.log.info("quiet")
    output.log.error("loud")
    assert [line.endswith("loud") for line in output.lines] == [True]


@pytest.mark.parametrize("verbose", [False, True])
def test_tracebacks_are_shown_only_when_asked_for(verbose: bool) -> None:
    output = Output(verbose=verbose)
    try:
        raise ValueError("broken")
    except ValueError:
        output.log.failure("It failed", failure=Failure())
    (line,) = output.lines
    assert ("Traceback" in line) is verbose
    assert "broken" in line


def test_records_of_stdlib_logging_arrive_with_their_level() -> None:
    output = Output()
    record = logging.LogRecord("kazoo.client", logging.WARNING, "x.py", 1, "dropped %s", ("session",), None)
    StdlibBridge(output.observer).emit(record)
    (line,) = output.lines
    assert line.endswith("WARN [kazoo.client] dropped session")


def test_a_closed_stream_ends_the_output_and_not_the_program() -> None:
    output = Output()
    output.stream.close()
    output.log.info("nobody reads this")
    output.log.info("nor this")


def test_each_subject_speaks_once_per_interval() -> None:
    clock = Clock()
    limit = LogLimit(clock, interval_s=10.0)
    assert [limit.admits("a"), limit.admits("a"), limit.admits("b")] == [True, False, True]
    clock.advance(10.0)
    assert limit.admits("a")
    assert limit.suppressed_count == 1


def test_what_is_left_out_is_counted_and_told_once_per_interval() -> None:
    """An operator must see that a second user was refused, also where the first one's line stands for both."""
    clock = Clock()
    told: list[str] = []
    limit = LogLimit(clock, interval_s=10.0, on_left_out=told.append)
    for subject in ("a", "b", "a", "a", "b"):
        limit.admits(subject)
    assert told == []
    clock.advance(10.0)
    assert told == ["2 x a, 1 x b"]
    clock.advance(100.0)
    assert len(told) == 1
    for number in [*range(20), *range(20)]:
        limit.admits(str(number))
    clock.advance(10.0)
    assert told[1:] == [", ".join([*(f"1 x {number}" for number in range(8)), "12 x other"])]


def test_a_peer_that_chooses_its_subjects_gets_a_bounded_number_of_lines() -> None:
    clock = Clock()
    told: list[str] = []
    limit = LogLimit(clock, interval_s=10.0, on_left_out=told.append)
    most = LogLimit.SUBJECTS_MAX
    for half in (0, 1):
        assert all(limit.admits(str(number)) for number in range(half * most // 2, (half + 1) * most // 2))
        clock.advance(5.0)
    assert limit.admits("0")  # 10 s after its line
    assert [limit.admits(f"more {number}") for number in range(most)] == [
        number < most // 2 - 1 for number in range(most)
    ]
    assert limit.suppressed_count == most // 2 + 1
    clock.advance(10.0)
    assert told[0].endswith(" x other")
    assert all(limit.admits(f"again {number}") for number in range(most))


@pytest.mark.parametrize("namespace", ["log_legacy", "twisted.internet.base"])
def test_twisteds_own_small_talk_is_debug(namespace: str) -> None:
    quiet, talkative = Output(), Output(level=LogLevel.debug)
    event = {"log_level": LogLevel.info, "log_namespace": namespace, "log_format": "Main loop ended.", "log_time": 0.0}
    for output in (quiet, talkative):
        output.observer(event)
    assert quiet.lines == []
    assert "Main loop ended." in talkative.lines[0]
