"""What writes of Spark have left in a cluster: which ledgers there are, and which of them anything names."""

from __future__ import annotations

import itertools

from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.spark.sink.history import commits_of_query
from bookkeeper.spark.sink.purpose import Fate, is_ours
from bookkeeper.spark.sink.sweep import sweep


def ledgers_of(client: BlockingBookKeeper, commits: str) -> set[int]:
    """All ledgers that tasks wrote for a commitPath."""
    found = set()
    for ledger_id in itertools.chain.from_iterable(client.ids()):
        custom = client.metadata(ledger_id).custom
        if is_ours(custom) and custom["spark.commits"] == commits.encode():
            found.add(int(ledger_id))
    return found


def named_by(cluster: LocalCluster, commits: str, query: str) -> set[int]:
    """Those that a query's commits name."""
    found = commits_of_query(cluster.uri, query, commit_path=commits)
    return {ledger.ledger_id for commit in found for ledger in commit.ledgers}


def check_nothing_is_left(cluster: LocalCluster, client: BlockingBookKeeper, commits: str, named: set[int]) -> None:
    """After a sweep of everything that is not committed there are the committed ledgers, and no others."""
    sweep(cluster.uri, commit_path=commits, older_than_s=0)
    assert ledgers_of(client, commits) == named
    again = sweep(cluster.uri, commit_path=commits, older_than_s=0)
    assert (again.orphans, again.left) == ((), {Fate.COMMITTED: len(named)})
