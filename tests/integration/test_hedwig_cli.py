"""The commands against real hubs: what goes in comes out, positions are kept, and what is wrong is said.

One cluster of two bookies and two hubs for all of them; each test has topics of its own.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.cli.main import main as bookkeeper_main
from bookkeeper.cli.why import plugins
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from hedwig import blocking
from hedwig.cli.main import main
from hedwig.embedded import LocalHub
from tests.support.cluster import STEADY, STEADY_HUB, local_cluster
from tests.support.in_process import run_here

pytestmark = pytest.mark.timeout(400)

TIMEOUT_S = 120

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"

LIMITED = '{"limited/": {"limit_bytes": 1}}'


class Region:
    """Two hubs, and the command line that talks to them."""

    def __init__(self, cluster: LocalCluster, hubs: list[LocalHub]) -> None:
        self.cluster, self.hubs = cluster, hubs
        self.client = blocking.connect([hub.address for hub in hubs])
        self.prefix = f"{cluster.root}-hubs"
        self.environment = {
            **os.environ,
            "HW_default_server_host": ",".join(hub.address for hub in hubs),
            "HW_metadataServiceUri": cluster.uri,
            "HW_zk_prefix": self.prefix,
        }
        self.http = [f"--http=127.0.0.1:{hub.port}=127.0.0.1:{hub.settings['httpServerPort']}" for hub in hubs]

    def subscribed(self, topic: str, subscriber: str) -> None:
        """A subscription that nobody holds."""
        self.client.subscribe(topic, subscriber).close()

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """A command, running."""
        return subprocess.Popen(
            [sys.executable, "-m", "hedwig.cli.main", *words], env=self.environment, stderr=subprocess.PIPE, **options
        )

    def run(self, *words: str, data: bytes = b"", code: int = 0) -> tuple[bytes, str]:
        """What it printed and what it said; in this process, as most of its time would be imports."""
        got, out, said = run_here(main, words, self.environment, data)
        assert got == code, said
        assert "Traceback" not in said
        return out, said

    def process(self, *words: str, data: bytes = b"") -> tuple[bytes, str]:
        """The same as a process of its own, with pipes."""
        done = subprocess.run(
            [sys.executable, "-m", "hedwig.cli.main", *words],
            env=self.environment,
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return done.stdout, done.stderr.decode()

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.run(*words, "--json")[0].splitlines()]

    def first_id(self, topic: str) -> int | None:
        """Return the first id of the kept messages, or None if a ledger was deleted while the topic was described."""
        code, out, _ = run_here(main, ("describe", topic, "--json"), self.environment)
        found: int | None = json.loads(out)["first_id"] if code == 0 else None
        return found

    def document(self, *words: str) -> Any:
        """Its JSON document."""
        return json.loads(self.run(*words, "--json")[0])


@pytest.fixture(scope="module")
def region(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Region]:
    root = f"/hedwig-cli-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("cluster")
    with local_cluster(zookeeper.address, root, 2, directory=directory, settings=STEADY) as cluster:
        hubs = [
            LocalHub.beside(
                cluster,
                number,
                {
                    **STEADY_HUB,
                    "zk_prefix": f"{root}-hubs",
                    "httpServerEnabled": "true",
                    "httpServerPort": str(free_port()),
                    "max_entries_per_ledger": "100",
                    "messages_consumed_thread_run_interval": "200",
                    "retention_by_topic": LIMITED,
                },
            )
            for number in (1, 2)
        ]
        cluster.start_others(hubs)
        region = Region(cluster, hubs)
        with region.client:
            yield region


def until(fact: Callable[[], bool]) -> None:
    """Ask again and again; the commands themselves take the time between."""
    deadline = time.monotonic() + TIMEOUT_S
    while not fact():
        assert time.monotonic() < deadline


def lines(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


# --- pub and sub


def test_what_is_published_comes_out_once_and_again_only_what_was_not_printed(region: Region) -> None:
    region.subscribed("pipe", "me")
    _, said = region.process("pub", "pipe", data=lines(1, 2500))
    assert said == "2,500 messages published to pipe\n"
    out, said = region.process("sub", "pipe", "-s", "me", "-c", "1200")
    assert (out, said) == (lines(1, 1200), "1,200 messages of topic pipe\n")
    out, _ = region.run("sub", "pipe", "-s", "me", "-c", "1300", "--attach", "-f", r"%o:%s\n")
    assert out == b"".join(b"%d:%d\n" % (number, number) for number in range(1201, 2501))
    assert region.run("sub", "pipe", "-s", "me", "-e", "--idle", "0.2")[0] == b""


def test_what_is_peeked_at_comes_again(region: Region) -> None:
    region.subscribed("peeked", "me")
    region.run("pub", "peeked", "-m", "one", "-m", "two")
    for _ in range(2):
        assert region.run("sub", "peeked", "-s", "me", "--peek", "-c", "2")[0] == b"one\ntwo\n"
    assert region.run("sub", "peeked", "-s", "me", "-c", "2")[0] == b"one\ntwo\n"


def test_peek_keeps_the_stored_window(region: Region) -> None:
    region.run("sub", "narrow", "-s", "me", "-e", "--idle", "0.2", "--window", "2")
    region.run("pub", "narrow", *(word for number in range(5) for word in ("-m", f"{number}")))
    shown, notes = region.run("sub", "narrow", "-s", "me", "--peek", "-e", "--idle", "5")
    assert shown == b"0\n1\n"
    assert "the subscription's window delivers no more than 2 messages until" in notes
    region.run("sub", "narrow", "-s", "me", "-c", "5")
    [subscription] = region.rows("subscriptions", "narrow")
    assert subscription["window"] == 2


def test_a_subscription_may_begin_anew_each_time_it_is_asked_to(region: Region) -> None:
    region.client.subscribe("again", "me").close()
    region.client.publish_many("again", ["1", "2", "3"])
    for _ in range(2):
        assert region.run("sub", "again", "-s", "me", "--from", "first", "-c", "3")[0] == b"1\n2\n3\n"
    assert region.run("sub", "again", "-s", "me", "--from", "3", "-c", "1")[0] == b"3\n"
    assert region.run("sub", "again", "--from", "time:2001-01-01", "-c", "2")[0] == b"1\n2\n"


def test_bytes_headers_keys_and_types_arrive(region: Region, tmp_path: Path) -> None:
    region.subscribed("shapes", "me")
    image = tmp_path / "image"
    image.write_bytes(b"\xff\n\0")
    region.run("pub", "shapes", "-H", "kind=image", str(image), "--type", "file")
    region.run("pub", "shapes", "--null", "-K", ":", data=b"a:1\0b:2")
    out, _ = region.run("pub", "shapes", "--length-prefixed", "--ids", data=b"\0\0\0\0\0\0\0\2\n\n")
    assert out == b"4\n5\n"
    found = [json.loads(line) for line in region.run("sub", "shapes", "-s", "me", "-c", "5", "--json")[0].splitlines()]
    assert all(each.pop("time_ms") > 0 and each.pop("region") == "standalone" for each in found)
    assert [each.pop("id") for each in found] == [1, 2, 3, 4, 5]
    assert found == [
        {"topic": "shapes", "type": "file", "properties": {"kind": "image"}, "size": 3, "body_hex": "ff0a00"},
        {"topic": "shapes", "properties": {"key": "a"}, "size": 1, "body": "1"},
        {"topic": "shapes", "properties": {"key": "b"}, "size": 1, "body": "2"},
        {"topic": "shapes", "size": 0, "body": ""},
        {"topic": "shapes", "size": 2, "body": "\n\n"},
    ]


def test_the_line_that_could_not_be_published_is_named(region: Region) -> None:
    out, said = region.run("pub", "toolarge", "--json", data=b"a\n" + bytes(1_300_000) + b"\n", code=1)
    assert "hedwig: line 2: a message of 1300000 bytes" in said
    assert json.loads(out.splitlines()[-1]) == {"topic": "toolarge", "published": 1, "failed": 1, "unanswered": 0}


def test_a_message_that_could_not_be_published_is_named_by_its_file(region: Region, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1_300_000))
    assert "hedwig: standard input: a message of" in region.run("pub", "files", "-", data=bytes(1_300_000), code=1)[1]
    assert f"hedwig: {tmp_path}/large: a message of" in region.run("pub", "files", f"{tmp_path}/large", code=1)[1]


def test_no_more_than_the_count_is_read_and_published(region: Region) -> None:
    out, said = region.run("pub", "counted", "-c", "3", "--ids", data=lines(1, 10))
    assert (out, said) == (b"1\n2\n3\n", "3 messages published to counted\n")


def test_what_a_producer_published_before_is_not_stored_again(region: Region) -> None:
    assert region.run("pub", "once", "--producer", "till", "--ids", data=lines(1, 3))[0] == b"1\n2\n3\n"
    assert region.run("pub", "once", "--producer", "till", "--ids", data=lines(1, 5))[0] == b"1\n2\n3\n4\n5\n"
    assert region.run("pub", "once", "--producer", "till", "--first", "5", "--ids", data=lines(5, 6))[0] == b"5\n6\n"
    region.run("pub", "once", "--once", data=lines(1, 500))
    assert region.run("readtopic", "once")[0] == lines(1, 6) + lines(1, 500)


def test_the_hub_filters(region: Region) -> None:
    region.run("sub", "colors", "-s", "red", "-e", "--idle", "0.2", "--filter", "color = 'red'")
    for color in ("red", "blue", "red"):
        region.client.publish("colors", color, {"color": color})
    assert region.run("sub", "colors", "-s", "red", "-e", "--idle", "5")[0] == b"red\nred\n"


def test_a_work_queue_is_shared_by_commands_and_what_they_refuse_is_put_aside(region: Region, tmp_path: Path) -> None:
    """Each worker notes what it was given, and refuses one of the messages; that one is tried three times."""
    region.subscribed("failed jobs", "me")
    work = f'read job; echo "$job $HEDWIG_TOPIC $HEDWIG_ID $HEDWIG_ATTEMPT" >> {tmp_path}/$$; test "$job" != broken'
    queue = ("sub", "jobs", "-s", "workers", "--shared", "--attempts", "3", "--dead-letter", "failed jobs")
    assert region.run(*queue, "-e", "--idle", "0.1")[0] == b""
    workers = [region.start(*queue, "--each", work, "--retry", "0.05") for _ in range(2)]
    region.client.publish_many("jobs", ["1", "2", "broken", "4", "5", "6"])
    letter, _ = region.run("sub", "failed jobs", "-s", "me", "-c", "1", "-f", r"%s %{hw.dead.id} %{hw.dead.attempts}")
    assert letter == b"broken 3 3"

    def taken() -> list[str]:
        return sorted(line for each in tmp_path.iterdir() for line in each.read_text().splitlines())

    until(lambda: len(taken()) >= 8)
    for each in workers:
        each.send_signal(signal.SIGTERM)
        each.communicate(timeout=TIMEOUT_S)
    assert [line for line in taken() if line.startswith("broken")] == [
        f"broken jobs 3 {number}" for number in (1, 2, 3)
    ]
    assert {line.split()[0] for line in taken()} == {"1", "2", "broken", "4", "5", "6"}
    out, _ = region.run(*queue, "-e", "--idle", "0.2")
    assert out == b""


def test_a_position_moves_over_what_a_filter_passes_over(region: Region) -> None:
    region.run("sub", "odd", "-s", "me", "-e", "--idle", "0.1", "--filter", "kind = 'odd'")
    for number in range(1, 6):
        region.client.publish("odd", str(number), {"kind": "odd" if number % 2 else "even"})
    assert region.run("consume", "odd", "me", "4", "--idle", "60")[1].endswith("consumed up to 3\n")
    assert region.run("sub", "odd", "-s", "me", "-c", "1")[0] == b"5\n"


def test_a_queue_is_not_read_in_order_by_mistake(region: Region) -> None:
    region.run("sub", "queue", "-s", "me", "--one-by-one", "-e", "--idle", "0.1")
    for command in ("sub queue -s me -e", "consume queue me end"):
        _, said = region.run(*command.split(), code=1)
        assert "hedwig sub --one-by-one" in said


def test_whoever_stops_reading_has_consumed_what_was_written(region: Region) -> None:
    region.subscribed("pager", "me")
    command = region.start("sub", "pager", "-s", "me", stdout=subprocess.PIPE)
    region.client.publish("pager", "one")
    assert command.stdout is not None
    assert command.stdout.readline() == b"one\n"
    command.stdout.close()
    _, said = command.communicate(timeout=TIMEOUT_S)
    assert (command.returncode, said) == (141, b"")
    region.client.publish("pager", "two")
    assert region.run("sub", "pager", "-s", "me", "-c", "1")[0] == b"two\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_temporary_subscription_ends_with_the_command(region: Region, number: signal.Signals) -> None:
    topic = f"passing-{number.name}"
    command = region.start("sub", topic, stdout=subprocess.PIPE)
    assert command.stdout is not None
    until(lambda: region.run("topics", "--prefix", topic)[0] != b"" and bool(region.rows("subscriptions", topic)))
    region.client.publish(topic, "seen")
    assert command.stdout.readline() == b"seen\n"
    command.send_signal(number)
    out, said = command.communicate(timeout=TIMEOUT_S)
    assert (command.returncode, out, said.decode()) == (130, b"", f"1 message of topic {topic}\n")
    assert region.rows("subscriptions", topic) == []


def test_a_subscription_that_is_held_is_busy_and_may_be_taken(region: Region) -> None:
    region.subscribed("held", "me")
    holder = region.start("sub", "held", "-s", "me", stdout=subprocess.PIPE)
    assert holder.stdout is not None
    region.client.publish("held", "mine")
    assert holder.stdout.readline() == b"mine\n"
    _, said = region.run("sub", "held", "-s", "me", "-e", "--idle", "0.2", "-D", "retry_timeout_ms=500", code=1)
    assert "subscriber 'me' of topic 'held' is attached on another connection" in said
    region.run("sub", "held", "-s", "me", "-e", "--idle", "0.2", "--force")
    _, said_there = holder.communicate(timeout=TIMEOUT_S)
    assert holder.returncode == 1
    assert b"attached by another client" in said_there


def test_an_interrupted_publish_says_what_it_waits_for_and_ends_with_another_one() -> None:
    """At a port where something listens, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT_S)
        hub = f"127.0.0.1:{silent.getsockname()[1]}"
        command = subprocess.Popen(
            [sys.executable, "-m", "hedwig.cli.main", "pub", "t", "-m", "x", "--hub", hub], stderr=subprocess.PIPE
        )
        connections = [silent.accept()[0]]
        while not connections[-1].recv(1):  # one that only looked whether somebody is there
            connections.append(silent.accept()[0])
        command.send_signal(signal.SIGINT)
        assert command.stderr is not None
        assert command.stderr.readline() == b"Waiting for the answer to 1 message; Ctrl-C again ends it at once.\n"
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=TIMEOUT_S)
        for each in connections:
            each.close()
    assert command.returncode == 130
    assert said == b"0 messages published to t; 1 not answered: they may be there or not\n"


