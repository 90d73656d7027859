"""Signals around a command: the first unwinds it, the later ones do not disturb the unwinding."""

import contextlib
import signal
from collections.abc import Iterator

import pytest

from bookkeeper.cli.output import EXIT_INTERRUPTED
from bookkeeper.cli.supervise import STOP_SIGNALS, stopping_on_signals


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
