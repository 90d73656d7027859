"""Decoders of texts: settings, filter expressions, names, bodies of HTTP requests, exports, records of sinks."""

from __future__ import annotations

from collections.abc import Callable

from bookkeeper.admin.access.tokens import Role, parse_tokens
from bookkeeper.admin.http.routing import HttpRequest, Refused
from bookkeeper.client.bookies.placement import parse_topology
from bookkeeper.config import ConfText, load_client
from bookkeeper.config.load import load_server
from bookkeeper.spark.exports import manifest as ledger_manifest
from bookkeeper.spark.sink import commit_format as sink
from bookkeeper.spark.sink.purpose import parse_purpose
from hedwig.client_config import parse_server
from hedwig.config.load import load_hub
from hedwig.errors import InvalidFilter, MalformedRequest
from hedwig.model import Preferences, SubscriberId, Topic
from hedwig.names import subscriber_part, topic_part
from hedwig.protocol.expressions import parse_expression
from hedwig.protocol.options import ack_options, check_options, granted
from hedwig.spark.exports import manifest as topic_manifest
from hedwig.wire.messages import Message
from journalmgr.config import load_journal
from journalmgr.hadoop_xml import parse_hadoop_xml
from tests.fuzz.decoder import Decoder, text
from tests.fuzz.znodes import JSON_OPENERS, JSON_TOKENS, PATH

_SETTINGS = (b"=", b"\\", b"\\u", b"\n", b"#", b"true", b"-1", b"1e9", b",", b"zk://a/b", b"10%", b"[]", b"{}")
MESSAGE = Message(b"body", {"a": b"x" * 200, "n": b"17", "b": b"\xff", "big": b"9" * 60}, "type")


def _settings(load: Callable[..., object]) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        load(ConfText("file.conf", text(data)), {}, {})
        return None

    return decode


def _hadoop_settings(data: bytes) -> object:
    parse_hadoop_xml(text(data))
    load_journal(ConfText("hdfs-site.xml", text(data)), {}, {})
    return None


def _expression(data: bytes) -> object:
    found = parse_expression(text(data))
    return found.evaluate(MESSAGE), found.matches(MESSAGE)


def _options(data: bytes) -> object:
    name, _, value = data.partition(b"=")
    preferences = Preferences(options={text(name): value})
    granted(preferences)
    check_options(preferences)
    return ack_options(preferences)


def _hub_names(data: bytes) -> object:
    topic, _, subscriber = data.partition(b" ")
    return topic_part(Topic(topic)), subscriber_part(SubscriberId(subscriber))


def _http(data: bytes) -> object:
    value, _, body = data.partition(b"\n")
    request = HttpRequest("PUT", "/api/v1/x", {"ledger_id": text(value), "flag": text(value)}, body)
    request.whole_number("ledger_id")
    request.object("{}")
    return request.flag("flag", default=True)


def _purpose(data: bytes) -> object:
    lines = dict(line.partition(b"=")[::2] for line in data.split(b"\n"))
    return parse_purpose({text(name): value for name, value in lines.items()})


def _xml(**properties: str) -> bytes:
    inner = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<configuration>{inner}</configuration>'.encode()


def _exported() -> bytes:
    ledger = ledger_manifest.ExportedLedger(
        *(7, ledger_manifest.Status.COMPLETE, "", "2026-11-28", "CLOSED", 3, 2, 2, "CRC32C", 17, {"k": b"v"}),
        *(5, 50, 5, 50, "digest"),
    )
    return ledger_manifest.format_ledger(ledger).encode()


def _manifest() -> ledger_manifest.Manifest:
    part = ledger_manifest.Part(1, "digest", 5, 50, {ledger_manifest.Status.COMPLETE: 1})
    return ledger_manifest.Manifest("id", 17, "instance", 1000, part, ledger_manifest.Files(1, 60, "digest"))


def _topic_manifest() -> topic_manifest.TopicManifest:
    return topic_manifest.TopicManifest("id", 17, "region", 1000, 1, "digest", 5, 50, ledger_manifest.Files(1, 60, "d"))


