"""Every client against every kind of bookie: see matrix.py for what a cell is, and the end of the run for the table.

Bookies of one column run at a time; one Java process for each release's client serves the whole run. Each cell makes
ledgers of its own.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pytest

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.model import DigestType
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.interop.matrix import (
    CELLS,
    MATRIX,
    Column,
    Matrix,
    Row,
    digests,
    entry_size_max,
    metadata_version,
    readers,
)
from tests.support.apache import ApacheClient, find_apache, running_bookies
from tests.support.apache.content import fingerprints, payloads

PASSWORD = "pass-word"
COUNT = 80
BATCH_COUNT, BATCH_SIZE = 20, 1 << 20


@dataclass(slots=True)
class Ground:
    """The bookies of a column, running, and our clients of them."""

    column: Column
    uri: str
    genuine: frozenset[str]
    """Ids of the genuine bookies."""
    clients: dict[int, BlockingBookKeeper] = field(default_factory=dict)

    @property
    def quorums(self) -> tuple[int, int, int]:
        """Ensemble, write quorum, ack quorum. A mixed ensemble takes all bookies, and so some of each kind."""
        return (4, 3, 2) if self.column.ours and self.genuine else (3, 2, 2)


class Grounds:
    """One column's bookies at a time. Not a parametrized fixture: pytest would start them anew for each cell."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._running = ExitStack()
        self._ground: Ground | None = None

    def of(self, column: Column) -> Ground:
        """The bookies of a column; those of another one end."""
        if self._ground is None or self._ground.column is not column:
            self.close()
            self._ground = self._start(column)
        return self._ground

    def close(self) -> None:
        """End what runs."""
        self._ground = None
        self._running.close()

    def _start(self, column: Column) -> Ground:
        genuine: frozenset[str] = frozenset()
        if column.release is None:
            cluster: LocalCluster = self._request.getfixturevalue("cluster")
        else:
            apache = find_apache(self._request.getfixturevalue("apache_home"), column.release.version)
            directory: Path = self._request.getfixturevalue("tmp_path_factory").mktemp("column")
            cluster = LocalCluster(
                2 if column.ours else 0,
                directory=directory,
                zookeeper=self._request.getfixturevalue("zookeeper").address,
                root=f"/{directory.name}-{os.getpid()}",
                settings=SESSION_TIMEOUT,
            )
            self._running.enter_context(cluster)
            count = 2 if column.ours else 3
            bookies = self._running.enter_context(running_bookies(apache, directory, cluster.uri, count))
            genuine = frozenset(bookie.bookie_id for bookie in bookies)
        ground = Ground(column, cluster.uri, genuine)
        for protocol in (2, 3):
            settings = ClientSettings(
                use_v2=protocol == 2, password=PASSWORD.encode(), read_timeout_base_s=REQUEST_TIMEOUT_S
            )
            ground.clients[protocol] = self._running.enter_context(connect(cluster.uri, settings))
        return ground


@pytest.fixture(scope="module")
def grounds(request: pytest.FixtureRequest) -> Iterator[Grounds]:
    grounds = Grounds(request)
    yield grounds
    grounds.close()


@pytest.fixture(scope="session")
def matrix(pytestconfig: pytest.Config) -> Matrix:
    return pytestconfig.stash[MATRIX]


@pytest.mark.parametrize(
    ("row", "column"),
    CELLS,
    ids=[f"{row.name} on {column.name}".replace(", ", "-").replace(" ", "-") for row, column in CELLS],
)
def test_what_a_client_writes_is_read_back_by_it_and_by_the_other_kind(
    row: Row, column: Column, grounds: Grounds, apache_clients: Callable[[str], ApacheClient], matrix: Matrix
) -> None:
    ground = grounds.of(column)
    writer = apache_clients(row.release.version) if row.release else None
    others = [apache_clients(release.version) for release in readers(row, column)]
    matrix.begin(row, column)
    in_common = digests(row, column)
    for seed, digest in enumerate(in_common):
        written = payloads(seed, COUNT, entry_size_max(row, column))
        if writer is None:
            ledger_id = we_write(row, ground, digest, written)
        else:
            ledger_id = they_write(row, ground, digest, seed, written, writer)
        with ground.clients[row.protocol].open(ledger_id) as ledger:
            assert ledger.length == sum(map(len, written))
            entries = list(ledger.entries())
            assert [entry.payload for entry in entries] == written
            assert [entry.length for entry in entries] == list(accumulate(map(len, written)))
            assert ledger.metadata.digest_type is digest
            if column.ours and ground.genuine:
                members = set(ledger.metadata.last_fragment.ensemble)
                assert members & ground.genuine
                assert members - ground.genuine
        for reader in [*others, *([writer] if writer else [])]:
            where = (ground.uri, row.protocol, digest.name, PASSWORD, ledger_id)
            assert reader.run("hashes", *where) == fingerprints(written)
            assert reader.run("lengths", *where) == [f"{entry.length}" for entry in entries]
            if reader.release.has_batch_read and row.protocol == 2:
                assert reader.run("batch", *where, BATCH_COUNT, BATCH_SIZE) == fingerprints(written)
    matrix.passed(row, column, COUNT * len(in_common), len(in_common))


def we_write(row: Row, ground: Ground, digest: DigestType, written: list[bytes]) -> int:
    ensemble, write_quorum, ack_quorum = ground.quorums
    with ground.clients[row.protocol].create(
        ensemble=ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest=digest,
        metadata_version=metadata_version(row, ground.column),
    ) as ledger:
        assert ledger.append_many(written) == range(COUNT)
    return ledger.id


def they_write(
    row: Row, ground: Ground, digest: DigestType, seed: int, written: list[bytes], writer: ApacheClient
) -> int:
    (ledger_id,) = writer.run("begin", ground.uri, row.protocol, digest.name, PASSWORD, *ground.quorums, 0)
    assert writer.run("fill", ledger_id, COUNT, seed, entry_size_max(row, ground.column)) == [f"{COUNT - 1}"]
    assert writer.run("close", ledger_id) == [f"{COUNT - 1} {sum(map(len, written))}"]
    return int(ledger_id)
