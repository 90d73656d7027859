"""Names that can be kept, and that never meet in one znode."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hedwig
from hedwig.errors import MalformedRequest
from hedwig.model import HubAddress, SubscriberId, Topic
from hedwig.names import NAME_SIZE_MAX, Paths, subscriber_part, topic_part

PATHS = Paths("/hedwig", "standalone")


def test_paths_are_the_genuine_hubs() -> None:
    topic = Topic(b"topic1")
    assert PATHS.layout == "/hedwig/standalone/managers/METADATA/LAYOUT"
    assert PATHS.hub(HubAddress("127.0.0.1", 14080, 19876)) == "/hedwig/standalone/hosts/127.0.0.1:14080:19876"
    assert PATHS.owner(topic) == "/hedwig/standalone/topics/topic1/hub"
    assert PATHS.ledgers(topic) == "/hedwig/standalone/topics/topic1/ledgers"
    assert PATHS.subscription(topic, SubscriberId(b"s1")) == "/hedwig/standalone/topics/topic1/subscribers/s1"


@pytest.mark.parametrize(
    "name", ["t", "a/b", "hub", "ledgers/x", "grüße", "a b", "a.b", "…", "ß" * (NAME_SIZE_MAX // 2)]
)
def test_names_of_topics(name: str) -> None:
    assert topic_part(Topic(name.encode())) == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (b"", "is empty"),
        (b"\xff", "is not UTF-8"),
        (b"a\x00b", "ZooKeeper refuses"),
        (b"a\nb", "ZooKeeper refuses"),
        ("a\ue000".encode(), "ZooKeeper refuses"),
        (b"/a", "between slashes"),
        (b"a/", "between slashes"),
        (b"a//b", "between slashes"),
        (b"..", "between slashes"),
        (b"a/./b", "between slashes"),
        (b"a/hub", "topic 'a' keeps its hub"),
        (b"a/hw.producers/b", "topic 'a' keeps its hw.producers"),
        (b"a/b/ledgers/c", "topic 'a/b' keeps its ledgers"),
        (b"a/subscribers", "topic 'a' keeps its subscribers"),
        (b"x" * (NAME_SIZE_MAX + 1), "at most"),
    ],
)
def test_names_that_are_none(name: bytes, told: str) -> None:
    with pytest.raises(MalformedRequest, match=told):
        topic_part(Topic(name))


@pytest.mark.parametrize("name", [b"", b"a/b", b".", b"..", b"\xff", b"a\x01"])
def test_subscribers_that_are_none(name: bytes) -> None:
    with pytest.raises(MalformedRequest):
        subscriber_part(SubscriberId(name))
    assert subscriber_part(SubscriberId(b"__region")) == "__region"


def test_log_lines_show_names_of_topics_and_subscribers_as_text() -> None:
    """Names are bytes, and were logged as b'news'."""
    raw: list[str] = []
    count = 0
    for path in sorted(Path(hedwig.__file__).parent.rglob("*.py")):
        if "spark" in path.parts:  # names are text there
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log."):
                for named in node.keywords:
                    if named.arg in ("topic", "subscriber"):
                        count += 1
                        value = ast.unparse(named.value)
                        if not value.startswith("shown(") and (path.name, value) != ("read_retry.py", "name"):
                            raw.append(f"{path.name}:{node.lineno}: {value}")
    assert count > 30
    assert not raw
