"""The evidence of all bookies on a chunk beside what the metadata say of its ledger: findings. Pure.

Of each entry up to the ledger's end (of an open one up to the last add confirmed) the bookies of its write set must
each have a good copy, and all good copies must be the same:

    finding       of the write set's bookies
    divergent     two have good copies that differ: nobody can say which is right
    bad           one has a copy that fails its digest, names another entry, or cannot be whole
    missing       one certainly has none
    unknown       one could not be asked or could not tell: never taken for missing
    lost          none has a good copy, and none is unknown

A finding is about entries of a ledger of which the same holds: all from the first to the last; where it is about one
bookie, all of those that this bookie should have. `good_copies` is how many good ones each of
its entries has: fewer than the write quorum, unless copies diverge. `lost` comes in addition to what makes it so.

The usual case, all good and all equal, costs comparisons of whole columns: the bookies of a fragment hold entries in
strides of the ensemble's size.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from bookkeeper.model import LedgerMetadata
from bookkeeper.protocol.schedule import write_set
from bookkeeper.spark.audit.evidence import BAD, CHUNK_ENTRIES, GOOD, MISSING, UNKNOWN, UNSAID, Evidence

DETAIL_MAX = 200


class FindingKind(enum.Enum):
    """What is wrong."""

    DIVERGENT = "divergent"
    BAD = "bad"
    MISSING = "missing"
    UNKNOWN = "unknown"
    LOST = "lost"


_KIND = {BAD: FindingKind.BAD, MISSING: FindingKind.MISSING, UNKNOWN: FindingKind.UNKNOWN, UNSAID: FindingKind.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Finding:
    """Of entries first..last, both included. bookie: "" where it is about no single one. entries: how many it is about;
    fewer than lie between, where the bookie should have only some of these."""

    kind: FindingKind
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    bookie: str
    good_copies: int
    detail: str
    entries: int


@dataclass(frozen=True, slots=True)
class ChunkVerdict:
    """What was found of a chunk. size: payload bytes of its entries, None where one of them has no good copy."""

    findings: tuple[Finding, ...]
    entry_count: int
    copy_count: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries first..last of the chunk that one ensemble holds."""

    ensemble: Sequence[str]
    first: int
    last: int


def judge(
    ledger_id: int, metadata: LedgerMetadata, end: int, chunk: int, evidence: Mapping[str, Evidence]
) -> ChunkVerdict:
    """Judge a chunk. end: the ledger's last entry, or of an open one the last add confirmed.

    A bookie without evidence was not asked: its copies are unknown.
    """
    low = chunk * CHUNK_ENTRIES
    findings: list[Finding] = []
    entries = copies = size = 0
    known = True
    for stretch in stretches_of(metadata, chunk, end):
        count = stretch.last - stretch.first + 1
        entries += count
        copies += count * metadata.write_quorum
        total = _equal_and_good(metadata, stretch, low, evidence)
        if total is None:
            total = _look_closely(ledger_id, metadata, stretch, evidence, findings)
        if total is None:
            known = False
        else:
            size += total
    return ChunkVerdict(tuple(findings), entries, copies, size if known else None)


def stretches_of(metadata: LedgerMetadata, chunk: int, end: int) -> Iterator[Stretch]:
    """The parts of a chunk that one ensemble each holds, up to the ledger's end."""
    low, high = chunk * CHUNK_ENTRIES, min(end, (chunk + 1) * CHUNK_ENTRIES - 1)
    fragments = metadata.fragments
    for at, fragment in enumerate(fragments):
        first = max(low, fragment.first_entry_id)
        last = high if at + 1 == len(fragments) else min(high, fragments[at + 1].first_entry_id - 1)
        if first <= last:
            yield Stretch(fragment.ensemble, first, last)


