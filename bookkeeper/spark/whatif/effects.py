"""What a situation means for many fragments: by ledger, and summed up by bookie. Pure, but for dice from a seed.

Who takes copies is chosen by the rules of the client (`bookkeeper.client.bookies.placement`: racks, and free space
where that counts), with dice that fall alike for the same ledger every time: one of the ways in which it may go, not
the only one.
Bytes are entries times the mean size of the ledger's entries, rounded down for each fragment and bookie.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields

from bookkeeper.client.bookies.placement import choose_ensemble, choose_replacements, spans_racks
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import BookieId, check_quorum
from bookkeeper.spark.whatif.fragment import Stripes, loss_of, rewrite_of
from bookkeeper.spark.whatif.situation import Situation


@dataclass(frozen=True, slots=True)
class FragmentRow:
    """A fragment with what is known of its ledger: end and length of the whole ledger, `end` its last entry."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    ensemble: tuple[BookieId, ...]
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    end: int
    length: int

    def size_of(self, entry_count: int) -> int:
        """About how many bytes so many of its entries are."""
        return entry_count * self.length // (self.end + 1) if self.end >= 0 else 0


@dataclass(slots=True)
class LedgerEffect:
    """What it means for a fragment's ledger; see `fragment.Loss`. impossible: why it cannot be done, "": it can."""

    ledger_id: int
    impossible: str = ""
    affected: int = 0
    no_copy: int = 0
    one_copy: int = 0
    below_ack_quorum: int = 0
    no_readable_copy: int = 0
    lost_copies: int = 0
    unplaced_copies: int = 0
    written_copies: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(slots=True)
class BookieLoad:
    """Copies and payload bytes that a bookie has, loses, receives; given_bytes: what is read from it."""

    before_copies: int = 0
    before_bytes: int = 0
    gone_copies: int = 0
    gone_bytes: int = 0
    received_copies: int = 0
    received_bytes: int = 0
    given_bytes: int = 0


COUNTS = tuple(each.name for each in fields(LedgerEffect) if each.name not in ("ledger_id", "impossible"))
LOADS = tuple(each.name for each in fields(BookieLoad))


