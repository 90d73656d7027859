"""Entries in and out of byte streams: what `ledger write` takes and `ledger read` prints."""

import itertools
import json
import random
import struct
from collections.abc import Callable, Iterable, Iterator

import pytest

from bookkeeper.cli.ledger.lines import formatter_of, read_length_prefixed, read_lines
from bookkeeper.console.output import EXIT_USAGE, CommandFailed

Source = Callable[[Iterable[bytes], int], Iterator[list[bytes]]]
SIZE_MAX = 100


def batches(source: Source, *chunks: bytes) -> list[list[bytes]]:
    return list(source(chunks, SIZE_MAX))


def joined(source: Source, *chunks: bytes) -> list[bytes]:
    return list(itertools.chain.from_iterable(batches(source, *chunks)))


def prefixed(*entries: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(entry)) + entry for entry in entries)


def test_lines_are_entries_without_their_line_end() -> None:
    assert batches(read_lines, b"one\ntwo\n") == [[b"one", b"two"]]


def test_the_last_line_needs_no_line_end() -> None:
    assert batches(read_lines, b"one\ntw", b"o") == [[b"one"], [b"two"]]


def test_an_empty_line_is_an_empty_entry() -> None:
    assert batches(read_lines, b"\n\na\n") == [[b"", b"", b"a"]]


def test_no_input_gives_no_entries() -> None:
    assert batches(read_lines) == []
    assert batches(read_length_prefixed) == []


def test_each_read_gives_a_batch_at_once() -> None:
    assert batches(read_lines, b"a\nb\n", b"c\n") == [[b"a", b"b"], [b"c"]]


@pytest.mark.parametrize("size", [SIZE_MAX + 1, 3 * SIZE_MAX])
def test_a_line_above_the_bound_is_named(size: int) -> None:
    with pytest.raises(CommandFailed, match=rf"line 3 has more than {SIZE_MAX} bytes, the limit of an entry"):
        batches(read_lines, b"a\nb\n", b"x" * size + b"\n")


def test_an_endless_line_is_refused_before_it_is_all_buffered() -> None:
    with pytest.raises(CommandFailed, match=f"line 1 has more than {SIZE_MAX} bytes"):
        batches(read_lines, b"x" * 60, b"x" * 60, b"never read")


def test_a_line_of_the_bound_passes() -> None:
    assert batches(read_lines, b"x" * SIZE_MAX + b"\n") == [[b"x" * SIZE_MAX]]


@pytest.mark.parametrize("source", [read_lines, read_length_prefixed])
def test_every_cut_of_the_input_gives_the_same_entries(rng: random.Random, source: Source) -> None:
    entries = [rng.randbytes(rng.randrange(20)).replace(b"\n", b"") for _ in range(50)] + [b"end"]
    data = b"".join(entry + b"\n" for entry in entries) if source is read_lines else prefixed(*entries)
    for _ in range(50):
        cuts = sorted(rng.sample(range(1, len(data)), rng.randrange(20)))
        chunks = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert joined(source, *chunks) == entries
    assert joined(source, *(data[i : i + 1] for i in range(len(data)))) == entries


def test_length_prefixed_entries_may_hold_anything() -> None:
    entries = [b"", b"\n", bytes(range(100))]
    assert batches(read_length_prefixed, prefixed(*entries)) == [entries]


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_input_that_ends_inside_an_entry_is_an_error_that_names_it(cut: int) -> None:
    half = prefixed(b"third")[:cut]
    with pytest.raises(CommandFailed, match=rf"ends inside entry 2: {cut} bytes are left over"):
        batches(read_length_prefixed, prefixed(b"first", b"second") + half)


def test_a_length_above_the_bound_is_refused_before_its_bytes_are_awaited() -> None:
    with pytest.raises(
        CommandFailed, match=rf"entry 1 has {2**32 - 1} bytes, more than {SIZE_MAX}, the limit of an entry"
    ):
        batches(read_length_prefixed, prefixed(b"first") + b"\xff\xff\xff\xff", b"never read")


# --- output


def formatted(text_format: str, payload: bytes = b"pay load") -> bytes:
    return formatter_of(text_format=text_format, json_lines=False, length_prefixed=False)(7, 42, payload)


@pytest.mark.parametrize(
    ("text_format", "expected"),
    [
        ("%o", b"42"),
        ("%s", b"pay load"),
        ("%S", b"8"),
        ("%l", b"7"),
        ("%x", b"706179206c6f6164"),
        ("%%", b"%"),
        (r"\n\t\r\0\\", b"\n\t\r\0\\"),
        (r"%l/%o: %s (%S)\n", b"7/42: pay load (8)\n"),
        (r"\q", b"q"),
        ("größe %S", "größe 8".encode()),
        ("", b""),
    ],
)
def test_format_strings(text_format: str, expected: bytes) -> None:
    assert formatted(text_format) == expected


@pytest.mark.parametrize("text_format", ["%z", "%o %", "100%"])
def test_an_unknown_or_cut_token_is_a_usage_error(text_format: str) -> None:
    with pytest.raises(CommandFailed, match="use %o %s %S %l %x %%") as failed:
        formatted(text_format)
    assert failed.value.exit_code == EXIT_USAGE


def test_without_a_format_each_payload_is_a_line() -> None:
    assert formatter_of(text_format=None, json_lines=False, length_prefixed=False)(7, 0, b"x") == b"x\n"


def test_length_prefixed_output_is_length_prefixed_input() -> None:
    form = formatter_of(text_format=None, json_lines=False, length_prefixed=True)
    entries = [b"", b"a\nb", b"c" * 50]
    data = b"".join(form(7, number, entry) for number, entry in enumerate(entries))
    assert batches(read_length_prefixed, data) == [entries]


@pytest.mark.parametrize(
    ("payload", "field"), [("grün".encode(), {"payload": "grün"}), (b"\xff\x00", {"payload_hex": "ff00"})]
)
def test_json_lines_hold_text_as_text_and_the_rest_as_hex(payload: bytes, field: dict[str, str]) -> None:
    line = formatter_of(text_format=None, json_lines=True, length_prefixed=False)(7, 42, payload)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert b" " not in line  # as all JSON lines
    assert json.loads(line) == {"ledger_id": 7, "entry_id": 42, "size": len(payload), **field}
