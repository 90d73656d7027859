"""Ledgers, and what can be wrong with them: for tests of whatever looks for it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalBookie
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.ledgers.paths import ledger_path
from bookkeeper.metadata.zookeeper import ZooKeeperStore
from bookkeeper.model import BookieId, Fragment, LedgerId
from bookkeeper.wire.codec import request_encoder
from bookkeeper.wire.digest import digest_of, master_key
from tests.support.cluster import RawClient

MENDED_S = 120.0


def written(client: BlockingBookKeeper, count: int, word: bytes = b"entry", **how: Any) -> int:
    """A closed ledger of entries `word` and their number."""
    with client.create(**how) as ledger:
        for first in range(0, count, 1000):
            ledger.append_many([b"%s %d" % (word, number) for number in range(first, min(count, first + 1000))])
        return ledger.id


def change_metadata(client: BlockingBookKeeper, ledger_id: int, **to: Any) -> None:
    """Write other metadata of a ledger. members: the new ones, by position or by old name; else fields."""

    async def change(ledgers: LedgerClient) -> None:
        store = ledgers.store.ledgers
        seen = await store.read(LedgerId(ledger_id))
        members = to.pop("members", None)
        if members is not None:
            to["fragments"] = tuple(
                Fragment(each.first_entry_id, _replaced(each.ensemble, members)) for each in seen.value.fragments
            )
        await store.write(LedgerId(ledger_id), dataclasses.replace(seen.value, **to), seen.version)

    client.run(lambda ledgers: Deferred.fromCoroutine(change(ledgers)))


def damage_metadata(client: BlockingBookKeeper, root: str, ledger_id: int) -> None:
    """Write what nobody can read in place of a ledger's metadata. root: of the ledgers, in ZooKeeper."""

    def start(ledgers: LedgerClient) -> Deferred[Any]:
        assert isinstance(ledgers.store, ZooKeeperStore)
        tree = ledgers.store.tree
        path = f"{root}{ledger_path(LayoutKind.HIERARCHICAL, ledger_id)}"
        return tree.read(path).addCallback(lambda found: tree.write(path, b"nonsense", found[1].version))

    client.run(start)


def _replaced(ensemble: Iterable[str], members: Iterable[str] | Mapping[str, str]) -> tuple[BookieId, ...]:
    if isinstance(members, Mapping):
        return tuple(BookieId(members.get(name, name)) for name in ensemble)
    return tuple(map(BookieId, members))


def change_bytes(bookie: LocalBookie, payloads: Iterable[bytes], *, restart: bool = True) -> None:
    """Change the first byte of each of these payloads in the only entry log of a bookie, with the bookie stopped."""
    if bookie.running:
        assert bookie.stop() == 0
    (path,) = bookie.directory.rglob("ledgers/current/*.log")
    data = path.read_bytes()
    with path.open("r+b") as file:
        for payload in payloads:
            at = data.index(payload)
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))
    if restart:
        bookie.start()


def give(port: int, client: BlockingBookKeeper, ledger_id: int, payloads: Sequence[bytes]) -> None:
    """Give a bookie entries of a ledger, as a repair does, whatever they are."""
    metadata = client.metadata(ledger_id)
    assert metadata.digest_type is not None
    assert metadata.password is not None
    digest = digest_of(metadata.digest_type, metadata.password)
    bodies = [digest.package_entry(ledger_id, entry, -1, 0, payload) for entry, payload in enumerate(payloads)]
    frames = request_encoder(2).encode_adds(
        ledger_id, master_key(metadata.password), list(range(len(bodies))), bodies, recovery=True
    )[1]
    with RawClient(port) as raw:
        raw.send(b"".join(frames))
        assert sorted(raw.acknowledged(len(bodies))) == list(range(len(bodies)))


def ledgers_by_kind(found: Any) -> Mapping[str, set[int]]:
    """Which ledgers an audit found something about."""
    by_kind: dict[str, set[int]] = {}
    for row in found.findings.select("kind", "ledger_id").collect():
        by_kind.setdefault(row.kind, set()).add(row.ledger_id)
    return by_kind


def until_mended(client: BlockingBookKeeper, ledger_ids: Iterable[int]) -> None:
    """Return when no report of bad copies of these ledgers is queued any more."""
    deadline = time.monotonic() + MENDED_S
    while _queued(client, ledger_ids):
        assert time.monotonic() < deadline, "the workers have not taken the reports away"


def _queued(client: BlockingBookKeeper, ledger_ids: Iterable[int]) -> list[int]:
    async def look(ledgers: LedgerClient) -> list[int]:
        bad = ledgers.store.underreplication
        return [id_ for id_ in ledger_ids if await bad.bad_copies(LedgerId(id_)) is not None]

    return client.run(lambda ledgers: Deferred.fromCoroutine(look(ledgers)))
