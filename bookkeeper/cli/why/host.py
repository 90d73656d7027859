"""Why a bookie is read-only, and what its disks have to do with it. Pure: facts in, an explanation out.

Disks are judged by what they measure now, reasons and times by what the bookie said. Where it does not run, what it
said is its last known state, and the answer says of when.
"""

from __future__ import annotations

import math

from bookkeeper.admin.access.curl import order_line
from bookkeeper.bookie.process.status_format import BookieStatus, DirectoryStatus, Reason, ScrubStatus
from bookkeeper.bookie.storage.disks import RELEASE_GAP, free_to_release
from bookkeeper.cli.why.explanation import Explanation, clock_time, duration, percent, size
from bookkeeper.cli.why.host_facts import DirectoryFacts, HostFacts, OwnFiles
from bookkeeper.console.output import counted

SERVING = "serving"


def explain_readonly(facts: HostFacts) -> Explanation:
    """Whether the bookie takes entries, why not, and when it will."""
    found = Explanation(f"bookie {facts.bookie_id}")
    if not _judge_process(facts, found):
        _judge_disks(facts, found, asked=False)
        return found
    status = facts.status
    assert status is not None
    if not status.mode.read_only and found.healthy:
        found.headline = "is writable"
    elif not status.mode.read_only:
        found.holds.append("is writable")
    for reason in status.mode.reasons:
        _judge_reason(facts, status, reason, found)
    if status.mode.read_only:
        passes = "still pass"
        if not status.mode.priority_writes:
            needed = size(facts.settings.high_priority_free_bytes_min)
            place = facts.places.get("minUsableSizeForHighPriorityWrites", "default")
            passes = (
                f"are refused, too: no ledger directory has {needed} free (minUsableSizeForHighPriorityWrites, {place})"
            )
        found.holds.append(f"reads and fences are served; recovery and high-priority adds {passes}")
    _judge_registration(facts, status, found)
    _judge_disks(facts, found, asked=False)
    _add_facts(facts, found)
    return found


def explain_disk(facts: HostFacts) -> Explanation:
    """Each directory: how full its disk is, what of it is this bookie's, what follows."""
    found = Explanation(f"disks of bookie {facts.bookie_id}")
    runs = _judge_process(facts, found)
    _judge_disks(facts, found, asked=True)
    if runs and facts.status is not None and facts.status.checkpoint is not None:
        checkpoint = facts.status.checkpoint
        if checkpoint.short_of_room:
            found.trouble("the last flush found no space; it is tried again every second")
        elif checkpoint.last_ms is not None and checkpoint.duration_s is not None:
            when = clock_time(checkpoint.last_ms, facts.now_ms)
            found.working.append(f"the last checkpoint ended {when} and took {duration(checkpoint.duration_s)}")
    if runs:
        _say_scrub(facts, found)
    if not found.headline:
        limit = percent(facts.disk_settings.usage_threshold)
        found.headline = f"none of {len(facts.directories)} directories is full (diskUsageThreshold {limit})"
    _add_facts(facts, found)
    return found


def _say_scrub(facts: HostFacts, found: Explanation) -> None:
    scrub = None if facts.status is None else facts.status.scrub
    if scrub is None:
        return
    assert facts.status is not None
    last = "never yet" if scrub.last_round_ms is None else clock_time(scrub.last_round_ms, facts.now_ms)
    mended = ""
    if scrub.last_mending_ms is not None:
        when = clock_time(scrub.last_mending_ms, facts.now_ms)
        mended = f"; damaged index pages were made anew, or that was tried, {when}"
    said = max(0, facts.now_ms - facts.status.written_ms) / 1000
    found.working.append(
        f"the scrub, which reads everything through, said {duration(said)} ago: {scrub.doing or 'waits'}; last round: "
        f"{last}{mended}"
    )
    if scrub.damaged_ranges:
        _say_damage(scrub, found)
    if scrub.last_error is not None:
        error = scrub.last_error
        found.errors.append(f"{clock_time(error.at_ms, facts.now_ms)}, scrub: {error.text}")


