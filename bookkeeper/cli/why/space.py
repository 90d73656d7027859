"""Why the space of deleted ledgers does not come back. Pure.

What could be given back, in the order in which it goes: journal files below the mark (at each checkpoint), ledgers that
the metadata store has no more (two rounds and a proof), entry logs without a ledger, and the dead part of others
(compaction). For each: is somebody at it, what stands in the way, when is its turn.
"""

from __future__ import annotations

import re

from bookkeeper.admin.access.curl import order_line
from bookkeeper.bookie.gc.status import GarbageStage
from bookkeeper.bookie.process.status_format import BookieStatus, CollectionStatus
from bookkeeper.cli.why.explanation import Explanation, clock_time, duration, percent, size
from bookkeeper.cli.why.host import add_facts, judge_process
from bookkeeper.cli.why.host_facts import HostFacts
from bookkeeper.console.output import counted


def explain_space(facts: HostFacts) -> Explanation:
    """What takes the space, what of it is garbage, and what becomes of that."""
    found = Explanation(f"space of bookie {facts.bookie_id}")
    runs = judge_process(facts, found)
    status = facts.status
    _say_sizes(facts, found)
    if not runs:
        found.next.append("nothing is given back while the bookie does not run")
    elif status is not None and status.collection is not None:
        _judge_collection(facts, status, status.collection, found)
    else:
        found.trouble("it did not say anything of its garbage collection yet")
    if not found.headline:
        found.headline = "garbage is collected as it should be"
        worth = 0 if status is None or status.collection is None else status.collection.worth_bytes or 0
        if worth:
            found.headline += f"; {size(worth)} of deleted ledgers wait for a compaction"
    add_facts(facts, found)
    if status is not None and status.collection is not None:
        collection = status.collection
        found.facts |= {
            "live_bytes": collection.live_bytes,
            "closed_log_bytes": collection.total_bytes,
            "written_log_live_bytes": collection.active_live_bytes,
            "written_log_bytes": collection.active_total_bytes,
            "reclaimable_bytes": collection.worth_bytes,
            "waiting_ledgers": collection.waiting_ledgers,
            "reclaimed_bytes": collection.reclaimed_bytes,
            "minor_suspended": collection.minor_suspended,
            "major_suspended": collection.major_suspended,
            "quarantined": [{"log": each.log, "why": each.why} for each in collection.quarantined],
            "bad_records": list(collection.bad_records),
            "round_ordered": collection.forced,
            "interrupted": collection.interrupted,
            "last_error": None if collection.last_error is None else collection.last_error.text,
            "next_round_ms": collection.next_round_ms,
            "finding": collection.finding,
            "kept_ledgers": collection.kept_ledgers,
        }
    return found


def _say_sizes(facts: HostFacts, found: Explanation) -> None:
    sums: dict[str, tuple[int, int]] = {}
    for each in facts.directories:
        for kind, files in each.own.items():
            count, total = sums.get(kind, (0, 0))
            sums[kind] = (count + files.count, total + files.bytes)
    for kind in ("entry logs", "index files", "journal"):
        if kind in sums:
            count, total = sums[kind]
            found.holds.append(f"{kind}: {size(total)} in {counted(count, 'file')}")
    journals = sums.get("journal", (0, 0))[0]
    kept = facts.settings.journal_backups_max * len(facts.settings.journal_directories)
    if journals and kept:
        file_max = facts.settings.journal_file_size_max
        found.holds.append(
            f"of the journal's files up to {kept} are kept although no longer needed: {size(kept * file_max)} at most "
            f"(journalMaxBackups {facts.settings.journal_backups_max}, "
            f"{facts.places.get('journalMaxBackups', 'default')}; journalMaxSizeMB {file_max >> 20}, "
            f"{facts.places.get('journalMaxSizeMB', 'default')})"
        )


