"""`bookkeeper why topic`: why a topic's messages are kept, until when, and which are deleted.

The facts of `hedwig describe`, as an answer of `bookkeeper why`. No hub is asked: the settings are those of --conf, -D
and the environment, or the defaults. Bookies are asked whether they have the entries of the COPIES_MAX oldest ledgers
that subscriptions need.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bookkeeper.cli.why.explanation import Explanation
from bookkeeper.console.output import counted, readable_size
from bookkeeper.model import LedgerId
from hedwig.cli.region import region_of, region_settings, shown, topic_of

if TYPE_CHECKING:
    from pathlib import Path

    from bookkeeper.cli.why.copies import LedgerCopies
    from hedwig.admin.region import LedgerPart, Region, Subscribed
    from hedwig.admin.topic_retention import TopicRecords
    from hedwig.model import HubAddress, Topic

EXAMPLE = "why topic news --conf conf/hw_server.conf"
CONF = "a hub's conf file: its settings say what is kept"

LEDGERS_MAX = 20
"""Ledgers that are explained one by one; --json has all."""

COPIES_MAX = 10
"""Maximum number of ledgers that bookies are asked about."""

COPIES_AT_ONCE = 4

SUBSCRIPTIONS_MAX = 5
"""Subscriptions that are named: the slowest."""

HUBS_MAX = 3
"""Hubs that a command names. One is enough, as long as it runs: it names the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """TOPIC, --region."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--region", metavar="NAME", help="the region (default: as the hubs', else standalone)")


def explain(args: argparse.Namespace) -> Explanation:
    """Look the topic up and explain it.

    Raises ConfigurationError, MetadataUnavailable, InvalidArgument for an invalid region.
    """
    topic = topic_of(args.topic)
    config = region_settings(args)
    settings, timed = config.retention_of(topic), config.times(topic)

    async def ask(region: Region) -> tuple[TopicRecords, Sequence[HubAddress], Sequence[LedgerCopies]] | str:
        from bookkeeper.metadata.bad_records import BadRecords
        from hedwig.admin.topic_retention import look, retention_of

        if not (await region.metadata.look(topic)).exists:
            return region.paths.root
        records = await look(region, topic, retention_of(settings), timed=timed)
        hubs = sorted(await region.metadata.hubs(BadRecords()), key=str)
        return records, hubs, await _look_at_copies(region, checked_parts(records))

    with region_of(args) as access:
        found = access.run(ask)
    if isinstance(found, str):
        explanation = Explanation(f"topic {shown(topic)}", headline=f"does not exist: {found} has no such topic")
        explanation.facts = {"exists": False}
        return explanation
    records, hubs, copies = found
    return explain_topic(topic, records, args.conf, hubs, copies)


def checked_parts(found: TopicRecords) -> Sequence[LedgerPart]:
    """Return the oldest ledgers that subscriptions need, at most COPIES_MAX; of all ledgers if there is none."""
    positions = [each.record.consumed.local if each.is_readable else 0 for each in found.subscribed]
    consumed = min(positions, default=0)
    needed = [each for each in found.parts if each.last is None or each.last > consumed]
    return needed[:COPIES_MAX]


async def _look_at_copies(region: Region, parts: Sequence[LedgerPart]) -> list[LedgerCopies]:
    from bookkeeper.cli.why.copies import look_at_copies
    from hedwig.admin.region import in_order

    if not parts:
        return []
    available = await region.client.store.bookies.current()
    registered = {*available.writable, *available.read_only}

    async def one(part: LedgerPart) -> LedgerCopies:
        return await look_at_copies(region.client, LedgerId(part.ledger_id), registered)

    return [copies async for _, copies in in_order(parts, one, COPIES_AT_ONCE)]


def explain_topic(
    topic: Topic,
    found: TopicRecords,
    conf: Path | None,
    hubs: Sequence[HubAddress],
    copies: Sequence[LedgerCopies] = (),
) -> Explanation:
    """Return the answer.

    conf: the file with the hubs' settings; None: not given. hubs: those of the region. copies: of the checked ledgers.
    """
    from hedwig.cli.describe import document

    said = Explanation(f"topic {shown(topic)}")
    said.facts = {"exists": True, **document(topic, found, conf)}
    _say_kept(found, conf, said)
    unsubscribe = f"hedwig unsubscribe --hub {_names(hubs)} {shlex.quote(shown(topic))}"
    _say_subscriptions(unsubscribe, found.subscribed, said)
    _say_troubles(unsubscribe, found, said)
    _say_copies(found.parts, copies, said)
    if found.owner is None:
        said.working.append("no hub serves it, so nothing is deleted; the next request chooses a hub")
    else:
        said.working.append(f"served by {found.owner}, which checks periodically what may be deleted")
    return said


def _names(hubs: Sequence[HubAddress]) -> str:
    """Return some hubs of the region as the command line names them; a placeholder if none is registered."""
    return ",".join(f"{hub.host}:{hub.port}" for hub in hubs[:HUBS_MAX]) or "HOST:PORT"


def _say_kept(found: TopicRecords, conf: Path | None, said: Explanation) -> None:
    from hedwig.cli.retention_view import kept_text, retention_text, settings_text

    parts, retention = found.parts, found.retention
    first = parts[0].first if parts else None
    last = parts[-1].last if parts else 0
    said.holds.append(f"kept: {retention_text(retention, subscribed=bool(found.subscribed))}")
    said.holds.append(f"settings: {settings_text(conf)}")
    if first is None:
        said.headline = "nothing is kept: nothing was published, or all of it was deleted"
        return
    if first > 1:
        said.holds.append(f"gone: messages 1 to {first - 1} were deleted")
    if last is not None and last < first:
        said.headline = "no message is kept; the newest ledger is, as it records which ids were used"
    else:
        what = f"messages {first} to {'the end, which is not known' if last is None else last} are kept"
        why = (
            f"; the oldest ledger: {kept_text(retention.ledgers[0])}"
            if retention.ledgers
            else ", until when is not known"
        )
        said.headline = what + why
    for at, part in enumerate(parts[:LEDGERS_MAX]):
        words = kept_text(retention.ledgers[at]) if retention.ledgers else "not known"
        said.holds.append(f"ledger {part.ledger_id}, {_content(part)}: {words}")
    if len(parts) > LEDGERS_MAX:
        said.holds.append(f"{len(parts) - LEDGERS_MAX} newer ledgers; --json has all")
    said.next.append("hubs delete whole ledgers, oldest first, and never the newest")


def _content(part: LedgerPart) -> str:
    if part.last is None:
        return f"messages from {part.first} on"
    if part.last < part.first:
        return "empty"
    size = "" if part.size is None else f" ({readable_size(part.size)})"
    return f"messages {part.first} to {part.last}{size}"


def _say_subscriptions(unsubscribe: str, subscribed: Sequence[Subscribed], said: Explanation) -> None:
    behind = sorted((each for each in subscribed if each.is_readable), key=lambda each: each.record.consumed.local)
    for each in behind[:SUBSCRIPTIONS_MAX]:
        waiting = "how many wait is not known" if each.backlog is None else f"{counted(each.backlog, 'message')} left"
        said.holds.append(
            f"subscriber {shown(each.subscriber)} has consumed up to message {each.record.consumed.local}: {waiting}"
        )
    if len(behind) > SUBSCRIPTIONS_MAX:
        said.holds.append(f"{counted(len(behind) - SUBSCRIPTIONS_MAX, 'subscription')} further ahead")
    if behind and behind[0].backlog:
        name = shlex.quote(shown(behind[0].subscriber))
        said.next.append(f"what subscriber {shown(behind[0].subscriber)} has not consumed is kept for it")
        if behind[0].record.preferences.message_filter:
            # Only the hub knows the state, and this command sends no request to hubs.
            said.do.append(
                "if that subscriber receives nothing: its filter may take too long for the next message, and its hub "
                f"may have suspended it; `hedwig sub {unsubscribe.partition(' unsubscribe ')[2]} -s {name}` then "
                "reports why, and what to do"
            )
        said.do.append(f"if that subscriber is no longer needed: {unsubscribe} {name}")


def _say_troubles(unsubscribe: str, found: TopicRecords, said: Explanation) -> None:
    for each in found.subscribed:
        if not each.is_readable:
            name = shown(each.subscriber)
            said.trouble(f"the record of subscriber {name} cannot be read: it is refused, and what it may need is kept")
            said.errors.append(str(each.problem))
            said.do.append(f"restore that record, or end the subscription: {unsubscribe} {shlex.quote(name)}")
    for part in found.parts:
        if part.problem:
            said.errors.append(f"ledger {part.ledger_id}: {part.problem}")
            said.do.append(f"bookkeeper why ledger {part.ledger_id}")
            said.doubt()
    if found.retention.problem is not None:
        said.errors.append(f"until when messages are kept is not known: {found.retention.problem}")
        said.doubt()


def _say_copies(parts: Sequence[LedgerPart], copies: Sequence[LedgerCopies], said: Explanation) -> None:
    by_id = {part.ledger_id: part for part in parts}
    unread = {part.ledger_id for part in parts if part.problem}
    for each in copies:
        if each.ledger_id in unread:
            continue  # reported already
        part = by_id[each.ledger_id]
        if each.lost.gone.count or each.lost.away.count:
            is_first = part is parts[0]
            is_newest = part is parts[-1] or part.last is None
            _say_lost(part, each, is_first=is_first, is_newest=is_newest, said=said)
        elif each.silent or each.problem:
            why = each.problem or f"no answer from {', '.join(each.silent)}"
            said.holds.append(f"whether ledger {each.ledger_id} has all its entries is not known: {why}")
            said.do.append(f"bookkeeper why ledger {each.ledger_id}")
            said.doubt()
    checked = {each.ledger_id for each in copies}
    others = [part.ledger_id for part in parts if part.ledger_id not in checked]
    if others:
        which = f"ledger {others[0]}" if len(others) == 1 else f"{len(others)} ledgers ({others[0]} to {others[-1]})"
        said.holds.append(f"not asked of bookies: whether {which} lost entries; bookkeeper why ledger N asks about one")
    said.facts["copies_checked"] = sorted(checked)
    said.facts["lost_messages"] = {
        str(each.ledger_id): each.lost.gone.count + each.lost.away.count
        for each in copies
        if each.lost.gone.count or each.lost.away.count
    }


def _say_lost(part: LedgerPart, copies: LedgerCopies, *, is_first: bool, is_newest: bool, said: Explanation) -> None:
    number, lost = part.ledger_id, copies.lost
    for span, where in ((lost.gone, "no bookie of the ledger has them"), (lost.away, "their bookies are away")):
        if not span.count:
            continue
        first, last = part.first + span.first, part.first + span.last
        whole = span.count == last - first + 1
        which = f"messages {first} to {last}" if whole else f"{counted(span.count, 'message')} from {first} to {last}"
        said.trouble(f"{which}, in ledger {number}, cannot be read: {where}")
    said.next.append("hubs try again, and subscriptions that need these messages receive nothing until then")
    said.do.append(f"bookkeeper why ledger {number} names its bookies: bring back one that has these messages")
    if not lost.gone.count or is_newest:
        return  # a hub needs the newest ledger
    if not is_first:  # hubs skip a deleted ledger only if no older one exists
        said.do.append(
            f"if there is none: once subscriptions have consumed what precedes message {part.first}, and the older "
            f"ledgers are deleted, ledger {number} can be deleted: bookkeeper ledger delete {number} --force"
        )
    else:
        said.do.append(
            f"if there is none: bookkeeper ledger delete {number} --force; messages {part.first} to {part.last} are "
            "lost then, and subscriptions continue behind them and get this range as deleted when they attach"
        )
