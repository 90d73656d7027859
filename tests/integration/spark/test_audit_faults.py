"""A cluster of a thousand ledgers with twelve faults of six kinds: the audit finds all of them, and nothing else.

kind        two ledgers each; planted by
bad         a byte changed on the disk of a bookie
missing     metadata that name a bookie which never had anything of the ledger
divergent   such a bookie, given another entry with a good digest
unknown     a bookie that is killed
lost        metadata that name such bookies only
length      metadata that say another length
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.spark.audit.repairs import queue_repairs
from bookkeeper.spark.audit.report import audit
from tests.support.audit_faults import change_bytes, change_metadata, give, ledgers_by_kind, until_mended
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

LEDGERS = 1000
ENTRIES = 20
SLOW_BOOKIES = {"readTimeout": 60}
"""Long enough that only the killed bookie is unknown, and not a bookie that pauses for seconds."""

KINDS = ("bad", "missing", "divergent", "unknown", "lost", "length")


@dataclass
class Staged:
    """ledger_ids: all. faulty: by kind. bookies: who has what: three members, a member of two ledgers, two spares."""

    cluster: LocalCluster
    client: BlockingBookKeeper
    ledger_ids: list[int] = field(default_factory=list)
    faulty: dict[str, list[int]] = field(default_factory=dict)

    @property
    def members(self) -> list[LocalBookie]:
        return self.cluster.bookies[:3]

    @property
    def mortal(self) -> LocalBookie:
        return self.cluster.bookies[3]

    @property
    def spares(self) -> list[LocalBookie]:
        return self.cluster.bookies[4:]


@pytest.fixture
def staged(zookeeper: Any, tmp_path: Any) -> Iterator[Staged]:
    root = f"/audit-faults-{os.getpid()}-{os.urandom(3).hex()}"
    settings = {
        **STEADY,
        "autoRecoveryDaemonEnabled": "true",
        "auditorPeriodicCheckInterval": "0",
        "auditorPeriodicPlacementPolicyCheckInterval": "0",
        "flushInterval": "200",
    }
    with (
        local_cluster(zookeeper.address, root, 7, directory=tmp_path, settings=settings) as cluster,
        bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as client,
    ):
        client.run(lambda ledgers: ledgers.store.underreplication.disable())
        yield Staged(cluster, client)


def fill(staged: Staged) -> None:
    """The ledgers; those that get faults are spread among them."""
    names = [bookie.bookie_id for bookie in staged.members]
    step = LEDGERS // (2 * len(KINDS))
    for number in range(LEDGERS):
        kind = KINDS[number // step % len(KINDS)] if number % step == 0 and number // step < 2 * len(KINDS) else None
        members = [*names[:2], staged.mortal.bookie_id] if kind == "unknown" else names
        with staged.client.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=members) as ledger:
            ledger.append_many([b"%d of the %d." % (entry, number) for entry in range(ENTRIES)])
            staged.ledger_ids.append(ledger.id)
        if kind is not None:
            staged.faulty.setdefault(kind, []).append(ledger.id)


def plant(staged: Staged) -> None:
    """All but what is damaged on disks, which needs a restart, and the dead bookie."""
    client, names = staged.client, [bookie.bookie_id for bookie in staged.members]
    one, two, three = (bookie.bookie_id for bookie in staged.spares)
    for ledger_id in staged.faulty["missing"]:
        change_metadata(client, ledger_id, members=[names[0], one, names[2]])
    for ledger_id in staged.faulty["divergent"]:
        number = staged.ledger_ids.index(ledger_id)
        payloads = [b"%d of the %d." % (entry, number) for entry in range(ENTRIES)]
        give(staged.spares[1].port, client, ledger_id, [*payloads[:7], b"another one", *payloads[8:]])
        change_metadata(client, ledger_id, members=[names[0], names[1], two])
    for ledger_id in staged.faulty["lost"]:
        change_metadata(client, ledger_id, members=[one, two, three])
    for ledger_id in staged.faulty["length"]:
        length = client.metadata(ledger_id).length
        assert length is not None
        change_metadata(client, ledger_id, length=length + 1)
    numbers = [staged.ledger_ids.index(ledger_id) for ledger_id in staged.faulty["bad"]]
    change_bytes(staged.members[1], [b"5 of the %d." % number for number in numbers])
    staged.mortal.kill()


def test_twelve_faults_of_six_kinds_are_found_among_a_thousand_ledgers_and_nothing_else(staged: Staged) -> None:
    spark = spark_session()
    fill(staged)
    assert audit(spark, staged.cluster.uri, options=SLOW_BOOKIES).is_clean
    plant(staged)
    first = audit(spark, staged.cluster.uri, options=SLOW_BOOKIES)
    assert (first.ledgers, first.entries, first.copies) == (LEDGERS, LEDGERS * ENTRIES, LEDGERS * ENTRIES * 3)
    expected = {kind: set(ledger_ids) for kind, ledger_ids in staged.faulty.items()}
    assert all(len(ledger_ids) == 2 for ledger_ids in expected.values())
    found = ledgers_by_kind(first)
    # Where every copy is lost each of them is missing, too. A bookie refuses a damaged page of its log as a whole:
    # what lies beside the two changed entries is as unreadable as they are.
    assert found["missing"] == expected["missing"] | expected["lost"]
    assert found["bad"] >= expected["bad"]
    bad = first.findings.where("kind = 'bad'").collect()
    assert {row.bookie for row in bad} == {staged.members[1].bookie_id}
    assert {kind: found[kind] for kind in ("divergent", "unknown", "lost", "length")} == {
        kind: expected[kind] for kind in ("divergent", "unknown", "lost", "length")
    }
    assert {row.bookie for row in first.findings.where("kind = 'unknown'").collect()} == {staged.mortal.bookie_id}
    [divergent] = first.findings.where(f"kind = 'divergent' AND ledger_id = {min(expected['divergent'])}").collect()
    assert (divergent.first_entry_id, divergent.last_entry_id) == (7, 7)
    assert found["no_data"] == expected["lost"]
    assert set(found) == {*KINDS, "no_data"}

    queue_repairs(first, staged.cluster.uri)
    staged.client.run(lambda ledgers: ledgers.store.underreplication.enable())
    wanted = sorted(found["bad"] | expected["missing"])
    until_mended(staged.client, wanted)
    options = {**SLOW_BOOKIES, "ledgers": ",".join(map(str, wanted))}
    second = ledgers_by_kind(audit(spark, staged.cluster.uri, options=options))
    assert second == {}, "what has a good copy was written anew"
