"""The words of the sink, and those by which what it committed is read."""

from __future__ import annotations

import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.ledgers.options import LedgerReadOptions
from bookkeeper.spark.options.tables import read_options
from bookkeeper.spark.sink.commit_format import Kind, Owner
from bookkeeper.spark.sink.options import check_commit_path, read_sink_options

URI = "zk://zk1:2181/ledgers"


def test_quorums_fit_themselves_to_a_smaller_ensemble() -> None:
    given = {"uri": URI, "checkpointlocation": "/c"}
    found = {ensemble: read_sink_options({**given, "ensembleSize": str(ensemble)}).own for ensemble in (1, 2, 5)}
    assert {ensemble: (each.write_quorum, each.ack_quorum) for ensemble, each in found.items()} == {
        1: (1, 1),
        2: (2, 2),
        5: (2, 2),
    }
    default = read_sink_options({"path": URI, "password": "secret"})
    assert (default.own.ensemble, default.own.write_quorum, default.own.ack_quorum) == (3, 2, 2)
    assert (default.own.commit_path, default.own.job, default.client.password) == ("/bookkeeper-spark", "", b"secret")
    assert default.own.accept_repeat is False
    for stream in (False, True):
        assert read_sink_options({"uri": URI, "acceptRepeat": "true"}, stream=stream).own.accept_repeat is True


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"ensembleSize": "2", "writeQuorumSize": "3"}, "ensemble 2, write quorum 3"),
        ({"ackQuorumSize": "3"}, "write quorum 2, ack quorum 3"),
        ({"ensembleSize": "0"}, "out of range"),
        ({"ensemble": "3"}, "did you mean ensembleSize"),
        ({"job": "a/b"}, "letters, digits"),
        ({"job": ".."}, "letters, digits"),
        ({"commitPath": "spark"}, "path of a znode"),
        ({"commitPath": "/a//b"}, "path of a znode"),
        ({"commitPath": "/"}, "path of a znode"),
        ({"commitPath": "/a/.."}, "path of a znode"),
        ({"ledgers": "3"}, "ledgers of format bookkeeper: is unknown"),
    ],
)
def test_words_that_cannot_be_are_told(words: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_sink_options({"uri": URI, **words})


def test_a_stream_has_no_job_it_is_known_by_its_query() -> None:
    with pytest.raises(ConfigurationError, match=r"option job=nightly .* belongs to a batch write; leave it out"):
        read_sink_options({"uri": URI, "job": "nightly"}, stream=True)
    assert read_sink_options({"uri": URI, "job": "nightly"}).own.job == "nightly"
    assert read_sink_options({"uri": URI}, stream=True).own.job == ""


@pytest.mark.parametrize("path", ["/ledgers", "/ledgers/spark", "/a/b", "/a"])
def test_commits_are_kept_apart_from_the_cluster(path: str) -> None:
    root = "/ledgers" if path.startswith("/ledgers") else "/a/b"
    with pytest.raises(ConfigurationError, match=f"commitPath={path} .*the cluster are at {root}"):
        check_commit_path(path, f"zk://zk1:2181{root}")
    check_commit_path("/ledgers-spark", "zk://zk1:2181/ledgers")
    check_commit_path("/a/c", "zk://zk1:2181/a/b")


def test_what_was_committed_is_read_by_query_or_job_instead_of_ids() -> None:
    def read(**given: str) -> LedgerReadOptions:
        return read_options(LedgerReadOptions, {"uri": URI, **given}, where="bookkeeper").own

    assert read(query="q", commitPath="/c").committed == Owner(Kind.QUERY, "q")
    assert read(job="j").committed == Owner(Kind.JOB, "j")
    assert read(ledgers="7").committed is None
    for words in ({"ledgers": "7", "job": "j"}, {"query": "q", "job": "j"}):
        with pytest.raises(ConfigurationError, match="exclude each other"):
            read(**words)
    with pytest.raises(ConfigurationError, match=r"option ledgers of format bookkeeper: is missing.*or query, or job"):
        read()
    for word in ("query", "job"):
        read(**{word: "x"}).check_use(stream=False)
        with pytest.raises(ConfigurationError, match=f"{word} belongs to a batch read"):
            read(**{word: "x"}).check_use(stream=True)
