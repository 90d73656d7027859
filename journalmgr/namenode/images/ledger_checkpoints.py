"""Checkpoints in ledgers: every server of a group finds them where the journal is.

    ROOT/images/image_%019d        {"ledgerId": ..., "entries": ..., "bytes": ...}     JSON
    ROOT/images/notes              ledgers of images that are not listed, see `notes`

An image is one closed ledger; its znode comes last, so a listed image is whole. What a writer that dies before leaves
behind is deleted by whoever saves next, in any server (I-86).

ROOT is the journal's own znode; Hadoop's journal manager does not look at what else is below it, and removes it when it
formats the journal. Ours deletes the ledgers then, too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.write.new_ledger import ATTEMPTS_MAX, stride_after
from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.errors import LedgerIdOccupied, MetadataOutcomeUnknown
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists, Tree
from bookkeeper.model import DigestType
from journalmgr.errors import JournalUnavailable, SegmentUnreadable
from journalmgr.ledger.images import OWNER_KEY, ledger_in
from journalmgr.ledger.outcome import told
from journalmgr.namenode.images.checkpoints import Check, Checkpoint, image_name, passes, txid_of_image
from journalmgr.namenode.images.notes import ImageNotes

if TYPE_CHECKING:
    from bookkeeper.ports import Clock


class LedgerCheckpoints:
    """Images of the journal at `root`, in ledgers of the client's cluster. ledgers_root: znode of that cluster."""

    def __init__(
        self,
        client: LedgerClient,
        tree: Tree,
        clock: Clock,
        settings: MetadataSettings,
        root: str,
        ledgers_root: str,
        *,
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
    ) -> None:
        self._client, self._tree, self._clock, self._settings = client, tree, clock, settings
        self._root = root
        self._directory = f"{root}/images"
        self._quorums = (ensemble, write_quorum, ack_quorum)
        self._notes = ImageNotes(client, tree, self._errand, root, ledgers_root)

    @property
    def description(self) -> str:
        """See CheckpointStore."""
        return f"{self._tree.description}{self._directory}"

    def all(self) -> Deferred[list[Checkpoint]]:
        """See CheckpointStore."""
        return Deferred.fromCoroutine(self._all())

    async def _all(self) -> list[Checkpoint]:
        errand = self._errand("list the images")
        await errand.sync()  # who finds an image without its ledger looks here whether it was removed
        try:
            names = await errand.children(self._directory)
        except NodeAbsent:
            return []
        found = []
        for name in names:
            txid = txid_of_image(name)
            node = await errand.read_if_present(f"{self._directory}/{name}") if txid is not None else None
            if txid is not None and node is not None:
                found.append(Checkpoint(txid, name, ledger_in(node[0])))
        return sorted(found, key=lambda checkpoint: checkpoint.txid)

    async def read(self, checkpoint: Checkpoint) -> AsyncIterator[bytes]:
        """See CheckpointStore."""
        if checkpoint.ledger_id is None:
            raise SegmentUnreadable(
                f"{self._directory}/{checkpoint.name} does not say which ledger holds the image; restore it, or remove "
                "the znode if an older image will do"
            )
        # Nobody but who writes it opens a ledger before it is listed, and so closed: no writer is disturbed.
        with told(f"{self.description}/{checkpoint.name}, ledger {checkpoint.ledger_id}"):
            handle = await self._client.open(checkpoint.ledger_id, b"", DigestType.CRC32C)
            try:
                async for batch in handle.batches():
                    for entry in batch:
                        yield bytes(entry.payload)
            finally:
                handle.close()  # not awaited: a generator that nobody runs to its end cannot wait

    def write(self, txid: int, pieces: Iterator[bytes], check: Check) -> Deferred[Checkpoint]:
        """See CheckpointStore. Sweeps before."""
        return Deferred.fromCoroutine(self._write(txid, pieces, check))

    async def _write(self, txid: int, pieces: Iterator[bytes], check: Check) -> Checkpoint:
        await self._notes.sweep()
        listed = await self._listed(txid)
        if listed is not None:
            if await passes(self, listed, check):
                return listed
            await self._remove(listed)
        ledger_id, handle = await self._create()
        try:
            checkpoint = await self._write_noted(txid, ledger_id, handle, pieces, check)
        except Exception:  # not `finally`: what is dropped half-way, as of a dead process, cannot wait
            await self._notes.end(ledger_id)
            raise
        await self._notes.end(ledger_id)
        return checkpoint

    async def _create(self) -> tuple[int, WriteHandle]:
        """Note an id and create its ledger. An id that bookies know already is passed over, as by `create` itself."""
        first: int | None = None
        stride = 1
        for left in reversed(range(ATTEMPTS_MAX)):
            ledger_id = await self._notes.begin(stride)
            try:
                return ledger_id, await self._create_noted(ledger_id)
            except Exception as error:
                if not isinstance(error, MetadataOutcomeUnknown):  # otherwise a sweep finds out what exists
                    await self._notes.give_up(ledger_id)
                await self._notes.end(ledger_id)
                if not isinstance(error, LedgerIdOccupied) or not left:
                    raise
            self._client.context.ids_passed_over += 1
            first = ledger_id if first is None else first
            stride = stride_after(first, ledger_id)
        raise AssertionError("the last attempt returns or raises")

    async def _write_noted(
        self, txid: int, ledger_id: int, handle: WriteHandle, pieces: Iterator[bytes], check: Check
    ) -> Checkpoint:
        checkpoint = Checkpoint(txid, image_name(txid), ledger_id)
        try:
            data = await self._write_ledger(handle, pieces)
            await check(checkpoint, self.read(checkpoint))
            await self._notes.list(ledger_id, f"{self._directory}/{checkpoint.name}", data)
        except MetadataOutcomeUnknown:
            raise  # it may be listed: whoever sweeps sees whether it is
        except NodeExists as error:
            # Another server was faster with the same state; ours is not needed.
            await self._notes.give_up(ledger_id)
            listed = await self._listed(txid)
            if listed is not None and await passes(self, listed, check):
                return listed
            raise JournalUnavailable(
                f"{self.description}/{checkpoint.name} was listed by another server meanwhile, and is gone or damaged; "
                "try again"
            ) from error
        except Exception:  # whatever it was, what is half an image is nobody's
            await self._notes.give_up(ledger_id)
            raise
        return checkpoint

    async def _create_noted(self, ledger_id: int) -> WriteHandle:
        ensemble, write_quorum, ack_quorum = self._quorums
        return await self._client.create(
            ensemble=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest=DigestType.CRC32C,
            password=b"",
            custom={OWNER_KEY: self._root.encode()},
            ledger_id=ledger_id,
            metadata_version=3,
        )

    async def _write_ledger(self, handle: WriteHandle, pieces: Iterator[bytes]) -> bytes:
        """Write all pieces and close the ledger; return the content of the image's znode."""
        count = size = 0
        try:
            await self._notes.check(handle.ledger_id)
            for piece in pieces:
                await handle.append(piece)
                count, size = count + 1, size + len(piece)
            await handle.close()
        except Exception:
            handle.abort()
            raise
        return json.dumps({"ledgerId": handle.ledger_id, "entries": count, "bytes": size}).encode()

    async def _listed(self, txid: int) -> Checkpoint | None:
        name = image_name(txid)
        found = await self._errand(f"look for {name}").read_surely(f"{self._directory}/{name}")
        return None if found is None else Checkpoint(txid, name, ledger_in(found[0]))

    def remove(self, checkpoint: Checkpoint) -> Deferred[None]:
        """See CheckpointStore."""
        return Deferred.fromCoroutine(self._remove(checkpoint))

    async def _remove(self, checkpoint: Checkpoint) -> None:
        path = f"{self._directory}/{checkpoint.name}"
        errand = self._errand(f"remove {checkpoint.name}")
        found = await errand.read_surely(path)
        if found is None or ledger_in(found[0]) != checkpoint.ledger_id:
            return  # another is listed there by now
        try:
            if checkpoint.ledger_id is None:
                await errand.delete(path, found[1].version, found[1].creation_id)
            else:
                await self._notes.remove(path, found[1], checkpoint.ledger_id)
        except (NodeAbsent, NodeChanged):
            return  # another server was faster

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, f"{purpose} ({self._directory})")
