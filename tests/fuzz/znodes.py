"""Decoders of data that other processes store in the metadata: ledgers, bookies, auto-recovery, hubs, journals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bookkeeper.metadata import uri
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.metadata.bookies.service_info import format_service_info, parse_service_info
from bookkeeper.metadata.cluster import history_format, layout
from bookkeeper.metadata.cluster.history_format import Decision, GeneratedIds, Raise, Report, Verdict
from bookkeeper.metadata.ledgers import paths
from bookkeeper.metadata.ledgers.codec import format_ledger, parse_ledger
from bookkeeper.metadata.underreplication import damaged_copies_format, recovery_process_format
from bookkeeper.metadata.underreplication import format as underreplication_format
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.model import (
    BookieId,
    BookieServiceInfo,
    DigestType,
    Endpoint,
    EntryId,
    Fragment,
    LedgerMetadata,
    LedgerState,
)
from hedwig.model import (
    Gone,
    HubAddress,
    HubInfo,
    LedgerRange,
    LocalId,
    MessageId,
    NamedKeep,
    Preferences,
    SharedSubscription,
    Subscription,
)
from hedwig.protocol.acknowledgements import Acknowledgements, Redelivery
from hedwig.protocol.producers import Origin, Producers
from hedwig.wire import records
from journalmgr import segment
from journalmgr.group import address_in, election_data
from journalmgr.ledger.images import ledger_in
from journalmgr.ledger.upgrade import BeforeUpgrade, parse_before_upgrade
from journalmgr.model import NamespaceInfo, Segment, TxId
from tests.fuzz.decoder import Decoder, text

PATH = "/ledgers/00/0000/L0001"
BOOKIES = tuple(BookieId(f"10.0.0.{number}:3181") for number in (1, 2, 3))
IDS = GeneratedIds(7, 9)
NAMESPACE = NamespaceInfo(-17, "CID-1", "BP-1", 3)
JSON_TOKENS = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1e999", b"NaN", b"-1", b'"\\ud800"', b"\\")
JSON_OPENERS = (b"[", b'{"a":', b'[{"a":')
TEXT_TOKENS = (
    b"{",
    b"}",
    b'"',
    b":",
    b"\n",
    b"\\377",
    b"\\u",
    b"\\x",
    b"-1",
    b"<",
    b">",
    b"#",
    b"[",
    b"]",
    b"inf",
    b"1.5",
)


def _ledgers() -> Sequence[bytes]:
    first, second = Fragment(EntryId(0), BOOKIES), Fragment(EntryId(100), BOOKIES[::-1])
    a = LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        fragments=(first,),
        digest_type=DigestType.CRC32C,
        password=b"\x70\x77\x01\x22\xff",
        custom={"application": b"x"},
        ctime_ms=1700000000000,
        creator_token=42,
    )
    b = replace(a, fragments=(first, second), state=LedgerState.IN_RECOVERY, custom={}, ctime_ms=None)
    c = replace(b, state=LedgerState.CLOSED, last_entry_id=EntryId(149), length=1005)
    old = replace(c, ack_quorum=3, digest_type=None, password=None, creator_token=None, format_version=1)
    return [format_ledger(each) for each in (a, b, c, *(replace(each, format_version=2) for each in (a, b, c)), old)]


def _cookies() -> Sequence[bytes]:
    whole = Cookie(BOOKIES[0], ("/j", "/k"), ("/a", "/b"), "instance", ("/i",))
    return [whole.format(), replace(whole, layout_version=3, instance_id=None, index_dirs=None).format()]


def _registrations() -> Sequence[bytes]:
    endpoint = Endpoint("bookie", "10.0.0.1", 3181, "bookie-rpc", ("a",), ("e",))
    return [format_service_info(BookieServiceInfo((endpoint,), {"autoRecoveryEnabled": "true"}))]


def _process(data: bytes) -> object:
    return recovery_process_format.parse_process(data, PATH, 7)


def _names(data: bytes) -> object:
    name = text(data)
    return (
        paths.possible_ledger_id(name),
        paths.is_any_parent_name(name),
        paths.is_directory_name(name),
        paths.is_leaf_name(name),
        paths.is_special_name(name),
        underreplication_format.ledger_of_leaf(name),
        underreplication_format.vote_number(name),
        underreplication_format.is_mark_directory(name),
        segment.segment_named(name),
    )


def _subscriptions() -> Sequence[bytes]:
    consumed = MessageId(LocalId(70), ((b"region", 9),))
    acknowledged = _acknowledgements()[0]
    return [
        records.encode_subscription(Subscription(consumed, Preferences(7, "a = 1", 3, {"k": b"v"}))),
        records.encode_subscription(Subscription(consumed, Preferences(), gone=Gone(LocalId(3), LocalId(9)))),
        records.encode_subscription(SharedSubscription(consumed, Preferences(), acknowledged)),
        b"",
    ]


def _acknowledgements() -> Sequence[bytes]:
    found = Acknowledgements(LocalId(5), Redelivery())
    for number in range(20):
        taken = found.take(LocalId(100))
        if taken is not None:
            found.on_delivered(taken, float(number))
    found.acknowledge(LocalId(8), LocalId(11))
    found.acknowledge(LocalId(15), LocalId(15))
    return [found.encode()]


def _producers() -> Sequence[bytes]:
    found: Producers[object] = Producers()
    for number in range(1, 6):
        found.on_stored(LocalId(number), Origin(b"producer-%d" % (number % 2), number * 3))
    return [found.encode()]


def _producers_decode(data: bytes) -> object:
    found: Producers[object] = Producers.decode(data)
    assert found.encode(), "what was read can be written"
    return None


def _acknowledgements_decode(data: bytes) -> object:
    found = Acknowledgements.decode(data, Redelivery())
    return found.encode(), found.floor, found.last_done


def _ranges() -> Sequence[bytes]:
    last = MessageId(LocalId(70), ((b"region", 9),))
    return [records.encode_ranges([LedgerRange(4, LocalId(1), last), LedgerRange(9, LocalId(71), None)])]


def _segments() -> Sequence[bytes]:
    return [
        segment.print_segment(Segment(TxId(1), TxId(9), -63, 7)),
        segment.print_segment(Segment(TxId(1), None, -63, 7)),
        b"-60;7;1;9",
        b"-60;7;1",
    ]


def _znode(
    name: str, covers: str, decode: object, *seeds: bytes, result: object = object, json: bool = False
) -> Decoder:
    """Return a decoder that takes data and path."""
    return Decoder(
        name=name,
        covers=(covers,),
        decode=lambda data: decode(data, PATH),  # type: ignore[operator]
        seeds=lambda: seeds,
        result=result,
        tokens=JSON_TOKENS if json else TEXT_TOKENS,
        openers=JSON_OPENERS if json else (b"a {", b"[", b"<"),
    )


_MARKS, _HISTORY = "bookkeeper.metadata.underreplication.format", "bookkeeper.metadata.cluster.history_format"

TABLE = (
    Decoder(
        name="ledger-metadata",
        covers=("bookkeeper.metadata.ledgers.codec:parse_ledger", "bookkeeper.metadata.textproto:parse_text"),
        decode=lambda data: parse_ledger(data, PATH),
        seeds=_ledgers,
        tokens=TEXT_TOKENS,
        openers=(b"segment {", b"<"),
    ),
    Decoder(
        name="cookie",
        covers=("bookkeeper.metadata.bookies.cookie:parse_cookie",),
        decode=lambda data: parse_cookie(data, PATH),
        seeds=_cookies,
        tokens=TEXT_TOKENS,
    ),
    Decoder(
        name="registration",
        covers=("bookkeeper.metadata.bookies.service_info:parse_service_info",),
        decode=lambda data: parse_service_info(data, BOOKIES[0], PATH),
        seeds=_registrations,
    ),
    _znode(
        "layout",
        "bookkeeper.metadata.cluster.layout:parse_layout",
        layout.parse_layout,
        layout.Layout(layout.DEFAULT_KIND).format(),
        b"1\nflat:1",
    ),
    _znode(
        "underreplication-layout",
        f"{_MARKS}:check_layout",
        underreplication_format.check_layout,
        underreplication_format.format_layout(),
    ),
    _znode(
        "mark",
        f"{_MARKS}:parse_mark",
        underreplication_format.parse_mark,
        underreplication_format.format_mark(BOOKIES, 17),
        result=tuple[tuple[BookieId, ...], int | None],
    ),
    _znode(
        "lock",
        f"{_MARKS}:parse_lock",
        underreplication_format.parse_lock,
        underreplication_format.format_lock("host"),
        result=str,
    ),
    _znode(
        "vote",
        f"{_MARKS}:parse_vote",
        underreplication_format.parse_vote,
        underreplication_format.format_vote(BOOKIES[0]),
        result=BookieId,
    ),
    _znode("recovery-delay", f"{_MARKS}:parse_delay", underreplication_format.parse_delay, b"17", b"-1", result=int),
    *(
        Decoder(
            name=kind.value,
            covers=(f"{_MARKS}:parse_check_time",),
            decode=lambda data, kind=kind: underreplication_format.parse_check_time(kind, data, PATH),  # type: ignore[misc]
            seeds=lambda kind=kind: [underreplication_format.format_check_time(kind, 1700000000000)],  # type: ignore[misc]
            result=int | None,
        )
        for kind in underreplication_format.CheckKind
    ),
    Decoder(
        name="recovery-process",
        covers=("bookkeeper.metadata.underreplication.recovery_process_format:parse_process",),
        decode=_process,
        seeds=lambda: [
            recovery_process_format.format_process(RecoveryProcess("h", 7, 17, BOOKIES[0], ("10.0.0.1", 8080), 7)),
            recovery_process_format.format_process(RecoveryProcess("h", 7, 17, BOOKIES[0], None, 7)),
        ],
        tokens=JSON_TOKENS,
        openers=JSON_OPENERS,
    ),
    _znode(
        "bad-copies",
        "bookkeeper.metadata.underreplication.damaged_copies_format:parse_bad_copies",
        damaged_copies_format.parse_bad_copies,
        damaged_copies_format.format_bad_copies([BadRange(BOOKIES[0], EntryId(1), EntryId(5), "why", 17)]),
    ),
    _znode(
        "history",
        f"{_HISTORY}:parse_raises",
        history_format.parse_raises,
        history_format.format_raises([Raise(1, IDS), Raise(4, IDS)]),
        json=True,
    ),
    _znode(
        "history-note",
        f"{_HISTORY}:parse_note",
        lambda data, path: history_format.parse_note(data, path, 3),
        history_format.format_note(4, Report(1, "finding", IDS, 5, 6, 2, ((1, 2), (5, 5)), 1, ((5, 5),))),
        json=True,
    ),
    _znode(
        "history-decision",
        f"{_HISTORY}:parse_decision",
        lambda data, path: history_format.parse_decision(data, path, 3, 4),
        history_format.format_decision(Decision(Verdict.DISCARD, ((1, 2), (5, 5)))),
        json=True,
    ),
    Decoder(
        name="metadata-uri",
        covers=("bookkeeper.metadata.uri:parse_uri",),
        decode=lambda data: uri.parse_uri(text(data)),
        seeds=lambda: [b"zk+hierarchical://a:2181;[::1]:2182/ledgers", b"zk://host/a/b"],
        tokens=(b"zk", b"://", b"+null", b";", b",", b":", b"[", b"]", b"/", b"..", b"%00"),
    ),
    Decoder(
        name="znode-names",
        covers=(
            "bookkeeper.metadata.ledgers.paths:possible_ledger_id",
            f"{_MARKS}:ledger_of_leaf",
            "journalmgr.segment:segment_named",
        ),
        decode=_names,
        seeds=lambda: [
            b"/00/0000/L0001",
            b"urL0000000001",
            b"V_0000000007",
            b"L0000000001",
            b"edits_000000000000000001_000000000000000009",
            b"inprogress_7f",
            "/٠٠/²".encode(),
        ],
        refusals=(),
    ),
    # --- hubs
    Decoder(
        name="hub-address",
        covers=("hedwig.wire.records:parse_address",),
        decode=lambda data: records.parse_address(text(data)),
        seeds=lambda: [b"10.0.0.1:4080:9876", b"host:4080"],
        refusals=(ValueError,),
    ),
    _znode(
        "hub-owner",
        "hedwig.wire.records:decode_hub_info",
        records.decode_hub_info,
        records.encode_hub_info(HubInfo(HubAddress("10.0.0.1", 4080, 9876), 27)),
        b"10.0.0.1:4080:9876",
    ),
    _znode(
        "hub-load", "hedwig.wire.records:decode_load", records.decode_load, records.encode_load(3), b"17", result=int
    ),
    _znode(
        "hub-layout",
        "hedwig.wire.records:decode_layout",
        records.decode_layout,
        records.encode_layout(),
        result=tuple[str, int],
    ),
    Decoder(
        name="topic-ledgers",
        covers=("hedwig.wire.records:decode_ranges",),
        decode=lambda data: records.decode_ranges(data, PATH),
        seeds=_ranges,
    ),
    _znode(
        "topic-retention",
        "hedwig.wire.records:decode_retention",
        records.decode_retention,
        records.encode_retention(NamedKeep(604800000, LocalId(17))),
        records.encode_retention(NamedKeep(5, LocalId(0))),
    ),
    Decoder(
        name="subscription",
        covers=("hedwig.wire.records:decode_subscription", "hedwig.wire.records:decode_gone"),
        decode=lambda data: records.decode_subscription(data, PATH),
        seeds=_subscriptions,
    ),
    Decoder(
        name="acknowledgements",
        covers=("hedwig.protocol.acknowledgements:Acknowledgements.decode",),
        decode=_acknowledgements_decode,
        seeds=_acknowledgements,
        result=tuple[bytes, int, int],
    ),
    Decoder(
        name="producers",
        covers=("hedwig.protocol.producers:Producers.decode",),
        decode=_producers_decode,
        seeds=_producers,
    ),
    # --- journals
    Decoder(
        name="journal-segment",
        covers=("journalmgr.segment:parse_segment",),
        decode=lambda data: segment.parse_segment(data, "/journal/ledgers/edits_1_9"),
        seeds=_segments,
        tokens=TEXT_TOKENS,
    ),
    _znode(
        "journal-version",
        "journalmgr.segment:parse_version",
        segment.parse_version,
        segment.print_version(NAMESPACE),
        b"-1",
    ),
    _znode(
        "journal-max-txid",
        "journalmgr.segment:parse_max_txid",
        segment.parse_max_txid,
        segment.print_max_txid(7),
        b"17",
        result=int,
    ),
    _znode(
        "journal-current",
        "journalmgr.segment:parse_current",
        segment.parse_current,
        segment.print_current(segment.CurrentSegment("/journal/ledgers/inprogress_7", "host/10.0.0.1")),
        b"-1,host/10.0.0.1,/journal/ledgers/inprogress_7",
    ),
    _znode(
        "journal-upgrade",
        "journalmgr.ledger.upgrade:parse_before_upgrade",
        parse_before_upgrade,
        BeforeUpgrade(TxId(7), NAMESPACE).format(),
    ),
    Decoder(
        name="election",
        covers=("journalmgr.group:address_in",),
        decode=address_in,
        seeds=lambda: [election_data("10.0.0.1:8020")],
        refusals=(),
        result=str,
        tokens=JSON_TOKENS,
        openers=JSON_OPENERS,
    ),
    Decoder(
        name="journal-image",
        covers=("journalmgr.ledger.images:ledger_in",),
        decode=ledger_in,
        seeds=lambda: [b'{"ledgerId": 7}'],
        refusals=(),
        result=int | None,
        tokens=JSON_TOKENS,
        openers=JSON_OPENERS,
    ),
)