def _judge_collection(facts: HostFacts, status: BookieStatus, collection: CollectionStatus, found: Explanation) -> None:
    now, settings = facts.now_ms, facts.settings
    dead = collection.total_bytes - collection.live_bytes
    if collection.rounds:
        assert collection.last_round_ms is not None
        took = duration(collection.last_round_s or 0.0)
        found.working.append(
            f"{counted(collection.rounds, 'round')} since the start, the last one ended "
            f"{clock_time(collection.last_round_ms, now)} and took {took}"
        )
        found.holds.append(
            f"since the start: {counted(collection.deleted_ledgers, 'ledger')} deleted, "
            f"{counted(collection.removed_logs, 'entry log')} removed, {collection.compacted_logs} rewritten, "
            f"{size(collection.reclaimed_bytes)} given back"
        )
        if collection.total_bytes:
            found.holds.append(
                f"after the last round closed entry logs hold {size(collection.total_bytes)}, of which {size(dead)} "
                f"({percent(dead / collection.total_bytes)}) are dead"
            )
        _say_written(collection, found)
    else:
        found.working.append(f"no round yet: the first comes {duration(settings.gc_wait_s)} after the start")
    in_hand = f" ({collection.compacting})" if collection.compacting else ""
    ordered = ", in a round that was ordered" if collection.forced and _is_round(collection) else ""
    found.working.append(f"now: {collection.doing}{in_hand}{ordered}")
    _judge_error(facts, status, collection, found)
    if collection.waiting_ledgers:
        found.holds.append(
            f"{counted(collection.waiting_ledgers, 'ledger here was', 'ledgers here were')} not in the metadata "
            "store's last listing: each waits for a second round and a proof of its own"
        )
    if collection.alarms:
        found.trouble(
            f"{counted(collection.alarms, 'round')} found most ledgers missing from the metadata store: is the store "
            "whole? Few of them are deleted in a round"
        )
        found.do.append("compare `bookkeeper shell listledgers` with what you expect before more is deleted")
    if collection.bad_records_count:
        found.trouble(
            f"{counted(collection.bad_records_count, 'znode')} among the ledgers of the metadata store "
            f"{'is not a ledger' if collection.bad_records_count == 1 else 'are not ledgers'}: a ledger is not "
            "collected if such a path spells its id; all others are"
        )
        found.holds.extend(collection.bad_records)
        found.do.append("find out what wrote these znodes, then remove them with ZooKeeper's zkCli")
    _judge_history(collection, found)
    _judge_compaction(facts, status.started_ms, collection, found)
    if collection.next_round_ms is not None:
        found.next.append(
            f"the next round comes {clock_time(collection.next_round_ms, now)}; only a round finds what was deleted "
            "since the last one"
        )
    worth = dead if collection.worth_bytes is None else collection.worth_bytes
    if _is_round(collection):
        found.next.append("a round is under way: what it gives back shows when it has ended")
    elif collection.waiting_ledgers or worth:
        gives = f" (gives back {size(worth)} or more)" if worth else ""
        found.do.append(f"a round at once{gives}: {order_line(facts.settings, 'PUT', '/api/v1/bookie/gc')}")


def _judge_history(collection: CollectionStatus, found: Explanation) -> None:
    if collection.finding:
        found.trouble(
            f"no ledger is deleted, because the metadata store may have gone back in time: {collection.finding}"
        )
        found.next.append(
            "collection continues once a newer copy of the metadata is restored, or once an operator has decided"
        )
    if collection.kept_ledgers:
        kept = counted(collection.kept_ledgers, "ledger")
        found.trouble(f"{kept} that the metadata store may have lost: kept until an operator discards them")
    if collection.finding or collection.kept_ledgers:
        found.do.append("bookkeeper metadata check    shows the ledgers, and how to keep or discard them")


def _is_round(collection: CollectionStatus) -> bool:
    """Whether one is under way."""
    return collection.doing not in (GarbageStage.IDLE.value, GarbageStage.STOPPED.value)


def _say_written(collection: CollectionStatus, found: Explanation) -> None:
    total, live = collection.active_total_bytes, collection.active_live_bytes
    if total is None or live is None or not total:
        return
    dead = total - live
    found.holds.append(
        f"the entry log being written held {size(total)} at the last round, of which {size(dead)} "
        f"({percent(dead / total)}) were dead; rounds leave it alone until it is full, one that is ordered closes it "
        "first where that gives space back"
    )


