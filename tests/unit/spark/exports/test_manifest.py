"""The manifest of an export: bytes, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.manifest import (
    ExportedLedger,
    Files,
    Manifest,
    Part,
    Status,
    check_directory,
    format_ledger,
    format_manifest,
    parse_ledger,
    parse_manifest,
)

LEDGER = ExportedLedger(
    ledger_id=7,
    status=Status.COMPLETE,
    date="2026-11-23",
    state="CLOSED",
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    digest_type="CRC32C",
    created_ms=1_700_000_000_000,
    custom={"owner": b"\x00\xff\n", "é": b""},
    expected_entries=2,
    expected_bytes=5,
    entries=2,
    size=5,
    digest="ab" * 32,
)
LINE = (
    '{"ack_quorum":2,"bytes":5,"created_ms":1700000000000,"custom":{"owner":"AP8K","\\u00e9":""},"date":"2026-11-23",'
    f'"digest":"{"ab" * 32}","digest_type":"CRC32C","ensemble_size":3,"entries":2,"expected_bytes":5,'
    '"expected_entries":2,"ledger_id":7,"state":"CLOSED","status":"complete","why":"","write_quorum":2}'
)
MANIFEST = Manifest(
    export_id="e" * 32,
    created_ms=1,
    instance="i",
    range_entries=10_000,
    ledgers=Part(2, "d", 2, 5, {Status.COMPLETE: 1, Status.INCOMPLETE: 0, Status.LOST: 0, Status.OPEN: 1}),
    files=Files(1, 99, "f"),
)


def test_lines_have_these_bytes_and_custom_metadata_may_be_any() -> None:
    assert format_ledger(LEDGER) == LINE
    assert parse_ledger(LINE) == LEDGER
    for ledger in (
        ExportedLedger(8, Status.LOST, "gone"),
        ExportedLedger(9, Status.OPEN, state="OPEN", ensemble_size=1, write_quorum=1, ack_quorum=1),
        dataclasses.replace(LEDGER, digest_type=None, created_ms=None, expected_bytes=None, status=Status.INCOMPLETE),
    ):
        line = format_ledger(ledger)
        assert "\n" not in line
        assert parse_ledger(line) == ledger


def test_the_manifest_has_these_bytes() -> None:
    assert format_manifest(MANIFEST) == (
        '{"contents":[{"bytes":5,"count":2,"digest":"d","entries":2,"kind":"ledgers",'
        '"status":{"complete":1,"incomplete":0,"lost":0,"open":1}}],"created_ms":1,"export":"' + "e" * 32 + '",'
        '"files":{"bytes":99,"count":1,"digest":"f"},"format":1,"instance":"i","range_entries":10000}'
    )
    assert parse_manifest(format_manifest(MANIFEST)) == MANIFEST


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 2}, r"format 2; this release knows 1\. Use the release"),
        ({"format": "1"}, "manifest: format is '1'"),
        ({"contents": [{"kind": "ledgers"}, {"kind": "topics"}]}, "of the kinds ledgers, topics; this release knows"),
        ({"contents": []}, "kinds none"),
        ({"range_entries": 0}, "range_entries is 0"),
        ({"files": None}, "files is None"),
        ({"created_ms": True}, "created_ms is True"),
    ],
)
def test_another_version_and_other_contents_are_refused(change: dict[str, object], why: str) -> None:
    line = json.dumps(json.loads(format_manifest(MANIFEST)) | change)
    with pytest.raises(NotAnExport, match=why):
        parse_manifest(line)


@pytest.mark.parametrize("name", ["contents", "created_ms", "export", "files", "format", "instance", "range_entries"])
def test_a_manifest_that_lacks_something_is_refused(name: str) -> None:
    fields = json.loads(format_manifest(MANIFEST))
    del fields[name]
    with pytest.raises(NotAnExport, match=f"manifest: {name} is None"):
        parse_manifest(json.dumps(fields))


@pytest.mark.parametrize("line", ["", "x", "[]", '"x"', "null"])
def test_what_is_no_object_is_refused(line: str) -> None:
    for parse in (parse_manifest, parse_ledger):
        with pytest.raises(NotAnExport, match="no JSON"):
            parse(line)


@pytest.mark.parametrize(
    "change",
    [
        *({"ledger_id": -1}, {"ledger_id": "7"}, {"status": "fine"}, {"custom": {"a": "*"}}, {"custom": {"a": 1}}),
        *({"digest_type": "MD5"}, {"entries": None}, {"bytes": None}, {"digest": None}, {"digest": 5}),
        *({"write_quorum": 4}, {"ack_quorum": 0}, {"ensemble_size": None}, {"custom": None}, {"why": None}),
    ],
)
def test_a_line_of_which_no_ledger_can_be_made_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(NotAnExport, match="ledger"):
        parse_ledger(json.dumps(json.loads(LINE) | change))


def test_a_directory_has_a_name() -> None:
    assert check_directory("/a/b//") == "/a/b"
    assert check_directory("hdfs://nn/a") == "hdfs://nn/a"
    for wrong in ("", "/", "//"):
        with pytest.raises(InvalidArgument, match="want that of an export"):
            check_directory(wrong)