def test_ctrl_c_is_for_the_measurement_and_not_for_its_client_processes() -> None:
    """The terminal sends it to the whole group of processes; a client process that starts has no word on it."""
    task = {"hubs": ["127.0.0.1:1:-1"], "role": "publish", "prefix": "t", "topics": 1, "size": 10, "outstanding": 1}
    program = f"""
from hedwig.perf.process import ClientProcess
try:
    with ClientProcess("hedwig.perf.worker", "publish", {task}) as child:
        print("started", flush=True)
        child.hear(60)
        child.hear(60)
except KeyboardInterrupt:
    raise SystemExit(130) from None
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as measurement:
        assert measurement.stdout is not None
        assert measurement.stdout.readline() == b"started\n"
        os.killpg(measurement.pid, signal.SIGINT)
        _, said = measurement.communicate(timeout=TIMEOUT_S)
    assert (measurement.returncode, said) == (130, b"")


# --- positions


def test_a_position_moves_forward_and_never_beyond_the_end(region: Region) -> None:
    region.subscribed("moved", "me")
    region.run("pub", "moved", data=lines(1, 300))
    assert region.run("consume", "moved", "me", "250", "--idle", "60")[1].endswith("consumed up to 250\n")
    out, _ = region.run("sub", "moved", "-s", "me", "-c", "1")
    assert out == b"251\n"
    _, said = region.run("consume", "moved", "me", "1000", code=1)
    assert "topic moved ends at 300: 1000 is not there yet, and nothing was consumed" in said
    out, _ = region.run("sub", "moved", "-s", "me", "-c", "1")
    assert out == b"252\n"
    region.run("consume", "moved", "me", "300", "--idle", "60")
    assert "nothing was left" in region.run("consume", "moved", "me", "end", "--idle", "0.2")[1]
    region.run("consume", "moved", "nobody", "1", code=1)


def test_a_misspelt_topic_is_told_and_not_made(region: Region) -> None:
    for words in ("consume misspelt me end", "unsubscribe misspelt me --force"):
        assert "there is no topic 'misspelt'" in region.run(*words.split(), code=1)[1]
    assert region.run("topics", "--prefix", "misspelt")[0] == b""


def test_what_is_wrong_with_a_subscription_is_told_by_its_name(region: Region) -> None:
    region.subscribed("named", "me")
    for words in ("consume named nobody end", "sub named -s nobody --attach", "unsubscribe named nobody --force"):
        assert "there is no subscriber 'nobody' of topic 'named'" in region.run(*words.split(), code=1)[1]
    assert (
        "there is a subscriber 'me' of topic 'named' already"
        in region.run(*["sub", "named", "-s", "me", "--create"], code=1)[1]
    )


def test_records_of_other_hubs_are_not_believed(region: Region) -> None:
    """A hub of the command that is not registered there may have the topic."""
    _, said = region.run("consume", "elsewhere", "me", "end", "--hub", "127.0.0.1:1", code=1)
    assert "no topic" not in said
    _, said = region.run(
        "consume", "elsewhere", "me", "end", "--hub", "127.0.0.1:1", "--uri", region.cluster.uri, code=1
    )
    assert "there is no topic 'elsewhere'" in said


def test_a_backlog_is_said_to_be_of_stored_positions(region: Region) -> None:
    region.subscribed("read", "me")
    region.run("pub", "read", data=lines(1, 3))
    assert region.run("sub", "read", "-s", "me", "-c", "3")[0] == lines(1, 3)
    for command in ("subscriptions", "describe"):
        assert "the positions that are stored" in region.run(command, "read")[1]
    assert region.run("subscriptions", "read", "--json")[1] == ""


def test_an_ended_subscription_is_gone(region: Region) -> None:
    region.subscribed("ended", "me")
    region.run("unsubscribe", "ended", "me", "--force")
    assert region.rows("subscriptions", "ended") == []
    region.run("unsubscribe", "ended", "me", "--force", code=1)


# --- what is recorded


def test_topics_subscriptions_and_ledgers_are_told_without_a_hub(region: Region) -> None:
    region.run("sub", "told/a", "-s", "me", "-e", "--idle", "0.2", "--window", "7")
    region.run("pub", "told/a", data=lines(1, 250))
    region.client.publish("told", "x")
    assert region.run("topics", "--prefix", "told")[0] == b"told\ntold/a\n"
    assert region.run("topics", "--prefix", "told/", "--count")[0] == b"1\n"
    [row] = region.rows("topics", "--prefix", "told/", "--long")
    assert (row["last_id"], row["subscriptions"]) == (250, 1)
    assert row["owner"] in [hub.address for hub in region.hubs]
    [subscription] = region.rows("subscriptions", "-s", "me", "--prefix", "told")
    assert (subscription["topic"], subscription["backlog"], subscription["window"]) == ("told/a", 250, 7)
    assert region.rows("subscriptions", "--prefix", "told", "--min-backlog", "251") == []
    described = region.document("describe", "told/a")
    spans = [(each["first_id"], each["last_id"], each["open"]) for each in described["ledgers"]]
    assert spans == [(1, 100, False), (101, 200, False), (201, 250, True)]
    text = region.run("describe", "told/a")[0].decode()
    assert "served by 127.0.0.1:" in text
    assert "1 subscription" in text
    assert {hub["hub"] for hub in region.document("hubs")} == {hub.address for hub in region.hubs}


def test_stored_messages_are_read_from_all_ledgers_and_nobody_is_fenced(region: Region) -> None:
    region.subscribed("stored", "keeps")
    region.run("pub", "stored", data=lines(1, 250))
    assert region.run("readtopic", "stored")[0] == lines(1, 250)
    assert region.run("readtopic", "stored", "--from", "99", "-n", "3")[0] == lines(99, 101)
    assert region.run("readtopic", "stored", "--from", "-2", "-f", r"%o %s\n")[0] == b"249 249\n250 250\n"
    assert region.run("readtopic", "stored", "--from", "200", "--to", "201")[0] == lines(200, 201)
    assert region.run("readtopic", "stored", "--from", "900")[0] == b""
    out, _ = region.run("pub", "stored", "--ids", "-m", "251")
    assert out == b"251\n", "the same hub writes on"
    out, said = region.run("readtopic", "stored", "--from", "-1")
    assert (out, "warning" in said) == (b"251\n", False), "the hub confirms that it is acknowledged"
    assert region.run("readtopic", "stored", "--from", "-1", "--unconfirmed")[0] == b"251\n"


def test_messages_without_a_subscription_are_kept_and_describe_shows_until_when(region: Region) -> None:
    """A Spark sink's messages were once deleted a minute after their ledger had ended, before any reader came."""
    region.run("pub", "kept/unread", data=lines(1, 250))
    region.run("pub", "kept/named", "--keep", "86400", data=lines(1, 150))
    region.run("pub", "short", "--keep", "0.001", data=lines(1, 250))
    for topic in ("short", "limited/look"):
        region.run("pub", topic, data=lines(1, 250))
    # Hubs check all topics in turn: messages of other topics, too old by both clocks, are deleted by now.
    until(lambda: region.first_id("short") == 401)
    until(lambda: region.first_id("limited/look") == 201)
    assert region.run("readtopic", "kept/unread")[0] == lines(1, 250)
    described = region.document("describe", "kept/unread")
    assert [each["kept_by"] for each in described["ledgers"]] == [
        "keep_unsubscribed_ms",
        "keep_unsubscribed_ms",
        "written",
    ]
    date = datetime.datetime.fromisoformat(described["ledgers"][0]["kept_until"])
    assert abs(date - datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=7)) < datetime.timedelta(minutes=5)
    text = region.run("describe", "kept/unread")[0].decode()
    assert "kept: 7 days without a subscription (keep_unsubscribed_ms)" in text
    assert f"until {date.isoformat()} (no subscription)" in text
    assert "\nsettings: defaults, unless -D or the environment sets them;" in text
    described = region.document("describe", "kept/named")
    assert (described["retention"]["named_ms"], described["ledgers"][0]["kept_by"]) == (86_400_000, "named")
    assert "kept: 1 day (set by a publisher)" in region.run("describe", "kept/named")[0].decode()
    region.subscribed("kept/read", "me")
    region.run("pub", "kept/read", data=lines(1, 150))
    described = region.document("describe", "kept/read")
    first = described["ledgers"][0]
    assert (first["kept_by"], first["subscriber"], first["consumed_id"], first["kept_until"]) == (
        "subscription",
        "me",
        0,
        None,
    )
    rows = {row["topic"]: row["kept_by"] for row in region.rows("topics", "--long", "--prefix", "kept/")}
    assert rows == {"kept/unread": "keep_unsubscribed_ms", "kept/named": "named", "kept/read": "subscription"}
    out, said = region.run("topics", "--long")
    assert "computed from these settings: defaults, unless" in said
    line = next(line for line in out.decode().splitlines() if "kept/read  (" in line)
    assert "(subscription me at 0)" in line


