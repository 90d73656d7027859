"""What can still be read of damaged transactions: whole records, and the ranges between them that are skipped. Pure.

Reading goes on at the next place that looks like a record and has a right checksum, wherever that is. So a record is
never made up, but which transactions were in a skipped range only their txids tell. For layouts whose records carry
their length (from -56 on, and opaque ones).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from journalmgr.contract import Record
from journalmgr.edits.frame import RecordDecoder, has_length, next_record_offset
from journalmgr.errors import EditsError, UnsupportedLayout

CHUNK_SIZE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes offset..end (exclusive) of `source` hold no whole record; error: what is wrong with the first of them.

    offset == end: nothing of `source` could be had at all.
    """

    source: str
    offset: int
    end: int
    error: EditsError

    def __str__(self) -> str:
        if self.offset == self.end:
            return f"{self.source}: skipped all of it: {self.error.why}"
        size = self.end - self.offset
        return f"{self.source}: skipped bytes {self.offset}..{self.end - 1} ({size}): {self.error.why}"


def salvage(
    data: bytes, layout_version: int, *, source: str, begin: int = 0, offset: int = 0
) -> Iterator[list[Record] | Skipped]:
    """Whole records from data[begin] on, and what is skipped between them. Padding ends the data.

    offset: of data[0] in `source`. Txids may jump. Raises UnsupportedLayout where a record has no length.
    """
    if not has_length(layout_version):
        raise UnsupportedLayout(
            f"records of layout {layout_version} do not say how long they are: behind damage nothing can be found",
            source=source,
        )
    position = begin
    while position < len(data):
        decoder = RecordDecoder(layout_version, source=source, offset=offset + position, consecutive=False)
        try:
            for start in range(position, len(data), CHUNK_SIZE):
                if records := decoder.feed(data[start : start + CHUNK_SIZE]):
                    yield records
            decoder.finish()
        except EditsError as error:
            damaged = decoder.offset - offset
            found = next_record_offset(data, damaged + 1)
            position = len(data) if found is None else found
            yield Skipped(source, offset + damaged, offset + position, error)
        else:
            return