def _say_damage(scrub: ScrubStatus, found: Explanation) -> None:
    changed = scrub.damaged_ranges - scrub.gone_ranges
    kinds = [f"{counted(changed, 'range')} of entries on these disks failed their checksums"] if changed else []
    if scrub.gone_ranges:
        kinds.append(f"{counted(scrub.gone_ranges, 'range')} of entries were in files that are missing or cut short")
    found.trouble(f"{'; '.join(kinds)}; they are answered as unknown, never as absent")
    for each in scrub.damaged:
        which = "all entries" if each.last is None else f"entries {each.first}..{each.last}"
        whose = f"ledger {each.ledger}, {which}" if each.ledger >= 0 else "nobody knows of which ledger"
        found.holds.append(f"damaged: {whose}: {each.path} at byte {each.offset}: {each.why}")
    if more := scrub.damaged_ranges - len(scrub.damaged):
        found.holds.append(f"and {counted(more, 'damaged range')} more" if scrub.damaged else "it does not say which")
    found.next.append("a replication worker rewrites what the bookie reported, from good copies")
    found.next.append("the bookie itself makes damaged index pages anew out of the entry logs, where that is certain")
    for ledger_id in dict.fromkeys(each.ledger for each in scrub.damaged if each.ledger >= 0):
        found.do.append(f"`bookkeeper why ledger {ledger_id}` says where the good copies are and who repairs this one")
    if not any(each.ledger >= 0 for each in scrub.damaged):
        found.do.append("stop the bookie and read it through: bookkeeper shell --conf FILE localconsistencycheck")


# --- the process ------------------------------------------------------------------------------------------------------


def judge_process(facts: HostFacts, found: Explanation) -> bool:
    """Whether the bookie runs and serves; what there is to say where it does not."""
    return _judge_process(facts, found)


def _judge_process(facts: HostFacts, found: Explanation) -> bool:
    if facts.refusal:
        found.trouble(f"would be refused at its start: {facts.refusal}")
        if facts.has_no_cookie:
            found.do.append(
                f"`bookkeeper shell --conf FILE listledgers -bookieid {facts.bookie_id}` lists the ledgers that name "
                "it: where there are none it was decommissioned, and starts anew only with empty directories; else "
                "restore its cookie (cookie_create), and start it"
            )
    if facts.store.error:
        found.trouble(f"the metadata store cannot be asked: {facts.store.error}")
        found.do.append("make the metadata store reachable; a bookie that runs goes on serving meanwhile")
    status = facts.status
    if status is None:
        found.trouble(f"nothing is known of its state: {facts.status_error}")
        if facts.store.registered is not None:
            found.holds.append(f"the metadata store has it registered as {facts.store.registered}")
        else:
            found.do.append("start it: bookkeeper bookie --conf FILE")
        return False
    if facts.running and status.phase == SERVING:
        began = clock_time(status.started_ms, facts.now_ms)
        found.working.append(f"it runs as process {_pid(status)} since {began}")
        before = status.previous
        if before is not None and before.phase != "stopped":
            why = "" if before.last_error is None else f" ({before.last_error.subject}: {before.last_error.text})"
            said = clock_time(before.written_ms, facts.now_ms)
            found.working.append(f"the run before this one said last, {said}: {before.phase}{why}")
        return True
    _judge_not_serving(facts, status, found)
    return False


def _judge_not_serving(facts: HostFacts, status: BookieStatus, found: Explanation) -> None:
    said = clock_time(status.written_ms, facts.now_ms)
    if facts.running is None:
        found.trouble(f"whether it runs cannot be told on this system; its last known state is of {said}")
    elif facts.running:
        found.trouble(f"is {status.phase} since {clock_time(status.phase_since_ms, facts.now_ms)}")
    elif status.phase == "stopped":
        found.trouble(f"does not run: it was stopped {clock_time(status.phase_since_ms, facts.now_ms)}")
    elif status.phase == "failed":
        found.trouble(f"does not run: it failed {clock_time(status.phase_since_ms, facts.now_ms)}")
    else:
        found.trouble(f"does not run, and did not say that it ended; last known state of {said}: {status.phase}")
    if status.mode.read_only:
        why = "; ".join(reason.text for reason in status.mode.reasons)
        found.holds.append(f"it was read-only then: {why}")
    if status.last_error is not None:
        error = status.last_error
        found.errors.append(f"{clock_time(error.at_ms, facts.now_ms)}, {error.subject}: {error.text}")
    if facts.store.registered is not None and not facts.running:
        found.holds.append(
            f"the metadata store still has it registered as {facts.store.registered}: until its session times out "
            f"(zkTimeout {duration(facts.settings.zk_session_timeout_s)}), or by another process with this id"
        )
    if not facts.running:
        if not facts.refusal:
            found.next.append(
                "it was stopped cleanly: the next start has nothing to make up for"
                if status.phase == "stopped"
                else "the next start replays the journal; nothing that was acknowledged is lost by a crash"
            )
            found.do.append("start it: bookkeeper bookie --conf FILE")
        if facts.has_no_cookie:
            found.next.append(
                "if it was decommissioned, no ledger names it and nothing is lost; else its ledgers count as lost"
            )
        else:
            found.next.append("where auto-recovery runs, its ledgers count as lost after lostBookieRecoveryDelay")