def _json(name: str, covers: str, decode: Callable[[bytes], object], *seeds: bytes) -> Decoder:
    return Decoder(
        name=name,
        covers=(covers,),
        decode=decode,
        seeds=lambda: seeds,
        tokens=JSON_TOKENS,
        openers=JSON_OPENERS,
    )


_SINK, _EXPORT = "bookkeeper.spark.sink.commit_format", "bookkeeper.spark.exports.manifest"

TABLE = (
    Decoder(
        name="bookie-settings",
        covers=("bookkeeper.config.load:load_server", "bookkeeper.config.properties:parse_properties"),
        decode=_settings(load_server),
        seeds=lambda: [
            b"zkServers=a:2181\njournalDirectories=/j\nledgerDirectories=/a,/b\ndiskUsageThreshold=0.9\n",
            b"bookiePort=3181\nserverTcpNoDelay=true\nauthorizedRoles=\ntlsEnabledProtocols=TLSv1.2\\\n  ,TLSv1.3\n",
        ],
        tokens=_SETTINGS,
        suite_inputs=200,
    ),
    Decoder(
        name="client-settings",
        covers=("bookkeeper.config.load:load_client",),
        decode=_settings(load_client),
        seeds=lambda: [b"metadataServiceUri=zk://a/ledgers\nreadTimeout=7\nnumChannelsPerBookie=2\n"],
        tokens=_SETTINGS,
        suite_inputs=200,
    ),
    Decoder(
        name="hub-settings",
        covers=("hedwig.config.load:load_hub", "hedwig.wire.records:parse_address"),
        decode=_settings(load_hub),
        seeds=lambda: [
            b'server_port=4080\nregion=a\nregions=h:4080:9876\nretention_by_topic={"a": {"keep_ms": 7}}\n',
            b"max_message_size=4096\nzk_host=a:2181\n",
        ],
        tokens=(*_SETTINGS, *JSON_TOKENS),
        openers=JSON_OPENERS,
        suite_inputs=1000,
    ),
    Decoder(
        name="journal-settings",
        covers=("journalmgr.config:load_journal",),
        decode=_settings(load_journal),
        seeds=lambda: [b"dfs.namenode.shared.edits.dir=bookkeeper://a/b\ndfs.ha.tail-edits.period=10m\n"],
        tokens=_SETTINGS,
        suite_inputs=1000,
    ),
    Decoder(
        name="hadoop-settings",
        covers=("journalmgr.hadoop_xml:parse_hadoop_xml",),
        decode=_hadoop_settings,
        seeds=lambda: [
            _xml(**{"dfs.namenode.shared.edits.dir": "file://${a}/x", "a": "${b}", "b": "c"}),
            _xml(a="${a}${b}", b="${a}"),
        ],
        tokens=(
            b"${",
            b"}",
            b"${a}",
            b"<property>",
            b"</property>",
            b"<name>",
            b"<value>",
            b"&a;",
            b'encoding="WTF-8"',
        ),
        openers=(b"<a>", b"${a}", b"${"),
        suite_inputs=4000,
    ),
    Decoder(
        name="topology",
        covers=("bookkeeper.client.bookies.placement:parse_topology",),
        decode=lambda data: parse_topology(text(data), "file"),
        seeds=lambda: [b"# racks\n10.0.0.1:3181 /rack-1\nhost /rack-2\n"],
        result=dict[str, str],
    ),
    Decoder(
        name="hub-server",
        covers=("hedwig.client_config:parse_server",),
        decode=lambda data: parse_server(text(data)),
        seeds=lambda: [b"host:4080:9876", b"host", b"host:4080:-1"],
        refusals=(ValueError,),
    ),
    Decoder(
        name="filter-expression",
        covers=("hedwig.protocol.expressions:parse_expression",),
        decode=_expression,
        seeds=lambda: [
            b"a = 'b' AND (n BETWEEN 1 AND 20 OR NOT b IS NULL) AND big > 7",
            b"a LIKE '%x__%' ESCAPE '!' OR a IN ('a', 'b') OR EXISTS \"n\" OR a STARTS WITH 'x'",
            b"$type = 'type' AND $size < 1e3 AND b = X'ff' AND n <> -.5",
        ],
        refusals=(InvalidFilter,),
        tokens=(
            b"AND ",
            b"OR ",
            b"NOT ",
            b"(",
            b")",
            b"LIKE '%_%_%'",
            b"'",
            b'"',
            b"IN (",
            b"$size",
            b"BETWEEN 1 AND ",
            b"_%",
        ),
        openers=(b"(", b"NOT ", b"NOT (", b"a=1 AND "),
        result=tuple[bool | None, bool],
    ),
    Decoder(
        name="subscription-options",
        covers=("hedwig.protocol.options:check_options", "hedwig.protocol.options:granted"),
        decode=_options,
        seeds=lambda: [
            b"hw.replay=id:17;again",
            b"hw.ack=individual",
            b"hw.ack.timeout=7",
            b"k=v",
            b"hw.replay=time:5",
        ],
        refusals=(MalformedRequest,),
    ),
    Decoder(
        name="hub-names",
        covers=("hedwig.names:topic_part", "hedwig.names:subscriber_part"),
        decode=_hub_names,
        seeds=lambda: [b"news/today reader-1", "\u00e4/b \u00e4".encode()],
        refusals=(MalformedRequest,),
        tokens=(b"/", b".", b"..", b"hub", b"ledgers", b"//"),
        result=tuple[str, str],
    ),
    Decoder(
        name="http-tokens",
        covers=("bookkeeper.admin.access.tokens:parse_tokens",),
        decode=lambda data: parse_tokens(text(data)),
        seeds=lambda: [b"# for Prometheus\n\n  read   0123456789abcdef\noperate\tfedcba9876543210\n"],
        refusals=(ValueError,),
        result=dict[str, Role],
    ),
    Decoder(
        name="http-requests",
        covers=(
            "bookkeeper.admin.http.routing:HttpRequest.object",
            "bookkeeper.admin.http.routing:HttpRequest.whole_number",
        ),
        decode=_http,
        seeds=lambda: [b'1\n{"a": 1}', b'1\n{"a": [1, 2, {"b": null}]}'],
        refusals=(Refused,),
        tokens=JSON_TOKENS,
        openers=JSON_OPENERS,
        result=bool,
    ),
    _json("sink-mark", f"{_SINK}:parse_mark", lambda data: sink.parse_mark(data, PATH), sink.format_mark(17)),
    _json(
        "sink-head",
        f"{_SINK}:parse_head",
        lambda data: sink.parse_head(data, PATH),
        sink.format_head(sink.Head("instance", 7, ("w",), "query", "write", 2)),
    ),
    _json(
        "sink-record",
        f"{_SINK}:parse_record",
        lambda data: sink.parse_record(data, PATH),
        sink.format_record(sink.Commit(7, "write", (sink.WrittenLedger(1, 2, 3, 4, 5, 6),))),
    ),
    Decoder(
        name="sink-purpose",
        covers=("bookkeeper.spark.sink.purpose:parse_purpose",),
        decode=_purpose,
        seeds=lambda: [
            b"spark.job=j\nspark.write=w\nspark.batch=7\nspark.partition=1\nspark.attempt=0\nspark.commits=/c\nspark.head=9"
        ],
        refusals=(),
    ),
    _json(
        "export-ledger", f"{_EXPORT}:parse_ledger", lambda data: ledger_manifest.parse_ledger(text(data)), _exported()
    ),
    _json(
        "export-manifest",
        f"{_EXPORT}:parse_manifest",
        lambda data: ledger_manifest.parse_manifest(text(data)),
        ledger_manifest.format_manifest(_manifest()).encode(),
    ),
    _json(
        "export-topic",
        "hedwig.spark.exports.manifest:parse_topic",
        lambda data: topic_manifest.parse_topic(text(data)),
        topic_manifest.format_topic(topic_manifest.ExportedTopic("t", 1, 5, 5, 50, "digest")).encode(),
    ),
    _json(
        "export-topic-manifest",
        "hedwig.spark.exports.manifest:parse_manifest",
        lambda data: topic_manifest.parse_manifest(text(data)),
        topic_manifest.format_manifest(_topic_manifest()).encode(),
    ),
)
