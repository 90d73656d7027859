"""`bookkeeper why topic`: why a topic's messages are kept, until when, and which are deleted.

The facts of `hedwig describe`, as an answer of `bookkeeper why`. No hub is asked: the settings are those of --conf, -D
and the environment, or the defaults.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bookkeeper.cli.output import counted, readable_size
from bookkeeper.cli.why.explanation import Explanation
from hedwig.cli.region import region_of, region_settings, shown, topic_of

if TYPE_CHECKING:
    from pathlib import Path

    from hedwig.admin.region import LedgerPart, Region, Subscribed
    from hedwig.admin.topic_retention import TopicRecords
    from hedwig.model import HubAddress, Topic

EXAMPLE = "why topic news --conf conf/hw_server.conf"
CONF = "a hub's conf file: its settings say what is kept"

LEDGERS_MAX = 20
"""Ledgers that are explained one by one; --json has all."""

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

    async def ask(region: Region) -> tuple[TopicRecords, Sequence[HubAddress]] | str:
        from bookkeeper.metadata.bad_records import BadRecords
        from hedwig.admin.topic_retention import look, retention_of

        if not (await region.metadata.look(topic)).exists:
            return region.paths.root
        found = await look(region, topic, retention_of(settings), timed=timed)
        return found, sorted(await region.metadata.hubs(BadRecords()), key=str)

    with region_of(args) as access:
        found = access.run(ask)
    if isinstance(found, str):
        explanation = Explanation(f"topic {shown(topic)}", headline=f"does not exist: {found} has no such topic")
        explanation.facts = {"exists": False}
        return explanation
    records, hubs = found
    return explain_topic(topic, records, args.conf, hubs)


def explain_topic(topic: Topic, found: TopicRecords, conf: Path | None, hubs: Sequence[HubAddress]) -> Explanation:
    """Return the answer. conf: the file with the hubs' settings; None: not given. hubs: those of the region."""
    from hedwig.cli.describe import document

    said = Explanation(f"topic {shown(topic)}")
    said.facts = {"exists": True, **document(topic, found, conf)}
    _say_kept(found, conf, said)
    unsubscribe = f"hedwig unsubscribe --hub {_names(hubs)} {shlex.quote(shown(topic))}"
    _say_subscriptions(unsubscribe, found.subscribed, said)
    _say_troubles(unsubscribe, found, said)
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