def _pid(status: BookieStatus) -> str:
    return status.process.partition(":")[0]


# --- reasons ----------------------------------------------------------------------------------------------------------


def _judge_reason(facts: HostFacts, status: BookieStatus, reason: Reason, found: Explanation) -> None:
    since = f"read-only since {clock_time(reason.since_ms, facts.now_ms)}: "
    if reason.name == "DISK_FULL":
        _judge_disk_full(facts, since, found)
    elif reason.name == "CONFIGURED":
        place = facts.places.get("forceReadOnlyBookie", "")
        found.trouble(f"{since}forceReadOnlyBookie=true ({place})")
        found.next.append("it stays read-only for as long as it runs")
        found.do.append(f"set forceReadOnlyBookie=false ({place}) and restart it")
    elif reason.name == "OPERATOR":
        found.trouble(f"{since}an operator ordered it over HTTP")
        found.next.append("it stays read-only until the order is taken back, or a restart, which forgets it")
        order = order_line(facts.settings, "PUT", "/api/v1/bookie/state/readonly", '{"readOnly": false}')
        found.do.append(order)
    elif reason.name == "NO_ROOM":
        found.trouble(
            f"{since}a write to the ledger directories found no space, whatever the disks' usage says: a quota, or no "
            "free inodes"
        )
        found.next.append("the flush is tried again every second; the first that succeeds makes it writable")
        found.do.append("look for a quota of the bookie's user or directory, and at `df -i`; raise it, or free space")
    else:
        found.trouble(f"{since}{reason.text}")
    if status.last_error is not None and status.last_error.at_ms >= reason.since_ms - 1000:
        error = status.last_error
        found.errors.append(f"{clock_time(error.at_ms, facts.now_ms)}, {error.subject}: {error.text}")


def _judge_disk_full(facts: HostFacts, since: str, found: Explanation) -> None:
    rules = facts.disk_settings
    ledgers = facts.ledger_directories
    full = [each for each in ledgers if _why_full(facts, each)]
    check = duration(rules.check_interval_s)
    if not full:
        low = percent(rules.low_water_mark)
        found.trouble(f"{since}its ledger directories were full")
        found.next.append(
            f"none of them is full now: the look at the disks every {check} (diskCheckInterval) "
            f"makes it writable, if all were full once they are used below {low} together (diskUsageLwmThreshold)"
        )
        return
    for each in full:
        found.trouble(f"{since}{_why_full(facts, each)}")
    if rules.read_only_on_any_full and len(full) < len(ledgers):
        found.holds.append(
            f"{len(full)} of {len(ledgers)} ledger directories are full, and one is enough "
            "(readOnlyModeOnAnyDiskFullEnabled=true)"
        )
    needs = [_needs(facts, each) for each in full]
    found.next.append(
        f"the disks are looked at every {check}; it turns writable when "
        + (" and " if rules.read_only_on_any_full else " or ").join(needs)
        + (
            f", and all together below {percent(rules.low_water_mark)} (diskUsageLwmThreshold)"
            if len(full) == len(ledgers)
            else ""
        )
    )
    found.do.append("`bookkeeper why space --conf FILE` says what could be given back")
    for each in full:
        needed = _to_free(facts, each)
        if needed > 0:
            found.do.append(f"free {size(needed)} on the disk of {each.path}{_or_raise(facts, each)}")
    found.do.append("or add empty directories on other disks to ledgerDirectories, with allowStorageExpansion=true")


def _needs(facts: HostFacts, directory: DirectoryFacts) -> str:
    """What must come true before a full directory takes files again."""
    assert directory.usage is not None
    needed, for_reserve = free_to_release(directory.usage, facts.disk_settings)
    share = facts.disk_settings.usage_threshold - RELEASE_GAP
    most = "" if for_reserve else f" (no more than {percent(share)} used)"
    return f"{size(needed)} are free on the disk of {directory.path}{most}"


def _or_raise(facts: HostFacts, directory: DirectoryFacts) -> str:
    """Whether another threshold would help."""
    assert directory.usage is not None
    rules = facts.disk_settings
    if free_to_release(directory.usage, rules)[1]:
        return f"; raising diskUsageThreshold does not help: {size(rules.reserve_bytes)} are kept free on every disk"
    return ", or raise diskUsageThreshold"


