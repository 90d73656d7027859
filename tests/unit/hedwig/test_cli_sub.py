"""How `hedwig sub` ends."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from hedwig.cli import sub
from hedwig.model import Topic


def test_a_subscription_closed_since_its_reader_ended_is_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of the output may end between two messages: the closed subscription then returns none."""

    @contextmanager
    def ended(descriptor: int, on_gone: Callable[[], object]) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(gone=True)

    monkeypatch.setattr(sub, "watching_listener", ended)
    args = Namespace(count=None, exit=False, idle=None, peek=False, each=None, retry=0.0)
    closed: Any = SimpleNamespace(receive=lambda count_max, timeout_s: [])
    printer = sub._Printer(args, Topic(b"news"), closed, lambda *_: b"", individual=False)  # noqa: SLF001
    with pytest.raises(BrokenPipeError):
        printer.run()