def test_why_says_what_is_kept_and_which_topic_a_ledger_belongs_to(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declared(group: str) -> list[EntryPoint]:
        found = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"].get(group, {})
        return [EntryPoint(name, value, group) for name, value in found.items()]

    def why(*words: object) -> tuple[str, Any]:
        environment = {**region.environment, "BK_metadataServiceUri": region.cluster.uri}
        code, out, said = run_here(bookkeeper_main, ["why", *map(str, words)], environment)
        assert code == 0, said
        code, document, said = run_here(bookkeeper_main, ["why", "--json", *map(str, words)], environment)
        assert code == 0, said
        return out.decode(), json.loads(document)

    monkeypatch.setattr(plugins, "entry_points", declared)
    region.run("pub", "why/unread", data=lines(1, 150))
    region.subscribed("why/read", "me")
    region.run("pub", "why/read", "--keep", "3600", data=lines(1, 150))
    ids = [each["ledger_id"] for each in region.document("describe", "why/unread")["ledgers"]]
    text, document = why("topic", "why/unread")
    assert text.startswith("topic why/unread: messages 1 to 150 are kept; the oldest ledger: until ")
    assert "7 days without a subscription (keep_unsubscribed_ms)" in text
    assert document["healthy"] is True
    checked = {"copies_checked": ids, "lost_messages": {}}
    assert document["facts"] == {"exists": True, **region.document("describe", "why/unread"), **checked}
    text, _ = why("topic", "why/read")
    assert "the oldest ledger: subscription me at 0" in text
    assert "1 hour (set by a publisher)" in text
    assert why("topic", "why/not")[1]["facts"] == {"exists": False}
    for ledger_id in ids:
        text, document = why("ledger", ledger_id)
        assert f"it is one of {len(ids)} ledgers of topic 'why/unread' ({region.prefix}/standalone)" in text
        assert document["healthy"] is True


def test_readers_of_deleted_messages_get_their_ids(region: Region) -> None:
    region.run("pub", "limited/a", data=lines(1, 250))
    until(lambda: region.first_id("limited/a") == 201)
    out, said = region.run("readtopic", "limited/a")
    assert out == lines(201, 250)
    assert "Messages 1 to 200 of topic limited/a are deleted" in said
    assert "are deleted" not in region.run("readtopic", "limited/a", "--from", "201")[1]
    assert "Messages 151 to 200" in region.run("readtopic", "limited/a", "--from", "-100")[1]
    out, said = region.run("sub", "limited/a", "--from", "first", "-c", "50")
    assert out == lines(201, 250)
    assert "hedwig: messages 1 to 200 of topic limited/a were deleted before they were read" in said
    out, said = region.run("sub", "limited/a", "--from", "time:0", "-c", "1")
    assert "some or all of them may be older than --from asks for" in said
    assert "messages 1 to 200 are deleted" in region.run("describe", "limited/a")[0].decode()
    with region.client.subscribe("limited/a", "api", start=7) as subscription:
        assert next(subscription).local_id == 201
        assert [(each.first, each.last) for each in subscription.gone] == [(7, 200)]


@pytest.mark.parametrize("command", ["describe", "readtopic", "subscriptions"])
def test_a_topic_that_is_not_there_is_told(region: Region, command: str) -> None:
    assert "there is no topic 'nowhere'" in region.run(command, "nowhere", code=1)[1]


def test_a_region_that_is_not_there_is_told_with_those_that_are(region: Region) -> None:
    _, said = region.run("topics", "--region", "west", code=1)
    assert "there is no region 'west'" in said
    assert "standalone" in said


# --- moving topics


def test_a_released_topic_is_served_on_and_its_subscriber_follows(region: Region) -> None:
    region.subscribed("moving", "me")
    reader = region.start("sub", "moving", "-s", "me", "-c", "2", stdout=subprocess.PIPE)
    assert reader.stdout is not None
    region.client.publish("moving", "before")
    assert reader.stdout.readline() == b"before\n"
    assert "topic moving: released by" in region.run("release", "moving", *region.http)[1]
    region.client.publish("moving", "after")
    out, _ = reader.communicate(timeout=TIMEOUT_S)
    assert (reader.returncode, out) == (0, b"after\n")


def loads(region: Region) -> dict[str, int]:
    """What hubs say of themselves, once they have: they do so once a second."""
    told: dict[str, int] = {}

    def is_told() -> bool:
        owners = Counter(row["owner"] for row in region.rows("topics", "--long"))
        told.update({each["hub"]: each["topics"] for each in region.document("hubs")})
        return told == {hub.address: owners[hub.address] for hub in region.hubs}

    until(is_told)
    return told


def test_a_hub_with_too_many_topics_gives_some_up(region: Region) -> None:
    _, poor = region.hubs
    for number in range(24):
        region.client.publish(f"load/{number}", b"x")
    # Make it uneven, as hubs share what is new.
    loads(region)
    region.run("release", "--hub", f"127.0.0.1:{poor.port}", "--count", "1000", *region.http)
    assert loads(region)[poor.address] == 0
    planned = region.document("rebalance", "--dry-run")
    [rich] = [each for each in planned if each["to_release"]]
    assert rich["to_release"] == rich["topics"] - -(-sum(each["topics"] for each in planned) // 2)
    done = region.document("rebalance", *region.http)
    assert [each["released"] for each in done] == [each["to_release"] for each in planned]
    assert loads(region)[rich["hub"]] == rich["topics"] - rich["to_release"]


def test_a_hub_says_where_its_http_server_is(region: Region) -> None:
    for hub in region.hubs:
        assert f"HTTP server on 127.0.0.1:{hub.settings['httpServerPort']}" in hub.log_path.read_text()


def test_a_hub_without_http_is_told_with_what_to_set(region: Region) -> None:
    region.client.publish("stays", "x")
    _, said = region.run("release", "stays", "-D", f"httpServerPort={free_port()}", code=1)
    assert "httpServerEnabled=true" in said
    assert "--http" in said
