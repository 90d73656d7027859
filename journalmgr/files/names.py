"""Names in a journal's directory; those of the edits files themselves are in journalmgr.edits.file. Pure."""

from __future__ import annotations

import re

from journalmgr.edits.file import EditsFileDecoder, EditsFileName, header_size, parse_name
from journalmgr.model import Segment, TxId

LOCK = "in_use.lock"
CURRENT = "current"
VERSION = "VERSION"
SEEN_TXID = "seen_txid"

HEADER_SIZE_MAX = 8
"""Bytes that hold the header of any layout."""

_MARK = ".synced"
_TORN = ".torn"
_MARK_NAME = re.compile(r"(edits_inprogress_[0-9]+)\.synced")


def in_progress_name(first_txid: int) -> str:
    """The file of a segment that is being written."""
    return str(EditsFileName(TxId(first_txid), None))


def finalised_name(first_txid: int, last_txid: int) -> str:
    """The file of a segment whose end is fixed."""
    return str(EditsFileName(TxId(first_txid), TxId(last_txid)))


def mark_name(first_txid: int) -> str:
    """The file that says how far a segment in progress is durable."""
    return in_progress_name(first_txid) + _MARK


def marked_file(name: str) -> str | None:
    """The segment's file that a mark belongs to; None for what is no mark."""
    found = _MARK_NAME.fullmatch(name)
    return found[1] if found else None


def torn_name(first_txid: int, attempt: int) -> str:
    """The file that takes what recovery cuts off; attempt counts up where an earlier one exists."""
    return in_progress_name(first_txid) + _TORN + (f".{attempt}" if attempt else "")


def segment_of(name: str, layout_version: int) -> Segment | None:
    """The segment that a file is named for; None for other files. Raises SegmentUnreadable."""
    found = parse_name(name)
    return None if found is None else Segment(found.first_txid, found.last_txid, layout_version, name=name)


def decode_header(data: bytes, source: str) -> tuple[int, int]:
    """(layout version, size of the header) from a file's first HEADER_SIZE_MAX bytes.

    Raises EditsCorrupt, UnsupportedLayout.
    """
    decoder = EditsFileDecoder(source=source)
    for start in range(0, HEADER_SIZE_MAX, HEADER_SIZE_MAX // 2):
        if decoder.layout_version is None:
            decoder.feed(data[start : start + HEADER_SIZE_MAX // 2])
    layout_version = decoder.layout_version
    if layout_version is None:
        decoder.finish()  # raises: it was cut short
        raise AssertionError("a header that is neither whole nor cut short")
    return layout_version, header_size(layout_version)
