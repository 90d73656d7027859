"""What `hedwig pub` says of messages that were on their way when it was interrupted, wherever that came."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from hedwig.cli import pub
from hedwig.errors import MalformedRequest
from hedwig.model import Topic


class Interrupted:
    """A client and its publisher; the interrupt comes in the call that hands over the n-th message, which was sent."""

    def __init__(self, nth: int) -> None:
        self._left = nth
        self.closed = self.ended = False

    def publish_soon(self, body: bytes, properties: Mapping[str, str]) -> Future[Any]:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        return Future()

    def close(self) -> None:
        self.closed = True

    def end(self) -> None:
        self.ended = True


class Refusing:
    """Takes no message."""

    def publish_soon(self, body: bytes, properties: Mapping[str, str]) -> Future[Any]:
        raise MalformedRequest("too large")


def publishing(client: Any) -> Any:
    parser = argparse.ArgumentParser()
    pub.add_arguments(parser)
    return pub.Publishing(parser.parse_args(["t", "-m", "x"]), Topic(b"t"), client, client, {})


@pytest.mark.parametrize("nth", [1, 3])
def test_a_message_whose_handing_over_was_interrupted_is_waited_for_and_counted(
    nth: int, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Interrupted(nth)
    with pytest.raises(KeyboardInterrupt):
        publishing(client).run([[b"x"] * 5])
    said = capsys.readouterr().err
    assert f"Waiting for the answer to {nth} message" in said
    assert f"0 messages published to t; {nth} not answered: they may be there or not" in said
    assert client.closed


def test_what_was_refused_is_not_said_to_be_on_its_way(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MalformedRequest):
        publishing(Refusing()).run([[b"x"]])
    assert "not answered" not in capsys.readouterr().err


def test_another_interrupt_ends_the_waiting_even_before_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(text: str) -> None:
        if text.startswith("Waiting"):
            raise KeyboardInterrupt

    monkeypatch.setattr(pub, "note", again)
    client = Interrupted(1)
    with pytest.raises(KeyboardInterrupt):
        publishing(client).run([[b"x"]])
    assert (client.closed, client.ended) == (False, True)


@pytest.mark.parametrize("word", ["1d", "-1", "nan", "3e99", ""])
def test_a_time_to_keep_messages_that_cannot_be_read_names_its_unit(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    pub.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["t", "-m", "x", f"--keep={word}"])
    assert f"argument --keep: {word!r} is not a number of seconds from 0 to" in capsys.readouterr().err
