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

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from twisted.internet.defer import Deferred

import bookkeeper.blocking
from bookkeeper.client.blocking import BlockingBookKeeper
from bookkeeper.client.client import LedgerClient
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.model import BookieId, Fragment, LedgerId
from bookkeeper.spark.audit.repairs import queue_repairs
from bookkeeper.spark.audit.report import audit
from bookkeeper.wire.codec import request_encoder
from bookkeeper.wire.digest import digest_of, master_key
from tests.support.cluster import RawClient, local_cluster
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(400)

LEDGERS = 1000
ENTRIES = 20
KINDS = ("bad", "missing", "divergent", "unknown", "lost", "length")
MENDED_S = 120.0


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
        "autoRecoveryDaemonEnabled": "true",
        "auditorPeriodicCheckInterval": "0",
        "auditorPeriodicPlacementPolicyCheckInterval": "0",
        "flushInterval": "200",
    }
    with (
        local_cluster(zookeeper.address, root, 7, directory=tmp_path, settings=settings) as cluster,
        bookkeeper.blocking.connect(cluster.uri) as client,
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


def change_metadata(client: BlockingBookKeeper, ledger_id: int, **to: Any) -> None:
    """Write other metadata of a ledger. members: the new ones; else fields."""

    async def change(ledgers: LedgerClient) -> None:
        store = ledgers.store.ledgers
        seen = await store.read(LedgerId(ledger_id))
        if "members" in to:
            ensemble = tuple(BookieId(name) for name in to.pop("members"))
            to["fragments"] = tuple(Fragment(each.first_entry_id, ensemble) for each in seen.value.fragments)
        await store.write(LedgerId(ledger_id), dataclasses.replace(seen.value, **to), seen.version)

    client.run(lambda ledgers: Deferred.fromCoroutine(change(ledgers)))


def change_bytes(bookie: LocalBookie, payloads: list[bytes]) -> None:
    """A byte of each of these payloads, with the bookie stopped."""
    assert bookie.stop() == 0
    (path,) = bookie.directory.rglob("ledgers/current/*.log")
    data = path.read_bytes()
    with path.open("r+b") as file:
        for payload in payloads:
            at = data.index(payload)
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))
    bookie.start()


def store(bookie: LocalBookie, client: BlockingBookKeeper, ledger_id: int, payloads: list[bytes]) -> None:
    """Give a bookie entries of a ledger, as a repair does, whatever they are."""
    metadata = client.metadata(ledger_id)
    assert metadata.digest_type is not None
    assert metadata.password is not None
    digest = digest_of(metadata.digest_type, metadata.password)
    bodies = [digest.package_entry(ledger_id, entry, -1, 0, payload) for entry, payload in enumerate(payloads)]
    frames = request_encoder(2).encode_adds(
        ledger_id, master_key(metadata.password), list(range(len(bodies))), bodies, recovery=True
    )[1]
    with RawClient(bookie.port) as raw:
        raw.send(b"".join(frames))
        assert sorted(raw.acknowledged(len(bodies))) == list(range(len(bodies)))


def plant(staged: Staged) -> None:
    """All but what is damaged on disks, which needs a restart, and the dead bookie."""
    client, names = staged.client, [bookie.bookie_id for bookie in staged.members]
    one, two, three = (bookie.bookie_id for bookie in staged.spares)
    for ledger_id in staged.faulty["missing"]:
        change_metadata(client, ledger_id, members=[names[0], one, names[2]])
    for ledger_id in staged.faulty["divergent"]:
        number = staged.ledger_ids.index(ledger_id)
        payloads = [b"%d of the %d." % (entry, number) for entry in range(ENTRIES)]
        store(staged.spares[1], client, ledger_id, [*payloads[:7], b"another one", *payloads[8:]])
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


def ledgers_by_kind(found: Any) -> Mapping[str, set[int]]:
    by_kind: dict[str, set[int]] = {}
    for row in found.findings.select("kind", "ledger_id").collect():
        by_kind.setdefault(row.kind, set()).add(row.ledger_id)
    return by_kind


def test_twelve_faults_of_six_kinds_are_found_among_a_thousand_ledgers_and_nothing_else(staged: Staged) -> None:
    spark = spark_session()
    fill(staged)
    assert audit(spark, staged.cluster.uri).is_clean
    plant(staged)
    first = audit(spark, staged.cluster.uri)
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
    assert set(found) == set(KINDS)

    queue_repairs(first, staged.cluster.uri)
    staged.client.run(lambda ledgers: ledgers.store.underreplication.enable())
    deadline = time.monotonic() + MENDED_S
    wanted = sorted(found["bad"] | expected["missing"])
    while _queued(staged.client, wanted):
        assert time.monotonic() < deadline, "the workers have not taken the reports away"
    second = ledgers_by_kind(audit(spark, staged.cluster.uri, options={"ledgers": ",".join(map(str, wanted))}))
    assert second == {}, "what has a good copy was written anew"


def _queued(client: BlockingBookKeeper, ledger_ids: list[int]) -> list[int]:
    async def look(ledgers: LedgerClient) -> list[int]:
        bad = ledgers.store.underreplication
        return [id_ for id_ in ledger_ids if await bad.bad_copies(LedgerId(id_)) is not None]

    return client.run(lambda ledgers: Deferred.fromCoroutine(look(ledgers)))
