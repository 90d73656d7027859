"""What is said of a topic, a journal and a hub that are not there: what may help, in the words of who asks."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.config import ClientSettings
from bookkeeper.errors import ConnectFailed, InvalidArgument
from bookkeeper.spark.said_as import OF_OPTIONS, SAID_AS, Words
from hedwig.admin.region import Region
from hedwig.cli.spark_said_as import IMPORT, TOPICS
from hedwig.errors import NoHubReached
from hedwig.model import HubAddress, HubInfo, Topic
from hedwig.names import Paths
from hedwig.spark import hub_client
from hedwig.spark.region_options import read_topic_options
from hedwig.spark.topic_absence import check_topic
from hedwig.spark.topic_options import TopicWriteOptions
from journalmgr.cli.spark_namespace import WORDS as NAMESPACE
from journalmgr.errors import NotFormatted
from journalmgr.spark import edit_segments
from journalmgr.spark.edit_loss import Loss
from journalmgr.spark.edit_segments import JournalSegments
from tests.support.hub_region import SETTINGS
from tests.support.hub_region import Region as Simulated

# --- topics


@pytest.mark.parametrize(
    ("name", "words", "end"),
    [
        (
            "nwes",
            OF_OPTIONS,
            "; did you mean news? If it is of another region, name that: option region, option zk_prefix",
        ),
        ("qqqq", TOPICS, ". If it is of another region, name that: --region, --zk-prefix"),
    ],
)
def test_a_topic_that_there_is_not(name: str, words: Words, end: str) -> None:
    simulated, ledgers = Simulated(), SimpleNamespace()
    hub = HubInfo(HubAddress("10.0.0.1", 4080), 1)
    metadata = simulated.hub()
    for each in (b"news", b"sport"):
        simulated.now(metadata.claim(Topic(each), hub, exists=False))
    session: Any = simulated.sessions[0]
    region = Region(session, ledgers, simulated.clock, SETTINGS, Paths("/hedwig", "standalone"), b"")  # type: ignore[arg-type]
    simulated.now(check_topic(region, "news", words))
    with pytest.raises(InvalidArgument) as caught:
        simulated.now(check_topic(region, name, words))
    assert str(caught.value) == f"there is no topic '{name}' in /hedwig/standalone{end}"


# --- journals


class NoJournal:
    """Znodes of a journal that nobody formatted."""

    description, list_path = "zk1:2181", "/j/ledgers"

    async def sync(self) -> None:
        """Nothing to do."""

    async def read_version(self) -> None:
        """There is none."""

    async def children(self, path: str) -> None:
        """There are none."""


@pytest.mark.parametrize(("words", "way"), [(OF_OPTIONS, "option journal"), (NAMESPACE, "JOURNAL")])
def test_a_journal_that_there_is_not(words: Words, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_segments, "JournalZnodes", lambda *_: NoJournal())
    context = SimpleNamespace(store=SimpleNamespace(tree=None), clock=None)
    ledgers: Any = SimpleNamespace(context=context, settings=ClientSettings())
    journal = JournalSegments(ledgers, "/j", in_progress=True, loss=Loss(True, words))
    for question in (journal.namespace_id(), journal.look(1)):
        failures: list[Any] = []
        Deferred.fromCoroutine(question).addErrback(failures.append)
        [failure] = failures
        assert failure.check(NotFormatted)
        said = str(failure.value)
        assert said.startswith("journal /j at zk1:2181: there is no journal")
        assert said.endswith(f". Is its path right ({way})? `journalmgr format` makes a journal")


# --- hubs


@pytest.mark.parametrize(("words", "way"), [(OF_OPTIONS, "option hubs"), (IMPORT, "--hubs")])
def test_a_hub_that_cannot_be_reached(words: Words, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise NoHubReached.of("hub h1:4080 cannot be reached: connection refused")

    monkeypatch.setattr(hub_client, "connect", connect)
    options = read_topic_options(
        TopicWriteOptions,
        {"hubs": "h1:4080", **({} if words is OF_OPTIONS else {SAID_AS: words.text})},
        needs_uri=False,
    )
    with pytest.raises(ConnectFailed) as caught:
        hub_client.hub_client_of(options)
    said = str(caught.value)
    assert said.startswith("hub h1:4080 cannot be reached: connection refused. Start one there")
    assert said.endswith(f"give the address of one that runs ({way})")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_why_no_hub_was_reached_comes_whole_out_of_another_process() -> None:
    error = NoHubReached.of("hub h1:4080 ended the connection at once")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.failures) == (str(error), error.failures)
