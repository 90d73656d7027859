"""Texts from other processes: only expected errors are raised, and one function alone parses JSON."""

import re
from pathlib import Path

import pytest

from bookkeeper.texts import parse_json, proto_text

ROOT = Path(__file__).resolve().parents[2]
OF_OWN_PROCESSES = ("bookkeeper/cli/perf/", "hedwig/perf/")
"""Modules that read JSON which the same program wrote."""


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"\xff", b"", b"{"])
def test_json_that_cannot_be_read_is_a_value_error_whatever_is_wrong(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(text)


def test_json_is_read_by_one_function_alone() -> None:
    others = [
        str(path.relative_to(ROOT))
        for package in ("bookkeeper", "hedwig", "journalmgr")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"\bjson\.loads?\(", path.read_text()) and path.name != "texts.py"
    ]
    assert [path for path in others if not path.startswith(OF_OWN_PROCESSES)] == []


def test_a_protobuf_string_that_came_as_bytes_is_replaced_or_an_error() -> None:
    broken: str = b"a\xff"  # type: ignore[assignment]  # as protobuf returns it
    assert proto_text(broken, "replace") == "a\ufffd"
    assert proto_text("a") == "a"
    with pytest.raises(UnicodeDecodeError):
        proto_text(broken)
