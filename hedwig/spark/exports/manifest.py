"""The manifest of an export of topics: what is exported, and how to tell that it is still that. Pure.

    DIR/
      messages/topic=news/date=2026-11-23/*.parquet    rows seq, timestamp, value, headers; names as Spark escapes them,
                                                       the day (UTC) of the timestamp, or unknown
      topics/*.txt                                     a line for each topic, below
      files/*.txt                                      a line for each file: {"bytes": 3171, "path": "topic=news/..."}
      manifest/*.txt                                   one line, below; written last: without it DIR is no export

The line of a topic, a JSON object without spaces, its keys ascending:

    bytes              of the bodies of its messages
    digest             over its messages in their order, `contents`
    first_seq          id of the first message that is exported, in the topic that it comes from; of a topic without
    last_seq           messages that of the next one, and last_seq one less. There is none missing between them
    messages           how many: last_seq - first_seq + 1
    topic
    why                text naming later messages that may be acknowledged; "" if none; absent in older exports

The manifest, likewise (here with spaces):

    {"contents": [{"bytes": 3171, "count": 2, "digest": "...", "kind": "topics", "messages": 500}],
     "created_ms": 1700000000000, "export": "32 hexadecimal digits",
     "files": {"bytes": 4242, "count": 1, "digest": "..."},
     "format": 1, "range_messages": 10000, "region": "/hedwig/standalone"}

A digest of lines is over their set. No password is in an export.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.spark.exports.lines import FORMAT, Fields, NotAnExport, check_kind, json_line
from bookkeeper.spark.exports.manifest import Files

TOPICS = "topics"

RANGE_MESSAGES = 10_000
"""Messages of a topic that are digested together."""


@dataclass(frozen=True, slots=True)
class ExportedTopic:
    """The line of a topic; what its fields mean is drawn above."""

    topic: str
    first_seq: int
    last_seq: int
    messages: int
    size: int
    digest: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class TopicManifest:
    """What an export is. count: topics; digest: of their lines; messages, size: of all."""

    export_id: str
    created_ms: int
    region: str
    range_messages: int
    count: int
    digest: str
    messages: int
    size: int
    files: Files


def format_topic(topic: ExportedTopic) -> str:
    """Its line, without an end of line."""
    return json_line(
        {
            "bytes": topic.size,
            "digest": topic.digest,
            "first_seq": topic.first_seq,
            "last_seq": topic.last_seq,
            "messages": topic.messages,
            "topic": topic.topic,
            "why": topic.why,
        }
    )


def parse_topic(line: str) -> ExportedTopic:
    """The inverse. Raises NotAnExport; also where first, last and number of messages do not fit together."""
    fields = Fields(line, "a line of topics/")
    found = ExportedTopic(
        fields.text("topic"),
        fields.whole("first_seq"),
        fields.whole("last_seq"),
        fields.whole("messages"),
        fields.whole("bytes"),
        fields.text("digest"),
        fields.text_or_none("why") or "",
    )
    if found.messages != found.last_seq - found.first_seq + 1 or found.first_seq < 1:
        raise NotAnExport(
            f"the line of topic {found.topic!r}: {found.messages} messages from {found.first_seq} to {found.last_seq}"
        )
    return found


def format_manifest(manifest: TopicManifest) -> str:
    """Its line."""
    contents = {
        "bytes": manifest.size,
        "count": manifest.count,
        "digest": manifest.digest,
        "kind": TOPICS,
        "messages": manifest.messages,
    }
    files = {"bytes": manifest.files.size, "count": manifest.files.count, "digest": manifest.files.digest}
    return json_line(
        {
            "contents": [contents],
            "created_ms": manifest.created_ms,
            "export": manifest.export_id,
            "files": files,
            "format": FORMAT,
            "range_messages": manifest.range_messages,
            "region": manifest.region,
        }
    )


def parse_manifest(line: str) -> TopicManifest:
    """The inverse. Raises NotAnExport, also for a version and for kinds of contents that this release does not know."""
    fields = Fields(line, "manifest")
    part = check_kind(fields, TOPICS)
    files = Fields.of(fields.value("files", dict), "manifest, files")
    range_messages = fields.whole("range_messages")
    if range_messages < 1:
        raise fields.wrong("range_messages")
    return TopicManifest(
        export_id=fields.text("export"),
        created_ms=fields.whole("created_ms"),
        region=fields.text("region"),
        range_messages=range_messages,
        count=part.whole("count"),
        digest=part.text("digest"),
        messages=part.whole("messages"),
        size=part.whole("bytes"),
        files=Files(files.whole("count"), files.whole("bytes"), files.text("digest")),
    )
