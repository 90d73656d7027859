"""Publishing once where a genuine hub has the topic in between: it stores what it is given, ours know it again.

A retention that publishers set for the topic is one more record that the genuine hub ignores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bookkeeper.embedded.cluster import LocalCluster
from hedwig.model import Status, Topic
from hedwig.protocol.producers import Origin, origin_properties
from hedwig.wire.messages import Message, encode_message
from hedwig.wire.requests import publish_frame
from tests.interop.test_hedwig_hub import HubSet
from tests.support.apache_hedwig import HUB_VERSIONS, OURS
from tests.support.hub_wire import RawHubClient

TOPIC = "once"
STILL = {"max_entries_per_ledger": "0", "messages_consumed_thread_run_interval": "60000"}


@pytest.fixture
def hub_set(cluster: LocalCluster, tmp_path: Path) -> Iterator[HubSet]:
    with ExitStack() as running:
        yield HubSet(cluster, tmp_path, running, STILL)


def published(port: int, *sequences: int, keep_ms: int | None = None) -> list[int | Status]:
    """The ids of a producer's messages, or why there is none."""
    found: list[int | Status] = []
    with RawHubClient(port) as client:
        for sequence in sequences:
            origin = Origin(b"somebody", sequence, sequence - 1 or None)
            retention = {} if keep_ms is None else {"hw.keep": b"%d" % keep_ms}
            message = encode_message(Message(b"%d" % sequence, {**origin_properties(origin), **retention}))
            frame = publish_frame(sequence, Topic(TOPIC.encode()), message, should_claim=True)
            client.socket.sendall(frame)
            answer = client.answer()
            found.append(Status(answer.status) if answer.published is None else answer.published.local)
    return found


@pytest.mark.parametrize("version", HUB_VERSIONS)
def test_a_genuine_hub_ignores_records_of_producers_and_retention(version: str, hub_set: HubSet) -> None:
    ours = hub_set.start(OURS)
    assert published(ours.port, 1, 2, 3, 2, keep_ms=3_600_000) == [1, 2, 3, 2]
    ours.kill()
    hub_set.end(ours)
    theirs = hub_set.start(version)
    assert published(theirs.port, 3, 4, 5, keep_ms=1) == [4, 5, 6], "it stores whatever comes"
    theirs.kill()
    hub_set.end(theirs)
    again = hub_set.start(OURS)
    assert published(again.port, 1, 3, 4, 5, 6, 8) == [1, 3, 5, 6, 7, Status.BAD_VERSION]
    again.kill()
    hub_set.end(again)
    last = hub_set.start(version)
    assert published(last.port, 7) == [8]