def _why_full(facts: HostFacts, directory: DirectoryFacts) -> str:
    """In words; "" where it is not full. One that is full stays so until its usage is RELEASE_GAP below."""
    usage, rules = directory.usage, facts.disk_settings
    if usage is None:
        return ""
    place = facts.places.get("diskUsageThreshold", "default")
    free = f"{size(usage.free)} of {size(usage.total)} are free"
    threshold = f"threshold {percent(rules.usage_threshold)}: diskUsageThreshold, {place}"
    if usage.used_fraction > rules.usage_threshold:
        return f"{directory.path} is {percent(usage.used_fraction)} full, {free} ({threshold})"
    if usage.free < rules.reserve_bytes:
        return (
            f"{directory.path} has {size(usage.free)} of {size(usage.total)} free, less than the "
            f"{size(rules.reserve_bytes)} that are kept on every disk for journal, marks and fences"
        )
    if _known_full(facts, directory.path) is not None:
        released = rules.usage_threshold - RELEASE_GAP
        if usage.used_fraction > released:
            return (
                f"{directory.path} was full and is {percent(usage.used_fraction)} full, {free}; it takes files again "
                f"at {percent(released)} ({threshold})"
            )
        if usage.free < rules.release_free_bytes:
            return (
                f"{directory.path} was full and has {size(usage.free)} of {size(usage.total)} free; it takes files "
                f"again with {size(rules.release_free_bytes)}"
            )
    return ""


def _known_full(facts: HostFacts, path: str) -> DirectoryStatus | None:
    """What the bookie said of a directory, if it called it full."""
    disks = None if facts.status is None or not facts.running else facts.status.disks
    if disks is None:
        return None
    return next((each for each in disks.directories if each.path == path and each.full), None)


def _to_free(facts: HostFacts, directory: DirectoryFacts) -> int:
    usage = directory.usage
    return 0 if usage is None else free_to_release(usage, facts.disk_settings)[0] - usage.free


def _judge_registration(facts: HostFacts, status: BookieStatus, found: Explanation) -> None:
    if facts.store.error:
        return
    mode = "read-only" if status.mode.read_only else "writable"
    registered = facts.store.registered
    if registered == mode:
        found.holds.append(f"the metadata store has it registered as {registered}: clients know")
        return
    since = clock_time(status.registration.since_ms, facts.now_ms)
    error = f": {status.registration.error}" if status.registration.error else ""
    found.trouble(
        f"it is {mode}, but the metadata store has it "
        + (f"registered as {registered}" if registered else "not registered")
        + f" (the bookie says: {status.registration.state} since {since}{error})"
    )
    found.next.append("the registration is tried again as soon as the session with the metadata store allows")


# --- disks ------------------------------------------------------------------------------------------------------------


def _judge_disks(facts: HostFacts, found: Explanation, *, asked: bool) -> None:
    """asked: it is the disks that were asked about; else only what is wrong with them is said."""
    for each in facts.directories:
        name = f"{each.path} ({', '.join(each.uses)})"
        if each.problem:
            found.trouble(f"{name} {each.problem}")
        if each.usage is None:
            continue
        share, rules = each.usage.used_fraction, facts.disk_settings
        journal_only = each.uses == ("journalDirectories",)
        why_full = "" if journal_only else _why_full(facts, each)
        if asked and why_full:
            found.trouble(f"{why_full}: it takes no new files{_since(facts, each.path)}")
            found.do.append(
                f"free {size(max(_to_free(facts, each), 0))} on the disk of {each.path}{_or_raise(facts, each)}; "
                "`bookkeeper why space` says how"
            )
        elif not why_full and (share > rules.warn_threshold or _near_reserve(facts, each)):
            left = max(0, _until_full(facts, each))
            sentence = f"{name} is nearly full: {percent(share)}"
            if journal_only:
                found.holds.append(f"{sentence}, {size(each.usage.free)} are free; the bookie ends when it is full")
            else:
                bound = (
                    f"{size(rules.reserve_bytes)} are kept free on every disk"
                    if _near_reserve(facts, each)
                    else f"diskUsageWarnThreshold {percent(rules.warn_threshold)}"
                )
                found.holds.append(f"{sentence} ({bound}); {size(left)} more and it is full")
        elif asked and not why_full:
            found.holds.append(f"{name} is {percent(share)} full, {size(each.usage.free)} are free")
        if asked and (other := _as_df(each)):
            found.holds.append(other)
        if asked:
            found.holds.extend(_whose(facts, each))
    if asked:
        _say_consequence(facts, found)


