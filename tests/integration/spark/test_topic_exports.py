"""Exports of topics of a real region and imports from them: every message once and in order, whatever fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bookkeeper.blocking
import hedwig.blocking
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import ConfigurationError, InvalidArgument
from bookkeeper.spark.exports.digests import digest_of_numbered
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.outputs import OutputState, Stage
from hedwig.client.faces.blocking import BlockingClient
from hedwig.embedded import LocalHub
from hedwig.model import SubscribeMode
from hedwig.protocol.options import SEQUENCE
from hedwig.spark.exports import publishing
from hedwig.spark.exports.contents import GIVEN, digest_of_message
from hedwig.spark.exports.export import TopicExport, export_topics
from hedwig.spark.exports.importing import ImportedTopic, TopicImport, TopicImportFailed, import_topics
from hedwig.spark.exports.manifest import ExportedTopic, parse_topic
from hedwig.spark.region_options import read_topic_options
from hedwig.spark.topic_extents import spans_of
from hedwig.spark.topic_options import TopicReadOptions
from hedwig.wire.receiving import Received
from tests.support.cluster import STEADY, STEADY_HUB, local_cluster
from tests.support.faulty_topic_import import faulty_publishing
from tests.support.patience import until
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/topic-exports-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("topics")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def hub(cluster: LocalCluster) -> LocalHub:
    settings = {
        **STEADY_HUB,
        "zk_prefix": f"{cluster.root}-hubs",
        "max_entries_per_ledger": "100",
        "messages_consumed_thread_run_interval": "100",
    }
    hub = LocalHub.beside(cluster, 1, settings)
    cluster.start_others([hub])
    return hub


@pytest.fixture(scope="module")
def client(hub: LocalHub) -> Iterator[BlockingClient]:
    with hedwig.blocking.connect(hub.address) as connected:
        yield connected


@dataclass
class Setting:
    """A region, and a place for exports."""

    spark: Any
    uri: str
    words: dict[str, str]
    client: BlockingClient
    directory: Path

    def publish(self, topic: str, count: int) -> None:
        """Publish `count` messages with properties to a new topic that keeps them; return once all are confirmed.

        Otherwise the last messages would be missing if the hub pauses for seconds.
        """
        self.client.subscribe(topic, "keeper", SubscribeMode.CREATE_OR_ATTACH).close()
        publisher = self.client.publisher(topic)
        done = [
            publisher.publish_soon(b"%d" % (number % 50), {"key": b"k%d" % number, "color": b"red"})
            for number in range(count)
        ]
        for each in done:
            each.result()
        options = read_topic_options(TopicReadOptions, {"uri": self.uri, **self.words, "subscribe": topic})
        with bookkeeper.blocking.connect(self.uri) as ledgers:
            until(lambda: spans_of(ledgers, options)[topic].stop == count + 1, f"the {count} messages are confirmed")

    def export(self, name: str, *topics: str, **options: object) -> TopicExport:
        """Export to a directory of that name."""
        output = str(self.directory / name)
        return export_topics(
            self.spark, self.uri, output=output, topics=topics or None, options={**self.words, **options}
        )

    def take(self, name: str, prefix: str, *, dry_run: bool = False, **options: object) -> TopicImport:
        """Import from it, to topics that keep what they get."""
        given = {**self.words, "prefix": prefix, "subscription": "keeper", **options}
        return import_topics(self.spark, self.uri, str(self.directory / name), options=given, dry_run=dry_run)

    def stored(self, topic: str) -> list[Received]:
        """All messages of a topic."""
        end = self.client.publish(topic, b"end").local
        found: list[Received] = []
        with self.client.subscribe(topic, "check", start=1) as messages:
            while len(found) < end:
                found += messages.receive()
        self.client.unsubscribe(topic, "check")
        return [each for each in found if each.body != b"end"]


@pytest.fixture
def setting(spark: Any, cluster: LocalCluster, hub: LocalHub, client: BlockingClient, tmp_path: Path) -> Setting:
    return Setting(spark, cluster.uri, {"zk_prefix": f"{cluster.root}-hubs"}, client, tmp_path)


def own(messages: list[Received]) -> list[tuple[bytes, dict[str, bytes]]]:
    """Of each its body and properties, without those that a hub or publisher gives."""
    return [
        (each.body, {name: value for name, value in each.properties.items() if name not in GIVEN}) for each in messages
    ]


def sent(count: int) -> list[tuple[bytes, dict[str, bytes]]]:
    return [(b"%d" % (number % 50), {"key": b"k%d" % number, "color": b"red"}) for number in range(count)]


def lines_of(export: TopicExport) -> dict[str, ExportedTopic]:
    return {topic.topic: topic for topic in (parse_topic(row.line) for row in export.topics.collect())}


def test_what_is_exported_and_imported_is_the_same_message_by_message_and_once(setting: Setting) -> None:
    counts = {"round/one": 250, "round/0123": 40, "round/a=b c": 1, "round/empty": 0}
    for topic, count in counts.items():
        setting.publish(topic, count)
    done = export_topics(
        setting.spark, setting.uri, output=str(setting.directory / "export"), prefix="round/", options=setting.words
    )
    lines = lines_of(done)
    assert {topic: line.messages for topic, line in lines.items()} == counts
    digests = [(number + 1, digest_of_message(*message)) for number, message in enumerate(sent(250))]
    assert lines["round/one"].digest == digest_of_numbered([(0, digest_of_numbered(digests))])
    assert (done.manifest.messages, done.manifest.count) == (291, 4)
    files = list((setting.directory / "export" / "messages").glob("topic=*/date=*/*.parquet"))
    assert len(files) == done.manifest.files.count
    assert len({file.parent.parent.name for file in files}) == 3, "a topic without messages has none"
    rows = setting.spark.read.parquet(f"{setting.directory}/export/messages").where("topic = 'round/a=b c'").collect()
    assert [(row.seq, bytes(row.value)) for row in rows] == [(1, b"0")]

    dry = setting.take("export", "copy/", dry_run=True)
    assert [(each.into, each.published) for each in dry.topics] == [(f"copy/{t}", c) for t, c in sorted(counts.items())]
    taken = setting.take("export", "copy/")
    assert taken.topics == tuple(
        ImportedTopic(topic, f"copy/{topic}", count, count, is_verified=True) for topic, count in sorted(counts.items())
    )
    for topic, count in counts.items():
        if count:
            found = setting.stored(f"copy/{topic}")
            assert own(found) == sent(count)
            assert [each.properties[SEQUENCE] for each in found] == [b"%d" % (number + 1) for number in range(count)]
    again = setting.take("export", "copy/")
    assert [(each.published, each.is_verified) for each in again.topics] == [(0, True)] * 4
    assert own(setting.stored("copy/round/one")) == sent(250)
    second = setting.take("export", "copy/", job="second")
    assert sum(each.published for each in second.topics) == 291
    assert own(setting.stored("copy/round/one")) == sent(250) * 2


@pytest.mark.parametrize("fault", ["raises", "killed"])
def test_a_task_of_an_import_that_dies_in_a_topic_repeats_nothing(
    setting: Setting, hub: LocalHub, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    topic = f"task {fault}"
    setting.publish(topic, 200)
    setting.export("export", topic)
    monkeypatch.setattr(publishing, "publishing", faulty_publishing(fault, setting.directory, hub.address, times=1))
    taken = setting.take("export", "copy/")
    assert (setting.directory / f"{fault}-0").exists()
    assert [each.is_verified for each in taken.topics] == [True]
    assert own(setting.stored(f"copy/{topic}")) == sent(200)


def test_an_import_that_dies_is_gone_on_with_by_the_same_command(
    setting: Setting, hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.publish("driver", 200)
    setting.export("export", "driver")
    with monkeypatch.context() as patched:
        faulty = faulty_publishing("raises", setting.directory, hub.address, times=3)  # as often as a task is tried
        patched.setattr(publishing, "publishing", faulty)
        with pytest.raises(TopicImportFailed, match="What was published stays; run it again"):
            setting.take("export", "copy/")
    setting.client.publish("copy/driver", b"of somebody else")
    taken = setting.take("export", "copy/")
    assert [each.is_verified for each in taken.topics] == [True]
    assert taken.topics[0].published < 200
    found = [each for each in setting.stored("copy/driver") if each.body != b"of somebody else"]
    assert own(found) == sent(200)


def _change(directory: Path, what: str) -> None:
    [file, *_] = sorted((directory / "messages").glob("topic=*/date=*/*.parquet"))
    [manifest] = (directory / "manifest").glob("*.txt")
    [line_file] = [each for each in (directory / "topics").glob("*.txt") if each.stat().st_size]
    for checksum in directory.rglob(".*.crc"):  # Hadoop's own, on a local disk only
        checksum.unlink()
    if what == "moved":
        other = file.parent.parent.with_name("topic=other") / file.parent.name
        other.mkdir(parents=True)
        file.rename(other / file.name)
    elif what == "torn":
        file.write_bytes(file.read_bytes()[:-9])
    elif what == "gone":
        file.unlink()
    elif what == "line":
        line_file.write_text(line_file.read_text().replace('"bytes":', '"bytes":1'))
    elif what == "manifest":
        shutil.rmtree(manifest.parent)
    elif what == "ledgers":
        manifest.write_text(manifest.read_text().replace('"kind":"topics"', '"kind":"ledgers"'))
    elif what == "messages":
        manifest.write_text(manifest.read_text().replace('"messages":30', '"messages":31'))
    elif what == "bytes":
        manifest.write_text(manifest.read_text().replace('"contents":[{"bytes":', '"contents":[{"bytes":1'))


def test_an_export_that_has_changed_is_refused_before_anything_is_published(setting: Setting) -> None:
    setting.publish("changed", 30)
    setting.export("export", "changed")
    for what, why in {
        "moved": r"topic=changed/date=.*parquet is missing; topic=other/.*parquet is not of the export",
        "torn": r"parquet has \d+ bytes, exported were \d+",
        "gone": r"parquet is missing",
        "line": r"/topics has changed since the export",
        "manifest": r"has no manifest, which is written last",
        "ledgers": r"of the kinds ledgers; this release knows topics here",
        "messages": r"/manifest has changed since the export: it says of topics messages 31 \(the lines: 30\)\. Take",
        "bytes": r"it says of topics bytes 1\d+ \(the lines: \d+\)\.",
    }.items():
        shutil.copytree(setting.directory / "export", setting.directory / what)
        _change(setting.directory / what, what)
        with pytest.raises(NotAnExport, match=why):
            setting.take(what, "no/")
    with pytest.raises(ConfigurationError, match="did you mean subscription"):
        setting.take("export", "no/", subscriptoin="x")
    with pytest.raises(ConfigurationError, match=r"option prefix: .*//"):
        setting.take("export", "no//")
    with pytest.raises(InvalidArgument, match="export exists: name a directory that does not"):
        setting.export("export", "changed")
    with pytest.raises(ConfigurationError, match="option includeHeaders: not of an export"):
        setting.export("other", "changed", includeHeaders=True)
    assert sum(each.published for each in setting.take("export", "no/", dry_run=True).topics) == 30


def test_an_import_that_is_not_kept_any_more_is_not_published_again(setting: Setting) -> None:
    # What is gone cannot be looked at, and of the rest bookies do not know all to be confirmed: hubs remember it.
    setting.publish("kept", 250)
    setting.export("export", "kept")
    assert [each.is_verified for each in setting.take("export", "copy/").topics] == [True]
    setting.client.subscribe("copy/kept", "reader", start=240).close()
    setting.client.unsubscribe("copy/kept", "keeper")
    for _ in range(20):  # the hub deletes what nobody needs, in its own time
        if not setting.take("export", "copy/", subscription="reader").topics[0].is_verified:
            break
    setting.client.publish("copy/kept", b"later")  # now all before it is confirmed
    again = setting.take("export", "copy/", subscription="reader")
    assert [(each.published, each.is_verified) for each in again.topics] == [(0, False)]
    found: list[Received] = []
    with setting.client.subscribe("copy/kept", "reader") as messages:
        while not found or found[-1].body != b"later":
            found += messages.receive()
    assert own(found)[:-1] == sent(250)[239:]


def command(*words: str) -> tuple[int, Any, str]:
    """Exit code, JSON and notes of `bookkeeper spark`."""
    run = [sys.executable, "-m", "bookkeeper.cli.main", "spark", *words, "--json", "--master", "local[2]"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=280, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_the_commands_export_and_import(setting: Setting) -> None:
    setting.publish("0123", 30)  # a name that looks like a number
    directory = str(setting.directory / "export")
    where = ("--uri", setting.uri, "--zk-prefix", setting.words["zk_prefix"])
    code, told, notes = command("export-topics", "--topics", "0123", "--output", directory, *where)
    assert (code, told["messages"], told["topics"][0]["last_seq"]) == (0, 30, 30), notes
    code, told, notes = command("import-topics", directory, "--into", "copy/", "--subscription", "keeper", *where)
    assert (code, told["published"], told["topics"][0]["into"]) == (0, 30, "copy/0123"), notes
    assert own(setting.stored("copy/0123")) == sent(30)
    code, told, notes = command("export-topics", "--topics", "nobody", "--output", f"{directory}-2", *where)
    assert (code, told) == (1, None)
    assert "there is no topic 'nobody'" in notes
    code, told, notes = command("export-topics", "--topics", "0123", "--output", directory, *where)
    assert (code, told) == (1, None)
    assert f"output {directory} exists: name a directory that does not" in notes


@pytest.mark.parametrize(
    ("at", "stage"), [("looking", Stage.NOTHING), ("copying", Stage.NOTHING), ("verifying", Stage.BEGUN)]
)
def test_how_much_of_an_export_of_topics_is_written_is_known_when_it_is_interrupted(
    setting: Setting, at: str, stage: Stage
) -> None:
    topic, state, output = f"interrupted {at}", OutputState(), setting.directory / "export"
    setting.publish(topic, 3)

    def interrupt(text: str) -> None:
        if text.startswith(at):
            raise KeyboardInterrupt

    def export(**how: Any) -> None:
        export_topics(setting.spark, setting.uri, topics=[topic], options=setting.words, state=state, **how)

    with pytest.raises(KeyboardInterrupt):
        export(output=str(output), say=interrupt)
    assert (state.stage, output.exists()) == (stage, stage is Stage.BEGUN)
    export(output=f"{output}-2")
    assert state.stage is Stage.COMPLETE
