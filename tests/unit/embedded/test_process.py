"""Child processes: the end with their parent, how one ended, the last lines of its log, and ports."""

import os
import select
import signal
import subprocess
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bookkeeper.embedded import process
from bookkeeper.embedded.process import LOG_TAIL_LINES, ending, next_line, on_lasting_thread, report


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (0, "ended with code 0"),
        (5, "ended with code 5"),
        (-int(signal.SIGKILL), "was killed by SIGKILL"),
        (-40, "was killed by signal 40"),  # a real-time signal between the two that have names
    ],
)
def test_an_ending_is_a_code_or_a_signal(returncode: int, words: str) -> None:
    assert ending(returncode) == words


def test_a_report_ends_with_the_last_lines_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "bookie.log"
    log.write_text("".join(f"line {number}\n" for number in range(LOG_TAIL_LINES + 5)))
    head, *lines = report("bookie 2", 77, "ended with code 5", log).splitlines()
    assert head == f"bookie 2, process 77, ended with code 5; the end of its log {log}:"
    assert lines == [f"    line {number}" for number in range(5, LOG_TAIL_LINES + 5)]


def test_a_report_without_a_log_says_so(tmp_path: Path) -> None:
    assert report("bookie 2", 77, "ended with code 5", tmp_path / "none.log").endswith(":\n    (no log)")


def test_a_port_is_not_given_twice_before_anybody_listens_there() -> None:
    """Two bookies of a cluster that got the same one: the second was refused by the first one's cookie."""
    drawn = iter([20_001, 20_001, 20_002])
    source = mock.Mock()
    source.SystemRandom.return_value.randrange.side_effect = lambda *_: next(drawn)
    with mock.patch.object(process, "random", source), mock.patch.object(process, "_hold", return_value=None):
        assert [process.free_port(), process.free_port()] == [20_001, 20_002]


def test_children_are_started_on_a_thread_that_outlasts_the_callers() -> None:
    used: list[threading.Thread] = []

    def call() -> None:
        used.append(on_lasting_thread(threading.current_thread))

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
        caller.join()
    assert len(set(used)) == 1
    assert used[0].is_alive()
    assert used[0].daemon
    assert used[0] not in callers


class Interrupted(Future[Any]):
    """A future that Ctrl-C interrupts the waiting for, on the main thread."""

    def result(self, timeout: float | None = None) -> Any:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return super().result(timeout)


def test_a_child_whose_caller_was_interrupted_is_killed() -> None:
    interrupted = threading.Event()
    children: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        interrupted.wait(60.0)
        children.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        return children[0]

    with mock.patch.object(process, "Future", Interrupted), pytest.raises(KeyboardInterrupt):
        on_lasting_thread(start)
    interrupted.set()
    on_lasting_thread(lambda: None)
    [child] = children
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60.0) == -signal.SIGKILL


def test_an_error_on_the_lasting_thread_is_raised_to_the_caller() -> None:
    def fail() -> None:
        raise FileNotFoundError("no such program")

    with pytest.raises(FileNotFoundError, match="no such program"):
        on_lasting_thread(fail)
    assert on_lasting_thread(lambda: 7) == 7


def test_an_interrupt_that_the_system_call_misses_ends_the_wait_for_a_line() -> None:
    """A signal that another thread receives does not interrupt the call, as one just before the call does not."""
    reader, writer = os.pipe()
    main = Path(f"/proc/self/task/{threading.get_native_id()}/wchan")
    begun, ended, forced = threading.Event(), threading.Event(), threading.Event()
    wait_for_input = select.select

    def begin_to_wait(*arguments: Any) -> Any:
        begun.set()
        return wait_for_input(*arguments)

    def interrupt() -> None:
        begun.wait(60)  # an earlier interrupt would end the test
        deadline_s = time.monotonic() + 10
        while main.read_text() in ("", "0") or "futex" in main.read_text():  # it does not wait for input yet
            if time.monotonic() > deadline_s:
                break
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not ended.wait(60):
            forced.set()
        os.close(writer)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with os.fdopen(reader) as output, mock.patch.object(select, "select", begin_to_wait):
            with pytest.raises(KeyboardInterrupt):
                next_line(output)
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()
        thread.join()
    assert not forced.is_set()
