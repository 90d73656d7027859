"""What can be made out in bytes of a journal's end that are no whole group, for people. Pure.

Any of it may be damaged. Records follow each other behind a group's head, up to padding or to the first that cannot be
one; from there on the next head of a group of the same file is looked for, where groups may begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.bookie.journal import format as fmt

LEDGERS_TOLD_MAX = 8
RANGES_TOLD_MAX = 8
"""Ledgers, and ranges of each, that are named in one line."""

_LEDGERS_MAX = 1000
_RANGES_MAX = 1000

_NO_ENTRIES = (fmt.MASTER_KEY_ENTRY, fmt.FENCE_ENTRY, fmt.EXPLICIT_LAC_ENTRY)

NOTHING_TOLD = "no record can be made out there"


@dataclass(frozen=True, slots=True)
class TornRecord:
    """data[start:stop], its length field included. entry_id: negative for the kinds that are no entries."""

    start: int
    stop: int
    ledger_id: int
    entry_id: int


def torn_records(data: bytes, journal_id: int) -> Iterator[TornRecord]:
    """The records in bytes that begin where a group did, or should."""
    at: int | None = 0
    while at is not None:
        end = min(at + fmt.GROUP_RECORD_SIZE, len(data))
        for record in _of_group(data, end):
            yield record
            end = record.stop
        at = _next_group(data, end, journal_id)


def _of_group(data: bytes, at: int) -> Iterator[TornRecord]:
    while at + fmt.RECORD_HEAD.size <= len(data):
        size, ledger_id, entry_id = fmt.RECORD_HEAD.unpack_from(data, at)
        stop = at + fmt.LENGTH.size + size
        if not fmt.IDS_SIZE <= size <= fmt.RECORD_SIZE_MAX or stop > len(data) or ledger_id < 0:
            return
        if (entry_id < 0 and entry_id not in _NO_ENTRIES) or entry_id == ledger_id == fmt.GROUP_LEDGER:
            return
        yield TornRecord(at, stop, ledger_id, entry_id)
        at = stop


def _next_group(data: bytes, at: int, journal_id: int) -> int | None:
    """Where the next head of a group begins."""
    needle = fmt.group_needle(journal_id)
    while (found := data.find(needle, at)) >= 0:
        if found % fmt.ALIGNMENT == 0:
            return found
        at = found + 1
    return None


def intact_groups(data: bytes, journal_id: int, offset: int) -> int:
    """Groups among them whose checksum is right. offset: of data[0] in the journal."""
    count, at = 0, 0
    while True:
        group = fmt.decode_group(data, at, file_id=journal_id, start=offset + at)
        count += group is not None and fmt.group_is_intact(group, data, at)
        following = _next_group(data, at + fmt.ALIGNMENT, journal_id)
        if following is None:
            return count
        at = following


def records_told(data: bytes, journal_id: int) -> tuple[str, int | None]:
    """Which ledgers and entries the records name; and one of the ledgers, None where there is none."""
    ranges: dict[int, list[list[int]]] = {}
    more_ledgers = False
    cut: set[int] = set()  # ledgers with more ranges than are kept
    for record in torn_records(data, journal_id):
        known = ranges.get(record.ledger_id)
        if known is None:
            if len(ranges) >= _LEDGERS_MAX:
                more_ledgers = True
                continue
            known = ranges[record.ledger_id] = []
        if record.entry_id < 0:
            continue
        if known and known[-1][1] == record.entry_id - 1:
            known[-1][1] = record.entry_id
        elif len(known) < _RANGES_MAX:
            known.append([record.entry_id, record.entry_id])
        else:
            cut.add(record.ledger_id)
    if not ranges:
        return NOTHING_TOLD, None
    some = list(ranges.items())[:LEDGERS_TOLD_MAX]
    told = ", ".join(f"{_ranges_told(known, cut=id_ in cut)} of ledger {id_}" for id_, known in some)
    if more_ledgers or len(ranges) > len(some):
        told += f", and of {_at_least(more_ledgers)}{len(ranges) - len(some)} more ledgers"
    return f"the records that can be made out there are {told}", some[0][0]


def _at_least(cut: bool) -> str:
    return "at least " if cut else ""


def _ranges_told(known: list[list[int]], *, cut: bool) -> str:
    if not known:
        return "no entry but the key, the fence or an explicit LAC"
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in known[:RANGES_TOLD_MAX]]
    more = f" and {_at_least(cut)}{len(known) - len(shown)} more ranges" if len(known) > len(shown) else ""
    return f"{'entry' if shown[0].isdigit() and len(known) == 1 else 'entries'} {', '.join(shown)}{more}"
