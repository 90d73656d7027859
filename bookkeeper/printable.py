"""Escapes for text from a peer, a znode or a file that a terminal or a log shows. Pure.

A terminal executes control characters (ESC, OSC, C1) and reorders text at bidirectional controls (such as U+202E). A
line end can forge a line. `printable` replaces each character that `str.isprintable` excludes: all controls, formats,
separators other than the space, surrogates, private and unassigned characters.

The escapes are those of JSON (`\\n`, `\\u001b`, a pair of surrogates above U+FFFF), so a JSON document stays valid and
keeps its meaning. A backslash is not escaped: escaped names are for people to read; programs use the JSON output.

Output passes through this function in a few central places, so that no caller has to call it:

    bookkeeper.console.output   standard output and standard error of every command, cells of tables, notes, errors
    bookkeeper.logs         every event
    bookkeeper.admin.http   JSON and text answers

Payloads (`ledger read`, `hedwig sub`, `journalmgr fs cat`) are data: commands write them as bytes, unchanged.
"""

from __future__ import annotations

_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def printable(text: str, keep: str = "") -> str:
    """Return `text` with every character escaped that is neither printable nor in `keep`."""
    if text.isprintable():
        return text
    return "".join([letter if letter.isprintable() or letter in keep else _escape(letter) for letter in text])


def _escape(letter: str) -> str:
    return _SHORT.get(letter) or json_escape(letter)


def json_escape(letter: str) -> str:
    """Return a character as JSON escapes it: one or two groups of four hexadecimal digits."""
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
