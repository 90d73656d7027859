"""Messages in and out of byte streams, and what the commands' options say, without a hub."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.console.output import EXIT_FAILURE, EXIT_USAGE, CommandFailed
from hedwig.cli import sub
from hedwig.cli.client import client_settings
from hedwig.cli.each import Each, check_command
from hedwig.cli.formats import LENGTH, escaped, formatter_of
from hedwig.cli.input import read_delimited, read_length_prefixed
from hedwig.cli.main import main
from hedwig.cli.pub import add_arguments
from hedwig.cli.words import operands_last
from hedwig.client_config import parse_server
from hedwig.model import LocalId
from hedwig.protocol.options import AckOptions, ack_options
from hedwig.wire.messages import Message
from hedwig.wire.receiving import Received

TIMED = Message(b"body", {"key": b"k1", "color": b"red", "hw.time": b"1700000000123"}, "note", None, b"east")
PLAIN = Message(b"\xff\n")


def formatted(message: Message, text: str | None = None, *, json_lines: bool = False, lengths: bool = False) -> bytes:
    return formatter_of(text_format=text, json_lines=json_lines, length_prefixed=lengths)(b"news", 7, message)


# --- out


@pytest.mark.parametrize(
    ("text", "timed", "plain"),
    [
        ("%t:%o\n", b"news:7\n", b"news:7\n"),
        (r"%s\n", b"body\n", b"\xff\n\n"),
        ("%S %x", b"4 626f6479", b"2 ff0a"),
        ("%k|%h", b"k1|key=k1,color=red", b"|"),
        ("%{color}/%{none}", b"red/", b"/"),
        ("%T %y %r", b"1700000000123 note east", b"-1  "),
        (r"100%% \x41\t\0\\ \q", b"100% A\t\0\\ \\q", b"100% A\t\0\\ \\q"),
        ("é%s", b"\xc3\xa9body", b"\xc3\xa9\xff\n"),
        ("end\\", b"end\\", b"end\\"),
        ("", b"", b""),
    ],
)
def test_format_strings(text: str, timed: bytes, plain: bytes) -> None:
    assert formatted(TIMED, text) == timed
    assert formatted(PLAIN, text) == plain


@pytest.mark.parametrize("text", ["%q", "%", "50% of", "%{color"])
def test_an_unknown_token_is_named(text: str) -> None:
    with pytest.raises(CommandFailed, match=r"is unknown; use %t %o") as refused:
        formatter_of(text_format=text, json_lines=False, length_prefixed=False)
    assert refused.value.exit_code == EXIT_USAGE


def test_a_body_is_a_line_unless_the_options_say_otherwise() -> None:
    assert formatted(TIMED) == b"body\n"
    assert formatted(PLAIN, lengths=True) == b"\0\0\0\2\xff\n"


def test_json_lines_say_all_and_take_any_bytes() -> None:
    assert json.loads(formatted(TIMED, json_lines=True)) == {
        "topic": "news",
        "id": 7,
        "time_ms": 1700000000123,
        "region": "east",
        "type": "note",
        "properties": {"key": "k1", "color": "red"},
        "size": 4,
        "body": "body",
    }
    assert json.loads(formatted(PLAIN, json_lines=True)) == {"topic": "news", "id": 7, "size": 2, "body_hex": "ff0a"}


def test_a_time_that_is_none_stays_a_property() -> None:
    found = json.loads(formatted(Message(b"", {"hw.time": b"noon"}), json_lines=True))
    assert found["properties"] == {"hw.time": "noon"}
    assert "time_ms" not in found


def test_two_forms_of_output_are_refused() -> None:
    with pytest.raises(CommandFailed, match="only one"):
        formatter_of(text_format="%s", json_lines=True, length_prefixed=False)


def test_delimiters_have_escapes() -> None:
    assert escaped(r"\n") == b"\n"
    assert escaped(r"--\x00\t") == b"--\0\t"
    assert escaped("") == b""


# --- in


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]


@given(
    st.lists(st.binary(max_size=6).filter(lambda each: b"--" not in each and not each.endswith(b"-")), max_size=8),
    st.lists(st.integers(0, 60), max_size=8),
    st.booleans(),
)
def test_messages_between_delimiters_however_they_arrive(messages: list[bytes], cuts: list[int], closed: bool) -> None:
    messages = [each.lstrip(b"-") for each in messages]
    data = b"--".join(messages) + (b"--" if messages and closed else b"")
    found = [each for batch in read_delimited(pieces_of(data, cuts), b"--", 100) for each in batch]
    expected = data.split(b"--")
    if expected[-1] == b"":
        expected.pop()
    assert found == expected


@given(st.lists(st.binary(max_size=10), max_size=8), st.lists(st.integers(0, 90), max_size=8))
def test_length_prefixed_messages_however_they_arrive(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(LENGTH.pack(len(each)) + each for each in messages)
    found = [each for batch in read_length_prefixed(pieces_of(data, cuts), 10) for each in batch]
    assert found == messages


def test_a_message_that_is_too_long_is_named_and_those_before_it_come() -> None:
    batches = read_length_prefixed([b"\0\0\0\1a\0\0\0\1b\0\0\0\3ccc"], 2)
    assert next(batches) == [b"a", b"b"]
    with pytest.raises(CommandFailed, match="message 3 has more than 2 bytes"):
        next(batches)
    with pytest.raises(CommandFailed, match="message 2 has more than 2 bytes"):
        list(read_delimited([b"a\nb", b"bb"], b"\n", 2))


def test_input_that_ends_inside_a_message_is_told() -> None:
    with pytest.raises(CommandFailed, match="ends inside message 2: 5 bytes"):
        list(read_length_prefixed([b"\0\0\0\1a\0\0\0\2b"], 10))


# --- options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pub a//b", "between slashes"),
        ("pub t -m x file", "--message and FILE"),
        ("pub t --null -d ,", "--null and --delimiter"),
        ("pub t -d=", "--delimiter ''"),
        ("pub t -K=", "--key-delimiter ''"),
        ("pub t -K : -k a", "--key and --key-delimiter"),
        ("pub t -m x -H color", "write it as KEY=VALUE"),
        ("pub t -m x --once --producer p", "not allowed with"),
        ("pub t -m x --first 2", "name one"),
        ("pub t -m x --producer=", "at least one character"),
        ("pub t -c 0", "not a whole number from 1 on"),
        ("sub t --attach", "add -s NAME"),
        ("sub t -s a/b", "must not have a slash"),
        ("sub t -s a --create --attach", "not allowed with"),
        ("sub t -s a --filter ((", "filter expression"),
        ("sub t -s a -f %q", "%q is unknown"),
        ("sub t -s a -e --idle 0", "above 0"),
        ("sub t -s a --option x", "write it as KEY=VALUE"),
        ("sub t --from 0", "neither `first`"),
        ("sub t --from time:noon", "neither `first`"),
        ("sub t --shared", "add -s NAME"),
        ("sub t -s a --shared --peek", "counts as tried"),
        ("sub t -s a --option hw.ack=individual --peek", "counts as tried"),
        ("sub t -s a --option hw.ack=never", "must be one of"),
        ("sub t -s a --attempts 1 --dead-letter b//c", "between slashes"),
        ("sub t -s a --each cat --retry 0", "above 0"),
        ("consume t s 0", "no message's id"),
        ("consume t s -- -1", "no message's id"),
        ("consume t s 1 --idle 0", "above 0"),
        ("consume t s 1 --idle nan", "above 0"),
        ("readtopic t --from 0", "numbered from 1"),
        ("readtopic t --from 5 --to 4", "before the first"),
        ("subscriptions t --prefix a", "not both"),
        ("subscriptions --min-backlog 1 --no-backlog", "needs the backlog"),
        ("release", "name topics"),
        ("release t --hub h:1 --count 1", "name topics"),
        ("release --hub h:1", "name topics"),
        ("release t --http h", "HUB=HOST:PORT"),
        ("rebalance --tolerance=-1", "want 0 or more"),
        ("rebalance --tolerance=nan", "want 0 or more"),
        ("unsubscribe t s", "needs --force"),
    ],
)
def test_wrong_options_are_told_before_anything_is_connected_to(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) in (EXIT_USAGE, EXIT_FAILURE)
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("t -H a=b x y", "-H a=b t x y"),
        ("t -Ha=b x", "-Ha=b t x"),
        ("t --head a=b x --json y", "--head a=b --json t x y"),
        ("t --header=a x -0i y", "--header=a -0i t x y"),
        ("t -0m text x", "-0m text t x"),
        ("t - -i x", "-i t - x"),
        ("t -i -- -x -i", "-i -- t -x -i"),
        ("t --nonsense x -m", "--nonsense -m t x"),
    ],
)
def test_operands_may_stand_among_options(words: str, expected: str) -> None:
    assert operands_last(words.split(), add_arguments) == expected.split()


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("first", "first"),
        ("17", "id:17"),
        ("time:1700000000000", "time:1700000000000"),
        ("time:2023-11-14T22:13:20", "time:1700000000000"),
        ("time:2023-11-14T23:13:20.5+01:00", "time:1700000000500"),
    ],
)
def test_where_a_subscription_begins(word: str, option: str) -> None:
    parser = argparse.ArgumentParser()
    sub.add_arguments(parser)
    assert parser.parse_args(["t", "--from", word]).begin == option


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", None),
        ("--window 5", None),
        ("--one-by-one", AckOptions()),
        ("--shared --in-flight 7", AckOptions(shared=True, in_flight_max=7)),
        ("--each cat", AckOptions(in_flight_max=1)),
        ("--each cat --in-flight 9 --ack-timeout 2.5", AckOptions(in_flight_max=9, timeout_ms=2500)),
        ("--shared --attempts 3 --dead-letter bad", AckOptions(shared=True, attempts_max=3, dead_letter=b"bad")),
        ("--option hw.ack=individual", AckOptions()),
    ],
)
def test_how_messages_are_acknowledged(words: str, options: AckOptions | None) -> None:
    parser = argparse.ArgumentParser()
    sub.add_arguments(parser)
    assert ack_options(sub.preferences_of(parser.parse_args(["t", "-s", "me", *words.split()]))) == options


@pytest.mark.parametrize("command", ["/nonexistent", "no-such-program -x", "./no/such.sh && true", "/etc/passwd"])
def test_a_command_that_cannot_be_run_is_told_before_anything_is_connected_to(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sub", "t", "-s", "me", "--each", command, "-D", "default_server_host=127.0.0.1:1"]) == EXIT_FAILURE
    shown = capsys.readouterr().err
    assert "cannot be run" in shown
    assert "hub" not in shown


@pytest.mark.parametrize(
    "command",
    ["cat", "/bin/cat -", "test -n x", "while read a; do :; done", "A=1 cat", "'odd name'", "$CMD", "cat|cat"],
)
def test_a_command_that_only_the_shell_can_judge_is_let_pass(command: str) -> None:
    check_command(command)


@pytest.mark.parametrize(("code", "why"), [(126, "could not be executed"), (127, "was not found")])
def test_a_command_that_did_not_run_is_no_verdict_on_the_message(code: int, why: str) -> None:
    each = Each(f"exit {code}", b"t", lambda _: b"")
    with pytest.raises(CommandFailed, match=rf"{why}.*message 7 is not acknowledged"):
        each.takes(Received(b"", LocalId(7)))


def test_a_file_of_hub_settings_is_no_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "hub.conf"
    conf.write_text("zk_host=localhost:2181\n")
    assert main(["pub", "t", "-m", "x", "--conf", str(conf)]) == EXIT_FAILURE
    assert "zk_host is a hub's key" in capsys.readouterr().err


def test_a_hub_may_be_named_as_hubs_name_themselves() -> None:
    assert str(parse_server("10.0.0.1:4080:-1")) == "10.0.0.1:4080:-1"
    with pytest.raises(ValueError, match="is not host:port"):
        parse_server("10.0.0.1:4080:9876:-1:-1")


def test_the_hub_of_the_command_line_precedes_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HW_default_server_host", "hub1:4080")
    args = argparse.Namespace(conf=None, defines=["max_outstanding_messages=7", "consumed_messages_buffer_size=7"])
    args.hub = "a:1,b:2:3"
    settings = client_settings(args)
    assert [str(each) for each in settings.servers] == ["a:1:-1", "b:2:3"]
    assert settings.window == 7