def _judge_error(facts: HostFacts, status: BookieStatus, collection: CollectionStatus, found: Explanation) -> None:
    error = collection.last_error
    if error is None:
        return
    text = f"{clock_time(error.at_ms, facts.now_ms)}: {error.text}"
    found.errors.append(text)
    found.trouble(f"the last round of garbage collection did not get through: {error.text}")
    found.holds.append("no ledger was deleted without proof; ledgers that cannot be asked about stay")
    if status.registration.state != "registered":
        since = clock_time(status.registration.since_ms, facts.now_ms)
        found.holds.append(f"its registration is {status.registration.state} since {since}")
    found.next.append("every round tries again")


def _judge_compaction(facts: HostFacts, started_ms: int, collection: CollectionStatus, found: Explanation) -> None:
    settings = facts.settings
    kinds = (
        (
            "minor",
            collection.minor_suspended,
            settings.minor_compaction_threshold,
            settings.minor_compaction_interval_s,
            collection.last_minor_ms,
        ),
        (
            "major",
            collection.major_suspended,
            settings.major_compaction_threshold,
            settings.major_compaction_interval_s,
            collection.last_major_ms,
        ),
    )
    for name, suspended, threshold, interval_s, last_ms in kinds:
        if suspended:
            interrupted = collection.interrupted == name
            found.trouble(
                f"{name} compaction is suspended by an operator" + (", one of them on the way" if interrupted else "")
            )
            if interrupted:
                found.next.append(f"the {name} compaction that was under way begins anew once it is resumed")
            body = f'{{"resume{name.capitalize()}": true}}'
            found.next.append(f"{name} compaction stays suspended until it is resumed, or a restart, which forgets it")
            found.do.append(order_line(facts.settings, "PUT", "/api/v1/bookie/gc/resume_compaction", body))
        elif threshold <= 0 or interval_s <= 0:
            key = f"{name}CompactionThreshold" if threshold <= 0 else f"{name}CompactionInterval"
            found.holds.append(f"{name} compaction is off: {key} ({facts.places.get(key, 'default')})")
        else:
            last = "never since the start" if last_ms is None else clock_time(last_ms, facts.now_ms)
            due_ms = (started_ms if last_ms is None else last_ms) + round(interval_s * 1000)
            due = f"due {clock_time(due_ms, facts.now_ms)}" if due_ms > facts.now_ms else "due in the next round"
            found.working.append(
                f"{name} compaction every {duration(interval_s)} rewrites logs of which less than {percent(threshold)} "
                f"is live; last: {last}; {due}"
            )
    if collection.quarantined_count:
        found.trouble(
            f"{counted(collection.quarantined_count, 'entry log is', 'entry logs are')} left alone, so "
            f"{'its' if collection.quarantined_count == 1 else 'their'} space does not come back: damaged, or in doubt"
        )
        found.holds.extend(f"{each.log}: {each.why}" for each in collection.quarantined)
        found.next.append("such a log is looked at again in each round, and goes once all its ledgers are proven gone")
        _say_remedies(collection, found)


_INDEX_REMEDY = re.compile(r"regenerate-interleaved-storage-index-file -ledgerIds (\d+)")


def _say_remedies(collection: CollectionStatus, found: Explanation) -> None:
    """Logs wait for an index file that is gone or damaged, as they say; what is else the matter, reading tells."""
    matches = [_INDEX_REMEDY.search(each.why) for each in collection.quarantined]
    ledger_ids = sorted({int(match[1]) for match in matches if match is not None})
    if ledger_ids:
        found.do.append(
            "make the index files anew that these logs wait for: stop the bookie, then bookkeeper shell --conf FILE "
            f"regenerate-interleaved-storage-index-file -ledgerIds {','.join(map(str, ledger_ids))}, and start it again"
        )
    if None in matches or collection.quarantined_count > len(matches):
        found.do.append("stop the bookie and read it through: bookkeeper shell --conf FILE localconsistencycheck")
