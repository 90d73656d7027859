"""Journals of edits, for the tests that read them with Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bookkeeper.embedded.cluster import LocalCluster
from tests.conftest import ZooKeeperServer
from tests.support.cluster import STEADY, local_cluster
from tests.support.edit_journals import EditJournal


@pytest.fixture(scope="module")
def journal_cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies for the journals of a module."""
    root = f"/journals-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("journals")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture
def journal(journal_cluster: LocalCluster, zookeeper: ZooKeeperServer) -> Iterator[EditJournal]:
    """A journal of its own for each test."""
    with EditJournal(zookeeper.address, "/" + journal_cluster.uri.rpartition("/")[2]) as made:
        yield made
