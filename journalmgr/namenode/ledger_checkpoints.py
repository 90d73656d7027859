"""Checkpoints in ledgers: every server of a group finds them where the journal is.

    ROOT/images/image_%019d        {"ledgerId": ..., "entries": ..., "bytes": ...}     JSON

An image is one closed ledger; its znode comes last, so a listed image is whole. A writer that dies before leaves a
ledger that no znode names: it says in its metadata whose it was (I-86), and `sweep` removes it once it is old.

ROOT is the journal's own znode; Hadoop's journal manager does not look at what else is below it, and removes it when it
formats the journal.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.errors import NoSuchLedger
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeAbsent, NodeExists, Tree
from bookkeeper.model import DigestType
from journalmgr.errors import SegmentUnreadable
from journalmgr.namenode.checkpoints import Checkpoint, image_name, txid_of_image

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

OWNER_KEY = "journalmgr.image"
"""Custom metadata of an image's ledger: the znode of the journal that it belongs to."""

CREATED_KEY = "journalmgr.image.created"
"""And when it was begun, milliseconds: whether a ledger's own metadata says so is up to the client's settings."""


class LedgerCheckpoints:
    """Images of the journal at `root`, in ledgers of the client's cluster. now_ms: wall clock."""

    def __init__(
        self,
        client: LedgerClient,
        tree: Tree,
        clock: Clock,
        settings: MetadataSettings,
        root: str,
        *,
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._client, self._tree, self._clock, self._settings = client, tree, clock, settings
        self._root = root
        self._now_ms = now_ms
        self._directory = f"{root}/images"
        self._quorums = (ensemble, write_quorum, ack_quorum)

    @property
    def description(self) -> str:
        """See CheckpointStore."""
        return f"{self._tree.description}{self._directory}"

    def all(self) -> Deferred[list[Checkpoint]]:
        """See CheckpointStore."""
        return Deferred.fromCoroutine(self._all())

    async def _all(self) -> list[Checkpoint]:
        errand = self._errand("list the images")
        try:
            names = await errand.children(self._directory)
        except NodeAbsent:
            return []
        found = []
        for name in names:
            txid = txid_of_image(name)
            node = await errand.read_if_present(f"{self._directory}/{name}") if txid is not None else None
            if txid is not None and node is not None:
                found.append(Checkpoint(txid, name, self._ledger_of(name, node[0])))
        return sorted(found)

    def _ledger_of(self, name: str, data: bytes) -> int:
        try:
            ledger_id = json.loads(data)["ledgerId"]
            if isinstance(ledger_id, int):
                return ledger_id
        except (ValueError, KeyError, TypeError):
            pass
        raise SegmentUnreadable(
            f"{self._directory}/{name} does not say which ledger holds the image: {data[:80]!r}; restore it, or "
            "remove the znode if an older image will do"
        )

    async def read(self, checkpoint: Checkpoint) -> AsyncIterator[bytes]:
        """See CheckpointStore."""
        assert checkpoint.ledger_id is not None
        try:
            handle = await self._client.open(checkpoint.ledger_id, b"", DigestType.CRC32C)
        except NoSuchLedger as error:
            raise SegmentUnreadable(
                f"{self.description}/{checkpoint.name}: its ledger {checkpoint.ledger_id} does not exist; remove the "
                "znode if an older image will do"
            ) from error
        try:
            async for batch in handle.batches():
                for entry in batch:
                    yield bytes(entry.payload)
        finally:
            handle.close()  # not awaited: a generator that nobody runs to its end cannot wait

    def write(self, txid: int, pieces: Iterator[bytes]) -> Deferred[Checkpoint]:
        """See CheckpointStore."""
        return Deferred.fromCoroutine(self._write(txid, pieces))

    async def _write(self, txid: int, pieces: Iterator[bytes]) -> Checkpoint:
        name = image_name(txid)
        path = f"{self._directory}/{name}"
        errand = self._errand(f"look for {name}")
        found = await errand.read_surely(path)
        if found is not None:
            return Checkpoint(txid, name, self._ledger_of(name, found[0]))
        ensemble, write_quorum, ack_quorum = self._quorums
        handle = await self._client.create(
            ensemble=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest=DigestType.CRC32C,
            password=b"",
            custom={OWNER_KEY: self._root.encode(), CREATED_KEY: b"%d" % self._now_ms()},
            metadata_version=3,
        )
        count = size = 0
        try:
            for piece in pieces:
                await handle.append(piece)
                count, size = count + 1, size + len(piece)
            await handle.close()
        except Exception:  # whatever it was, what is half an image is nobody's
            handle.abort()
            await self._drop(handle.ledger_id)
            raise
        data = json.dumps({"ledgerId": handle.ledger_id, "entries": count, "bytes": size}).encode()
        errand = self._errand(f"list {name}")
        await errand.ensure(self._directory)
        try:
            # Where it stays open whether the znode was made, the ledger stays: `sweep` decides later.
            await errand.create(path, data, lambda stored, _: stored == data)
        except NodeExists:
            # Another server was faster with the same state; ours is not needed.
            await self._drop(handle.ledger_id)
            found = await errand.read_surely(path)
            if found is None:
                raise
            return Checkpoint(txid, name, self._ledger_of(name, found[0]))
        return Checkpoint(txid, name, handle.ledger_id)

    def remove(self, checkpoint: Checkpoint) -> Deferred[None]:
        """See CheckpointStore."""
        return Deferred.fromCoroutine(self._remove(checkpoint))

    async def _remove(self, checkpoint: Checkpoint) -> None:
        path = f"{self._directory}/{checkpoint.name}"
        errand = self._errand(f"remove {checkpoint.name}")
        found = await errand.read_surely(path)
        if found is not None:
            await errand.delete(path, found[1].version, found[1].creation_id)
        if checkpoint.ledger_id is not None:
            await self._drop(checkpoint.ledger_id)

    async def _drop(self, ledger_id: int) -> None:
        try:
            await self._client.delete(ledger_id)
        except NoSuchLedger:
            return

    async def sweep(self, older_than_ms: int) -> list[int]:
        """Remove ledgers of images of this journal that no znode names and that were created before; their ids.

        older_than_ms: wall clock, milliseconds. An image under way is younger than any reasonable limit.
        """
        listed = {checkpoint.ledger_id for checkpoint in await self._all()}
        removed: list[int] = []
        async for ids in self._client.ids():
            for ledger_id in ids:
                if ledger_id in listed:
                    continue
                try:
                    metadata = await self._client.metadata(ledger_id)
                except NoSuchLedger:
                    continue
                ours = metadata.custom.get(OWNER_KEY) == self._root.encode()
                created = metadata.custom.get(CREATED_KEY, b"")
                if ours and created.isdigit() and int(created) < older_than_ms:
                    await self._drop(ledger_id)
                    removed.append(ledger_id)
        return removed

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, f"{purpose} ({self._directory})")
