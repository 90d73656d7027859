"""`bookkeeper why topic`: which messages are kept, why and until when, and which are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.cli.why.copies import LedgerCopies, look_at_copies
from bookkeeper.cli.why.explanation import Explanation
from bookkeeper.cli.why.lost import EntrySpan, LostEntries
from bookkeeper.errors import BookKeeperError, ConnectFailed, MetadataCorrupt, NoSuchLedgerOnBookie
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerId, LedgerMetadata, LedgerState
from hedwig.admin.region import LedgerPart, Subscribed
from hedwig.admin.topic_retention import TopicRecords, TopicRetention, topic_retention_of
from hedwig.cli.why_topic import COPIES_MAX, LEDGERS_MAX, SUBSCRIPTIONS_MAX, checked_parts, explain_topic
from hedwig.filters import with_expression
from hedwig.model import HubAddress, LocalId, MessageId, SubscriberId, Subscription, Topic
from hedwig.protocol.kept_ledgers import KeptLedger, Reason
from hedwig.protocol.retention import Retention

TOPIC = Topic(b"news")
HUB = HubAddress("10.0.0.1", 4080)
DATE_MS, DATE = 1_700_000_000_000, "2023-11-14T22:13:20+00:00"
DAY_MS = 86_400_000
RULES = ("named_ms", *(each.name for each in fields(Retention)))


def part(number: int, first: int, last: int | None, **more: Any) -> LedgerPart:
    return LedgerPart(
        number, LocalId(first), None if last is None else LocalId(last), more.pop("is_open", False), **more
    )


def subscribed(name: bytes, consumed: int, last: int = 30) -> Subscribed:
    record = Subscription(MessageId(LocalId(consumed)))
    return Subscribed(TOPIC, SubscriberId(name), record, LocalId(last))


PARTS = (part(7, 11, 20, size=1234), part(8, 21, 30, is_open=True))


def explained(
    *subscriptions: Subscribed,
    first: KeptLedger,
    parts: tuple[LedgerPart, ...] = PARTS,
    conf: Path | None = Path("hw.conf"),
    copies: Sequence[LedgerCopies] = (),
    **more: Any,
) -> Explanation:
    kept = () if "problem" in more else [first, *[KeptLedger(Reason.WRITTEN)] * (len(parts) - 1)][: len(parts)]
    rules = Retention(keep_unsubscribed_ms=7 * DAY_MS, keep_named_ms=more.get("named_ms"))
    readable = more.get("is_record_readable", True)
    retention = TopicRetention(rules, more.get("named_ms"), kept, more.get("problem"), is_record_readable=readable)
    records = TopicRecords(more.get("owner", HUB), parts, subscriptions, retention)
    hubs = more.get("hubs", (HUB, HubAddress("10.0.0.2", 4080, 9876)))
    return explain_topic(TOPIC, records, conf, hubs, copies)


def test_without_a_subscription_the_date_and_the_rule_are_told_and_what_is_gone() -> None:
    said = explained(first=KeptLedger(Reason.UNSUBSCRIBED, DATE_MS))
    assert said.healthy
    assert said.headline == f"messages 11 to 30 are kept; the oldest ledger: until {DATE} (no subscription)"
    assert said.holds[:4] == [
        "kept: 7 days without a subscription (keep_unsubscribed_ms)",
        "settings: hw.conf",
        "gone: messages 1 to 10 were deleted",
        f"ledger 7, messages 11 to 20 (1.234KB): until {DATE} (no subscription)",
    ]
    assert said.holds[4] == "ledger 8, messages 21 to 30: being written"
    assert said.working == [f"served by {HUB}, which checks periodically what may be deleted"]
    assert said.do == []
    assert said.facts["first_id"] == 11


def test_a_retention_that_a_publisher_named_is_told() -> None:
    said = explained(first=KeptLedger(Reason.NAMED, DATE_MS), named_ms=DAY_MS)
    assert said.headline.endswith(f"until {DATE} (set by a publisher)")
    assert said.holds[0].startswith("kept: 1 day (set by a publisher); 7 days without a subscription")


def test_the_subscriber_that_keeps_messages_is_named_with_what_ends_that() -> None:
    behind = [subscribed(b"you %d" % number, 12 + number) for number in range(SUBSCRIPTIONS_MAX + 1)]
    first = KeptLedger(Reason.SUBSCRIPTION, None, SubscriberId(b"you 0"), LocalId(12))
    said = explained(*reversed(behind), first=first)
    assert said.healthy
    assert said.headline == "messages 11 to 30 are kept; the oldest ledger: subscription you 0 at 12"
    assert "subscriber you 0 has consumed up to message 12: 18 messages left" in said.holds
    assert "1 subscription further ahead" in said.holds
    assert said.next[-1] == "what subscriber you 0 has not consumed is kept for it"
    assert said.do == [
        "if that subscriber is no longer needed: hedwig unsubscribe --hub 10.0.0.1:4080,10.0.0.2:4080 news 'you 0'"
    ]


def test_a_subscriber_with_a_filter_may_be_suspended_and_is_not_only_to_be_ended() -> None:
    record = Subscription(MessageId(LocalId(12)), with_expression("a LIKE '%b%'"))
    behind = Subscribed(TOPIC, SubscriberId(b"you"), record, LocalId(30))
    said = explained(behind, first=KeptLedger(Reason.SUBSCRIPTION, None, SubscriberId(b"you"), LocalId(12)))
    suspended, unsubscribe = said.do
    assert "filter may take too long" in suspended
    assert "`hedwig sub --hub 10.0.0.1:4080,10.0.0.2:4080 news -s you` then reports why" in suspended
    assert unsubscribe.startswith("if that subscriber is no longer needed: ")


def test_a_record_that_cannot_be_read_is_trouble_and_an_unknown_end_is_unknown() -> None:
    unreadable = Subscribed(
        TOPIC, SubscriberId(b"me"), Subscription(MessageId(LocalId(0))), None, "z: no record", is_readable=False
    )
    said = explained(unreadable, first=KeptLedger(Reason.WRITTEN), problem="subscriber b'me' cannot be read")
    assert said.healthy is False
    assert said.headline.startswith("the record of subscriber me cannot be read")
    assert "messages 11 to 30 are kept, until when is not known" in said.holds
    assert said.errors[0] == "z: no record"
    assert any("hedwig unsubscribe --hub 10.0.0.1:4080,10.0.0.2:4080 news me" in line for line in said.do)
    lost = (part(7, 11, 20, problem="ledger 7 does not exist"), PARTS[1])
    said = explained(first=KeptLedger(Reason.UNSUBSCRIBED), parts=lost)
    assert said.healthy is None
    assert said.errors == ["ledger 7: ledger 7 does not exist"]
    assert "bookkeeper why ledger 7" in said.do


def test_of_an_unreadable_retention_record_no_rule_is_shown() -> None:
    said = explained(first=KeptLedger(Reason.WRITTEN), problem="z: no record", is_record_readable=False)
    assert said.holds[0].startswith("kept: unknown: the topic's retention record cannot be read")
    assert not any("7 days" in line for line in said.lines())
    assert said.facts["retention"] == {"conf": "hw.conf", "problem": "z: no record"} | dict.fromkeys(RULES)


def test_an_unreadable_retention_record_makes_the_rules_unknown() -> None:
    async def refuse(topic: Topic) -> None:
        raise MetadataCorrupt("z: no record")

    region: Any = SimpleNamespace(metadata=SimpleNamespace(retention=refuse))
    asked = topic_retention_of(region, TOPIC, PARTS, (), Retention(keep_ms=DAY_MS))
    found = Deferred.fromCoroutine(asked).result
    assert (found.problem, found.is_record_readable) == ("z: no record", False)


def lost(number: int, first: int, last: int, **more: Any) -> LedgerCopies:
    return LedgerCopies(LedgerId(number), LostEntries(EntrySpan(last - first + 1, first, last)), **more)


def test_lost_messages_are_named_with_the_remedy() -> None:
    said = explained(first=KeptLedger(Reason.UNSUBSCRIBED, DATE_MS), copies=[lost(7, 2, 9)])
    assert said.healthy is False
    assert said.headline == "messages 13 to 20, in ledger 7, cannot be read: no bookie of the ledger has them"
    assert said.do == [
        "bookkeeper why ledger 7 names its bookies: bring back one that has these messages",
        "if there is none: bookkeeper ledger delete 7 --force; messages 11 to 20 are lost then, and subscriptions "
        "continue behind them and get this range as deleted when they attach",
    ]
    assert "not asked of bookies: whether ledger 8 lost entries; bookkeeper why ledger N asks about one" in said.holds
    assert (said.facts["copies_checked"], said.facts["lost_messages"]) == ([7], {"7": 8})


def test_the_newest_ledger_is_never_to_be_deleted() -> None:
    said = explained(first=KeptLedger(Reason.UNSUBSCRIBED, DATE_MS), copies=[lost(8, 0, 3)])
    assert said.headline == "messages 21 to 24, in ledger 8, cannot be read: no bookie of the ledger has them"
    assert not any("ledger delete" in line for line in said.do)


def test_a_lost_ledger_behind_others_is_deleted_only_after_these() -> None:
    parts = (part(6, 1, 10), *PARTS)
    said = explained(first=KeptLedger(Reason.UNSUBSCRIBED, DATE_MS), parts=parts, copies=[lost(7, 0, 9)])
    assert said.do[1].startswith("if there is none: once subscriptions have consumed what precedes message 11")
    assert not any(line.startswith("if there is none: bookkeeper ledger delete") for line in said.do)


def test_copies_that_no_bookie_answered_for_are_unknown_and_not_lost() -> None:
    silent = LedgerCopies(LedgerId(7), LostEntries(), (BookieId("b1:1"),))
    said = explained(first=KeptLedger(Reason.UNSUBSCRIBED, DATE_MS), copies=[silent])
    assert said.healthy is None
    assert "whether ledger 7 has all its entries is not known: no answer from b1:1" in said.holds
    assert said.do == ["bookkeeper why ledger 7"]
    good = LedgerCopies(LedgerId(7), LostEntries())
    assert explained(first=KeptLedger(Reason.UNSUBSCRIBED, DATE_MS), copies=[good]).healthy


def test_bookies_are_asked_about_the_oldest_ledgers_that_subscriptions_need() -> None:
    parts = tuple(part(at, 10 * at + 1, 10 * at + 10) for at in range(COPIES_MAX + 5))

    def checked(*subscriptions: Subscribed) -> list[int]:
        records = TopicRecords(HUB, parts, subscriptions, TopicRetention(Retention(), None))
        return [each.ledger_id for each in checked_parts(records)]

    assert checked() == list(range(COPIES_MAX))
    assert checked(subscribed(b"me", 30), subscribed(b"you", 29)) == list(range(2, COPIES_MAX + 2))
    assert checked(subscribed(b"me", 30)) == list(range(3, COPIES_MAX + 3))


def test_what_bookies_list_of_a_ledger_says_what_is_lost() -> None:
    bookies = tuple(BookieId(f"b{number}:1") for number in range(3))
    answers: dict[str, list[range] | BookKeeperError] = {
        bookies[0]: NoSuchLedgerOnBookie("none"),
        bookies[1]: [range(4)],
        bookies[2]: [],
    }
    fragment = Fragment(EntryId(0), bookies)

    async def metadata(ledger_id: int) -> LedgerMetadata:
        return LedgerMetadata(3, 3, 2, (fragment,), LedgerState.CLOSED, EntryId(9), 100)

    async def list_entries(ledger_id: int, bookie_id: str) -> list[range]:
        found = answers[bookie_id]
        if isinstance(found, BookKeeperError):
            raise found
        return found

    def look(*registered: BookieId) -> LedgerCopies:
        client: Any = SimpleNamespace(metadata=metadata, list_entries=list_entries)
        return Deferred.fromCoroutine(look_at_copies(client, LedgerId(7), registered)).result  # type: ignore[return-value]

    assert look(*bookies).lost.gone == EntrySpan(6, 4, 9)
    assert look(*bookies[1:]).lost.away == EntrySpan(6, 4, 9)
    answers[bookies[2]] = ConnectFailed("no answer")
    found = look(*bookies)
    assert (found.lost.gone.count, found.lost.away.count, found.silent) == (0, 0, (bookies[2],))


def test_a_topic_without_messages_says_so_and_default_settings_are_named() -> None:
    said = explained(first=KeptLedger(Reason.WRITTEN), parts=(), conf=None, owner=None)
    assert said.headline == "nothing is kept: nothing was published, or all of it was deleted"
    assert said.working == ["no hub serves it, so nothing is deleted; the next request chooses a hub"]
    assert said.holds[1].startswith("settings: defaults")
    said = explained(first=KeptLedger(Reason.NEWEST), parts=(part(9, 31, 30),))
    assert said.headline == "no message is kept; the newest ledger is, as it records which ids were used"


def test_of_many_ledgers_the_oldest_are_told_one_by_one() -> None:
    parts = tuple(part(at, 10 * at + 1, 10 * at + 10) for at in range(LEDGERS_MAX + 3))
    said = explained(first=KeptLedger(Reason.UNSUBSCRIBED, DATE_MS), parts=parts)
    assert sum(line.startswith("ledger ") for line in said.holds) == LEDGERS_MAX
    assert "3 newer ledgers; --json has all" in said.holds


def test_a_command_names_the_hubs_of_the_region_that_was_looked_at() -> None:
    first = KeptLedger(Reason.SUBSCRIPTION, None, SubscriberId(b"me"), LocalId(12))
    hubs = [HubAddress(f"far-{number}", 4080, None) for number in range(9)]
    said = explained(subscribed(b"me", 12), first=first, hubs=hubs)
    assert said.do == [
        "if that subscriber is no longer needed: hedwig unsubscribe --hub far-0:4080,far-1:4080,far-2:4080 news me"
    ]
    said = explained(subscribed(b"me", 12), first=first, hubs=[])
    assert said.do[0].endswith("hedwig unsubscribe --hub HOST:PORT news me")
