"""Every unprintable character is escaped, as JSON escapes it."""

from __future__ import annotations

import json
import sys

import pytest

from bookkeeper.printable import printable

HOSTILE = {
    "ESC": "\x1b[2J",
    "OSC": "\x1b]0;title\x07",
    "C0": "".join(map(chr, range(0x20))),
    "DEL": "\x7f",
    "C1": "".join(map(chr, range(0x80, 0xA0))),
    "line ends": "a\r\nb\x85c\u2028d\u2029e",
    "embeddings": "".join(map(chr, range(0x202A, 0x202F))),
    "isolates": "".join(map(chr, range(0x2066, 0x206A))),
    "marks": "\u200e\u200f\u061c",
    "invisible": "\u200b\u2060\ufeff\u00ad",
    "tags": "\U000e0001\U000e0041",
    "surrogate": "\udc80",
    "private": "\ue000",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_character_that_is_not_printable_is_left(text: str) -> None:
    shown = printable(f"<{text}>")
    assert shown.isprintable()
    assert json.loads(f'"{shown}"') == f"<{text}>"


def test_printable_text_is_unchanged() -> None:
    every = "".join(letter for letter in map(chr, range(sys.maxunicode + 1)) if letter.isprintable())
    assert printable(every) is every
    assert printable("ünï 名前 😀 \\x1b") == "ünï 名前 😀 \\x1b"


def test_characters_to_keep_are_kept() -> None:
    assert printable("a\tb\nc\x1b", "\t\n") == "a\tb\nc\\u001b"


def test_json_of_any_text_keeps_its_meaning() -> None:
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    document = printable(json.dumps([text], ensure_ascii=False, indent=1), "\n")
    assert document.replace("\n", "").isprintable()
    # Two adjacent lone surrogates are one character to every JSON reader.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert json.loads(document) == [whole] or json.loads(document) == [text]
