"""What the interop tests share: the genuine jars, the genuine client in one Java process, our cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.embedded.cluster import LocalCluster
from tests.support.apache import Apache, ApacheClient, find_apache

SESSION_TIMEOUT = {"zkTimeout": "2000"}
"""A killed bookie's registration stands in the way of the next one until its session ends."""


@pytest.fixture(scope="session")
def apache(apache_home: Path | None) -> Apache:
    return find_apache(apache_home)


@pytest.fixture(scope="session")
def apache_client(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheClient]:
    with ApacheClient(apache, tmp_path_factory.mktemp("apache") / "client.log") as client:
        yield client


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies of ours; tests only add ledgers."""
    with LocalCluster(3, directory=tmp_path_factory.mktemp("cluster"), settings=SESSION_TIMEOUT) as local:
        yield local