def _equal_and_good(
    metadata: LedgerMetadata, stretch: Stretch, low: int, evidence: Mapping[str, Evidence]
) -> int | None:
    """The payload bytes of the stretch where every copy is good and equal; None where that is not so."""
    width, size = metadata.ensemble_size, 0
    for turn in range(min(width, stretch.last - stretch.first + 1)):
        entry_id = stretch.first + turn
        part = slice(entry_id - low, stretch.last - low + 1, width)  # of all these the write set is the same
        reference: Evidence | None = None
        for index in write_set(entry_id, width, metadata.write_quorum):
            found = evidence.get(stretch.ensemble[index])
            if found is None:
                return None
            verdicts = found.verdicts[part]
            if verdicts.count(GOOD) != len(verdicts):
                return None
            if reference is None:
                reference = found
            elif found.crcs[part] != reference.crcs[part] or found.sizes[part] != reference.sizes[part]:
                return None
        assert reference is not None
        size += sum(reference.sizes[part])
    return size


def _look_closely(
    ledger_id: int,
    metadata: LedgerMetadata,
    stretch: Stretch,
    evidence: Mapping[str, Evidence],
    findings: list[Finding],
) -> int | None:
    """Entry by entry. Adds what it finds; the payload bytes, None where an entry has no good copy."""
    found: dict[tuple[FindingKind, str, str, int], list[tuple[int, int]]] = {}
    counts = dict.fromkeys(stretch.ensemble, 0)  # entries that each should have, so far
    size: int | None = 0
    for entry_id in range(stretch.first, stretch.last + 1):
        members = [stretch.ensemble[i] for i in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)]
        said = [_said(evidence.get(member), entry_id) for member in members]
        good = [(crc, length) for verdict, crc, length, _ in said if verdict == GOOD]
        for member, (verdict, _, _, why) in zip(members, said, strict=True):
            counts[member] += 1
            if verdict != GOOD:
                found.setdefault((_KIND[verdict], member, why, len(good)), []).append((counts[member], entry_id))
        if len(set(good)) > 1:
            differ = (FindingKind.DIVERGENT, "", _differing(members, said), len(good))
            found.setdefault(differ, []).append((entry_id, entry_id))
        if not good and all(verdict in (BAD, MISSING) for verdict, *_ in said):
            found.setdefault((FindingKind.LOST, "", "", 0), []).append((entry_id, entry_id))
        if not good:
            size = None
        elif size is not None:
            size += good[0][1]
    for (kind, bookie, detail, copies), numbered in found.items():
        findings.extend(
            Finding(kind, ledger_id, first, last, bookie, copies, detail[:DETAIL_MAX], count)
            for first, last, count in _runs(numbered)
        )
    return size


def _said(evidence: Evidence | None, entry_id: int) -> tuple[int, int, int, str]:
    """Verdict, checksum, size and reason."""
    if evidence is None:
        return UNKNOWN, 0, 0, "it was not asked"
    at = entry_id - evidence.first_entry_id
    verdict = evidence.verdicts[at]
    why = "it was not asked" if verdict == UNSAID else "" if verdict == GOOD else evidence.why(entry_id)
    return verdict, evidence.crcs[at], evidence.sizes[at], why


def _differing(members: Sequence[str], said: Sequence[tuple[int, int, int, str]]) -> str:
    """Who has which payload."""
    by_content: dict[tuple[int, int], list[str]] = {}
    for member, (verdict, crc, size, _) in zip(members, said, strict=True):
        if verdict == GOOD:
            by_content.setdefault((crc, size), []).append(member)
    groups = sorted(by_content.values(), key=lambda each: (-len(each), each))
    return " against ".join(", ".join(sorted(group)) for group in groups)


def _runs(numbered: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """First and last entry of each run of consecutive numbers, and how many. numbered: number and entry, ascending."""
    for _, run in groupby(enumerate(numbered), lambda each: each[1][0] - each[0]):
        entry_ids = [entry_id for _, (_, entry_id) in run]
        yield entry_ids[0], entry_ids[-1], len(entry_ids)
