"""Signals around a command: the first unwinds it, the later ones do not disturb the unwinding."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.console.output import EXIT_INTERRUPTED, CommandFailed
from bookkeeper.console.supervision import STOP_SIGNALS, Child, stopping_on_signals, tell_or_give_up


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of the test run, put back whatever a test does."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", STOP_SIGNALS, ids=lambda number: number.name)
def test_the_first_signal_unwinds_and_the_others_do_nothing(first: signal.Signals) -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with contextlib.ExitStack() as around:
        stopped = around.enter_context(pytest.raises(SystemExit))
        around.enter_context(stopping_on_signals(EXIT_INTERRUPTED))
        for number in STOP_SIGNALS:
            around.callback(signal.raise_signal, number)  # while it unwinds
        signal.raise_signal(first)
    assert stopped.value.code == EXIT_INTERRUPTED
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_what_a_shell_has_its_background_jobs_ignore_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stopping_on_signals(EXIT_INTERRUPTED):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


ENDED = Child("bookie 1", os.getpid(), Path("bookie.log"))
HUB = Child("hub 1", 2, Path("hub.log"), dependent=True)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Child, "ending", lambda child: "ended with code 5")


@pytest.mark.usefixtures("ended")
def test_what_depends_on_the_bookies_is_of_no_use_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    zookeeper = Child("ZooKeeper", 1, Path("zookeeper.log"), vital=True)
    with pytest.raises(CommandFailed, match="Nothing useful is left"):
        tell_or_give_up([ENDED], [zookeeper, HUB])
    tell_or_give_up([ENDED], [zookeeper, HUB, Child("bookie 2", 3, Path("bookie.log"))])
    tell_or_give_up([HUB], [zookeeper, ENDED])
    assert capsys.readouterr().err.count("the others go on") == 2


SIGNALLED_TWICE = """
import os, signal
from twisted.internet.defer import Deferred
from bookkeeper.console.supervision import run_coroutine

async def main(reactor):
    def send():
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)

    reactor.callLater(0, send)
    await Deferred()

run_coroutine(main)
"""


def test_a_coroutine_process_ends_silently_after_repeated_signals() -> None:
    """A child of a killed process receives SIGTERM for each thread of the process that became its parent."""
    command = [sys.executable, "-c", SIGNALLED_TWICE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