def _until_full(facts: HostFacts, directory: DirectoryFacts) -> int:
    """Bytes that may still be written before the directory is full."""
    assert directory.usage is not None
    usage, rules = directory.usage, facts.disk_settings
    return usage.free - max(round(usage.total * (1 - rules.usage_threshold)), rules.reserve_bytes)


def _near_reserve(facts: HostFacts, directory: DirectoryFacts) -> bool:
    """Whether the reserve, rather than a threshold, makes the directory nearly full: it has less than twice that."""
    assert directory.usage is not None
    usage, rules = directory.usage, facts.disk_settings
    journal_only = directory.uses == ("journalDirectories",)
    return not journal_only and usage.free < 2 * rules.reserve_bytes and free_to_release(usage, rules)[1]


def _as_df(directory: DirectoryFacts) -> str:
    """Why `df` shows another figure; "" where it does not."""
    usage = directory.usage
    if usage is None or not usage.reserved or usage.written + usage.free <= 0:
        return ""
    shown = math.ceil(100 * usage.written / (usage.written + usage.free))
    return (
        f"{directory.path}: {size(usage.reserved)} of its disk only root may write; they count as used here and for "
        f"diskUsageThreshold, as in Apache's bookie, while `df` leaves them out and shows {shown} %"
    )


def _since(facts: HostFacts, path: str) -> str:
    known = _known_full(facts, path)
    return "" if known is None else f", since {clock_time(known.since_ms, facts.now_ms)}"


def _whose(facts: HostFacts, directory: DirectoryFacts) -> list[str]:
    """What of the disk is this bookie's."""
    assert directory.usage is not None
    own = {kind: files for kind, files in directory.own.items() if files.bytes}
    of_disk = [each for each in facts.directories if each.disk == directory.disk and each.usage is not None]
    if directory is not of_disk[0]:
        return [f"{directory.path} is on the disk of {of_disk[0].path}: {_listed(own)}"]
    used = directory.usage.written
    all_own = sum(files.bytes for each in of_disk for files in each.own.values())
    others = max(0, used - all_own)
    return [f"{directory.path}: {_listed(own)}; {size(others)} of {size(used)} used on this disk are not this bookie's"]


def _listed(own: dict[str, OwnFiles]) -> str:
    parts = [
        f"{'' if files.complete else 'at least '}{size(files.bytes)} {kind} ({files.count})"
        for kind, files in sorted(own.items(), key=lambda item: -item[1].bytes)
        if kind not in ("other", "cookie")
    ]
    return ", ".join(parts) or "no data yet"


def _say_consequence(facts: HostFacts, found: Explanation) -> None:
    rules = facts.disk_settings
    if not facts.settings.read_only_mode_enabled:
        found.next.append("when the disks are full the bookie ends: readOnlyModeEnabled=false")
        return
    which = "one ledger directory is" if rules.read_only_on_any_full else "all ledger directories are"
    found.next.append(
        f"when {which} used above {percent(rules.usage_threshold)}, or has less than {size(rules.reserve_bytes)} free, "
        f"the bookie turns read-only, and writable again at {percent(rules.usage_threshold - RELEASE_GAP)} and "
        f"{size(rules.release_free_bytes)}"
    )


def _add_facts(facts: HostFacts, found: Explanation) -> None:
    status = facts.status
    found.facts = {
        "bookie_id": facts.bookie_id,
        "running": facts.running,
        "registered": facts.store.registered,
        "metadata_error": facts.store.error,
        "refusal": facts.refusal,
        "status_file": facts.status_path,
        "status_written_ms": None if status is None else status.written_ms,
        "phase": None if status is None else status.phase,
        "read_only": None if status is None else status.mode.read_only,
        "reasons": []
        if status is None
        else [{"name": reason.name, "since_ms": reason.since_ms} for reason in status.mode.reasons],
        "directories": [
            {
                "path": each.path,
                "uses": list(each.uses),
                "problem": each.problem,
                "total_bytes": None if each.usage is None else each.usage.total,
                "free_bytes": None if each.usage is None else each.usage.free,
                "root_only_bytes": None if each.usage is None else each.usage.reserved,
                "own_bytes": {kind: files.bytes for kind, files in each.own.items()},
            }
            for each in facts.directories
        ],
        "usage_threshold": facts.disk_settings.usage_threshold,
    }


def add_facts(facts: HostFacts, found: Explanation) -> None:
    """The facts of a host, for programs."""
    _add_facts(facts, found)
