"""What follows where a bookie does not tell what it holds, or cannot read what it lists. Pure.

it answers with an I/O error, or lists what it cannot read
    Qw = 1                                     there is no other copy: nothing by itself
    it reported bad copies                     damaged.py tells what becomes of them
    it reported none, and entries can be read  what it had reported was written anew; its index still is damaged
    it reported none                           it will, within seconds
no answer                                      dead a moment ago, or at a loss (I-77)
"""

from __future__ import annotations

from bookkeeper.cli.why.damaged import reported, say_who_mends
from bookkeeper.cli.why.explanation import Explanation, duration
from bookkeeper.cli.why.ledger_facts import LedgerFacts, some_entries
from bookkeeper.console.output import entries
from bookkeeper.model import BookieId, LedgerMetadata
from bookkeeper.replication.copies.fragments import FragmentRange
from bookkeeper.replication.copies.verdicts import Standing
from bookkeeper.replication.repair.locked_ledgers import SILENT_TRIES

REASONS_TOLD_MAX = 3


def say_unable(
    facts: LedgerFacts,
    metadata: LedgerMetadata,
    fragments: list[FragmentRange],
    bookie: BookieId,
    found: Explanation,
) -> None:
    """It answered, and cannot read its index or an entry."""
    read = _entries_read(facts, fragments, bookie)
    reasons = facts.unmended.get(bookie, [])
    found.errors += [f"{bookie} says: {why}" for why in reasons[:REASONS_TOLD_MAX]]
    if len(reasons) > REASONS_TOLD_MAX:
        found.errors.append(f"{bookie} says so of {len(reasons) - REASONS_TOLD_MAX} more pages of the index")
    if metadata.write_quorum == 1:
        found.next.append(
            f"nothing by itself, but for index pages: each entry of this ledger is on one bookie only (Qw=1), so there "
            f"is nothing to write the copies of {bookie} anew from"
        )
    elif any(each.bookie_id == bookie for each in reported(facts)):
        pass
    elif read:
        found.holds.append(f"{bookie} delivered all of {entries(read)} that were asked of it as a sample")
        found.next.append(
            f"{bookie} has no report of bad copies that waits for a worker: what it had reported was written anew. Its "
            "index stays damaged where an entry log that is needed to make it anew is damaged too, its log says which: "
            "then nothing more happens by itself"
        )
    else:
        say_who_mends(
            facts,
            found,
            f"{bookie} reports what it cannot read within seconds, and a worker makes those copies anew out of the "
            "others, there or on another bookie",
        )
    found.do.append(
        f"{bookie} could not read its files of the ledger, its log says which. Damaged pages of an index it makes anew "
        "out of its entry logs within seconds of meeting them, where that is certain; not a file that is missing"
    )
    found.do.append(
        f"where it stays so: stop {bookie}, run on its host: bookkeeper shell --conf FILE "
        f"regenerate-interleaved-storage-index-file -ledgerIds {facts.ledger_id}; start it again"
    )


def _entries_read(facts: LedgerFacts, fragments: list[FragmentRange], bookie: BookieId) -> int:
    """How many entries the bookie delivered; 0 too where it failed to deliver one."""
    count = 0
    for fragment in fragments:
        for index, member in enumerate(fragment.ensemble):
            look = facts.looks.get((fragment.first_entry_id, index))
            if member != bookie or look is None:
                continue
            if look.standing is not Standing.PRESENT:
                return 0
            count += len(some_entries(fragment, index))
    return count


def say_silent(facts: LedgerFacts, bookie: BookieId, found: Explanation) -> None:
    """Registered, and without an answer: dead a moment ago, or at a loss (I-77)."""
    repair = facts.repair
    delay = repair.delay_s if isinstance(repair.delay_s, int) else 0
    then = f"the auditor marks its ledgers{f' {duration(delay)} later (lostBookieRecoveryDelay)' if delay else ''}"
    if repair.enabled is False:
        then = "nothing follows while auto-recovery is disabled"
    elif repair.auditor is None:
        then = "nothing follows, since no auditor is elected: run auto-recovery"
    found.next.append(
        f"where the process of {bookie} is gone, its registration ends with its ZooKeeper session (zkTimeout, 10 s "
        f"unless set); then {then}"
    )
    found.next.append(
        "as long as it is registered, no verdict is no loss: none is marked for that alone; of one that is marked, "
        f"a worker gives such copies to others after {SILENT_TRIES} tries"
    )
    found.do.append(
        f"{bookie} is registered and did not answer: start it where it is gone, else look at its log and its load; "
        "then ask again"
    )