class Effects:
    """Takes fragments one by one, in any order. loads: of the bookies met so far."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self.loads: dict[BookieId, BookieLoad] = {}

    def of(self, row: FragmentRow) -> LedgerEffect | None:
        """What it means for the fragment's ledger; None: nothing."""
        stripes = Stripes(row.first_entry_id, row.last_entry_id, row.ensemble_size, row.write_quorum)
        for bookie_id, count in zip(row.ensemble, stripes.copies(), strict=True):
            load = self._load(bookie_id)
            load.before_copies += count
            load.before_bytes += row.size_of(count)
        return self._written_anew(row, stripes) if self._situation.quorums else self._lost(row, stripes)

    def _load(self, bookie_id: BookieId) -> BookieLoad:
        return self.loads.setdefault(bookie_id, BookieLoad())

    def _receive(self, row: FragmentRow, bookie_id: BookieId, count: int) -> int:
        """Bytes."""
        load, size = self._load(bookie_id), row.size_of(count)
        load.received_copies += count
        load.received_bytes += size
        return size

    def _take(self, row: FragmentRow, bookie_id: BookieId, count: int) -> None:
        load = self._load(bookie_id)
        load.gone_copies += count
        load.gone_bytes += row.size_of(count)

    def _readable(self, row: FragmentRow) -> list[int]:
        return [index for index, each in enumerate(row.ensemble) if each in self._situation.registered]

    # --- bookies are lost

    def _lost(self, row: FragmentRow, stripes: Stripes) -> LedgerEffect | None:
        situation = self._situation
        lost = [index for index, each in enumerate(row.ensemble) if each in situation.lost]
        if not lost or not stripes.entry_count:
            return None
        chosen, why = self._replacements(row, lost)
        found = loss_of(stripes, row.ack_quorum, lost=lost, readable=self._readable(row), taken=chosen)
        if not found.lost_copies:
            return None
        for index, count in enumerate(stripes.copies()):
            if index in lost:
                self._take(row, row.ensemble[index], count)
        for index, count in found.read.items():
            self._load(row.ensemble[index]).given_bytes += row.size_of(count)
        written = sum(self._receive(row, chosen[index], count) for index, count in found.written.items())
        return LedgerEffect(
            row.ledger_id,
            why if found.unplaced_copies else "",
            affected=found.affected,
            no_copy=found.no_copy,
            one_copy=found.one_copy,
            below_ack_quorum=found.below_ack_quorum,
            no_readable_copy=found.no_readable_copy,
            lost_copies=found.lost_copies,
            unplaced_copies=found.unplaced_copies,
            written_copies=found.written_copies,
            read_bytes=row.size_of(found.read_entries),
            written_bytes=written,
        )

    def _replacements(self, row: FragmentRow, lost: Sequence[int]) -> tuple[dict[int, BookieId], str]:
        """Who takes the lost places, and why not all of them are taken."""
        situation = self._situation
        chosen = choose_replacements(
            indexes=lost,
            ensemble=row.ensemble,
            write_quorum=row.write_quorum,
            candidates=situation.takers,
            excluded=situation.lost,
            quarantined=(),
            rack_of=situation.rack_of,
            rng=random.Random(f"{row.ledger_id}/{row.first_entry_id}"),
            weights=situation.weights,
        )
        after = [chosen.get(index, each) for index, each in enumerate(row.ensemble)]
        if situation.racks_min and not spans_racks(after, row.write_quorum, situation.rack_of, situation.racks_min):
            return {}, (
                f"no write quorum of {row.write_quorum} over {situation.racks_min} racks is left "
                "(enforceMinNumRacksPerWriteQuorum)"
            )
        if len(chosen) == len(lost):
            return chosen, ""
        return chosen, (
            f"too few bookies: {len(situation.takers)} are writable then, and an ensemble of {row.ensemble_size} "
            "has no bookie twice"
        )

    # --- ledgers are written anew

    def _written_anew(self, row: FragmentRow, stripes: Stripes) -> LedgerEffect | None:
        situation = self._situation
        has = row.ensemble_size, row.write_quorum, row.ack_quorum
        asked = ensemble_size, write_quorum, ack_quorum = situation.quorums.of(*has)
        try:
            check_quorum(ensemble_size, write_quorum, ack_quorum)
            if asked == has or not stripes.entry_count:  # an ack quorum never changes either
                return None
            chosen = choose_ensemble(
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                candidates=situation.takers,
                quarantined=(),
                rack_of=situation.rack_of,
                rng=random.Random(f"{row.ledger_id}"),  # one ensemble for all of its fragments
                weights=situation.weights,
            )
        except BookKeeperError as error:
            return LedgerEffect(row.ledger_id, str(error))
        if situation.racks_min and not spans_racks(chosen, write_quorum, situation.rack_of, situation.racks_min):
            return LedgerEffect(
                row.ledger_id,
                f"no write quorum of {write_quorum} over {situation.racks_min} racks can be had "
                "(enforceMinNumRacksPerWriteQuorum)",
            )
        found = rewrite_of(stripes, ensemble_size, write_quorum, readable=self._readable(row))
        for index, count in found.gone.items():
            self._take(row, row.ensemble[index], count)
        for index, count in found.read.items():
            self._load(row.ensemble[index]).given_bytes += row.size_of(count)
        written = sum(self._receive(row, each, count) for each, count in zip(chosen, found.written, strict=True))
        return LedgerEffect(
            row.ledger_id,
            affected=stripes.entry_count,
            no_readable_copy=found.no_readable_copy,
            written_copies=sum(found.written),
            read_bytes=row.size_of(found.read_entries),
            written_bytes=written,
        )
