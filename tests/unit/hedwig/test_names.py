"""Names that can be kept, and that never meet in one znode."""

from __future__ import annotations

import pytest

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
