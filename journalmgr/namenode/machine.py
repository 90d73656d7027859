"""The namespace as the state machine of a replica: loaded from a checkpoint, moved on by transactions, saved again.

    standby, taking over   apply(batch)     what others logged
    active                 execute(ops)     logs and applies what `operations` made of a request: the same code applies

A checkpoint is written from the live namespace, piece by piece: a standby holds transactions back meanwhile, and gives
it up when its turn comes; from then on nothing waits for it, not even for the piece that is being written. Before it is
listed it is read back and decoded. The active takes none: what it applied last may not be durable yet.

An image that cannot be read (damaged, cut short, without its ledger) is passed over for the one before it, loudly: that
one does as long as the journal still has the edits behind it. Trouble that may pass is no reason to pass one over.
Thread: reactor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import InvalidArgument
from journalmgr.contract import RecordBatch
from journalmgr.edits.codec import decode
from journalmgr.errors import JournalError, JournalUnavailable, NamespaceMismatch
from journalmgr.model import HADOOP_2_7, NamespaceInfo, TxId
from journalmgr.namenode.errors import ImageCorrupt
from journalmgr.namenode.images.checkpoints import UNREADABLE, Checkpoint, CheckpointStore
from journalmgr.namenode.images.format import Image, ImageDecoder, ImageVerifier, encode
from journalmgr.namenode.namespace.apply import apply
from journalmgr.namenode.namespace.tree import Namespace

if TYPE_CHECKING:
    from journalmgr.edit_log import EditLog
    from journalmgr.edits.ops import Op

log = Logger()

REMOVED_MAX = 16
"""Images that may be removed under who loads them before it is told to try again later."""


class CheckpointGivenUp(JournalError):
    """Something more urgent came; the next one will do."""

    retriable = True


class NoCheckpointLoads(JournalError):
    """There are images, and none of them can be read."""


class _Saving:
    """A checkpoint that is being written. holds: transactions wait for it."""

    def __init__(self) -> None:
        self.given_up = False
        self.holds = True
        self._waiting: list[Deferred[None]] = []

    def wait(self) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def release(self) -> None:
        self.holds = False
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)


class NamespaceMachine:
    """See StateMachine of `journalmgr.replica`.

    info: the namespace that the journal was formatted for; an image of another is refused.
    """

    def __init__(self, checkpoints: CheckpointStore, info: NamespaceInfo, layout_version: int = HADOOP_2_7) -> None:
        self.namespace = Namespace()
        self.checkpoints = checkpoints
        self.checkpoint_txid = 0
        self._info = info
        self._layout_version = layout_version
        self._saving: _Saving | None = None
        self._urgent = 0  # how often something more urgent came

    # --- loading

    def load(self) -> Deferred[int]:
        """Forget everything and load the newest image that can be read; the last txid it covers, 0 without any.

        Fails with NoCheckpointLoads, NamespaceMismatch, and as reading them does where that may pass.
        """
        return Deferred.fromCoroutine(self._load())

    async def _load(self) -> int:
        self.give_up_checkpoint()
        unreadable: dict[Checkpoint, str] = {}
        removed = 0
        while images := [found for found in await self.checkpoints.all() if found not in unreadable]:
            newest = images[-1]
            try:
                image = await self._decode(newest, self.checkpoints.read(newest), ImageDecoder)
            except UNREADABLE as error:
                if newest in await self.checkpoints.all():
                    log.error("The checkpoint {image} cannot be read: {error}", image=newest.name, error=error)
                    unreadable[newest] = str(error)
                    continue
                removed += 1  # another server has newer ones, and no use for this one any more: what is listed now?
                if removed < REMOVED_MAX:
                    continue
                raise JournalUnavailable(
                    f"{self._source(newest)} was removed while it was loaded, as {removed - 1} before it; try again"
                ) from error
            self.namespace, self.checkpoint_txid = image.namespace, newest.txid
            log.info("Loaded {image}, txid {txid}", image=self._source(newest), txid=newest.txid)
            if unreadable:
                log.error(
                    "{count} newer checkpoints could not be read: the journal has to have all from txid {txid} on",
                    count=len(unreadable),
                    txid=newest.txid + 1,
                )
            return newest.txid
        if unreadable:
            raise NoCheckpointLoads(
                f"none of the checkpoints in {self.checkpoints.description} can be read: "
                + "; ".join(f"{image.name} ({why})" for image, why in sorted(unreadable.items()))
                + "; restore one of them, or, if the journal still begins with txid 1, remove them all: then all of it "
                "is replayed"
            )
        self.namespace, self.checkpoint_txid = Namespace(), 0
        return 0

    def verify(self, checkpoint: Checkpoint) -> Deferred[None]:
        """Read an image that is listed, and check that it is still what was written. Keeps nothing of it.

        Fails with what `checkpoints.UNREADABLE` names, NamespaceMismatch, as reading does where that may pass, and with
        CheckpointGivenUp: something more urgent needs the processor, as it does when a checkpoint is being written.
        """
        return Deferred.fromCoroutine(self._verify(checkpoint))

    async def _verify(self, checkpoint: Checkpoint) -> None:
        begun = self._urgent
        pieces = self.checkpoints.read(checkpoint)
        await self._decode(checkpoint, pieces, ImageVerifier, lambda: self._urgent != begun)

    async def _decode(
        self,
        checkpoint: Checkpoint,
        pieces: AsyncIterator[bytes],
        kind: type[ImageDecoder],
        given_up: Callable[[], bool] = lambda: False,
    ) -> Image:
        source = self._source(checkpoint)
        decoder = kind(source)
        async for piece in pieces:
            if given_up():
                raise CheckpointGivenUp(f"reading {source} back was given up")
            decoder.feed(piece)
        image = decoder.finish()
        stored = (image.namespace_id, image.cluster_id, image.block_pool_id)
        if stored != (self._info.namespace_id, self._info.cluster_id, self._info.block_pool_id):
            raise NamespaceMismatch(
                f"{source} is an image of namespace id {image.namespace_id}, cluster {image.cluster_id}, block pool "
                f"{image.block_pool_id}; the journal belongs to {self._info}"
            )
        if image.namespace.last_txid != checkpoint.txid:
            raise ImageCorrupt(
                f"it covers the transactions up to txid {image.namespace.last_txid}, its name says {checkpoint.txid}",
                offset=0,
                source=source,
            )
        return image

    def _source(self, checkpoint: Checkpoint) -> str:
        return f"{self.checkpoints.description}/{checkpoint.name}"

    # --- transactions

    def apply(self, batch: RecordBatch) -> Deferred[None] | None:
        """Apply transactions of the journal; at once, or when the checkpoint under way needs the state no more.

        Raises ReplayError, SnapshotsRefused, EditsError; what was before the faulty one stays applied.
        """
        if self._saving is None or not self._saving.holds:
            self._apply(batch)
            return None
        return self._saving.wait().addCallback(lambda _: self._apply(batch))

    def _apply(self, batch: RecordBatch) -> None:
        namespace, layout_version, source = self.namespace, batch.segment.layout_version, batch.segment.name
        for record in batch.records:
            apply(decode(record, layout_version, source), namespace)

    def execute(self, edit_log: EditLog, ops: Sequence[Op]) -> TxId:
        """Log operations of one request, all or none, and apply them; the last txid. It is done once that is durable.

        They were checked against this very state. One that does not apply all the same is a fault of ours: the log is
        given up, for it says what this server is not.
        """
        last = self.keep_up(edit_log)
        if not ops:
            return last
        txid = edit_log.log_ops(ops)
        try:
            for op in ops:
                apply(op, self.namespace)
        except BaseException:
            edit_log.abort()
            raise
        return txid

    def keep_up(self, edit_log: EditLog) -> TxId:
        """Count the START and END of segments, which the active's log writes itself; the last txid.

        They change nothing else, and all else that was logged has been applied.
        """
        txid = TxId(edit_log.next_txid - 1)
        self.namespace.last_txid = txid
        return txid

    # --- saving

    @property
    def saving(self) -> bool:
        """A checkpoint is being written."""
        return self._saving is not None

    def checkpoint(self) -> Deferred[Checkpoint]:
        """Save an image of what is applied now; transactions wait until all of it is handed over, or it is given up.

        It is listed once it was read back and decoded, for which there has to be room for a second namespace. Fails
        with CheckpointGivenUp, ImageError, JournalError. Not for the active: see above.
        """
        return Deferred.fromCoroutine(self._checkpoint())

    async def _checkpoint(self) -> Checkpoint:
        if self._saving is not None:
            raise InvalidArgument("a checkpoint is being written already")
        saving = self._saving = _Saving()
        txid = self.namespace.last_txid

        async def check(checkpoint: Checkpoint, pieces: AsyncIterator[bytes]) -> None:
            await self._decode(checkpoint, pieces, ImageDecoder, lambda: saving.given_up)

        try:
            checkpoint = await self.checkpoints.write(txid, self._pieces(saving), check)
        finally:
            self._saving = None
            saving.release()
        self.checkpoint_txid = max(self.checkpoint_txid, checkpoint.txid)
        log.info("Saved {image}, txid {txid}", image=checkpoint.name, txid=checkpoint.txid)
        return checkpoint

    def _pieces(self, saving: _Saving) -> Iterator[bytes]:
        txid = self.namespace.last_txid
        pieces = encode(self.namespace, self._info, self._layout_version)
        while True:
            # Before the next one is made: from then on the namespace is not what is being saved.
            if saving.given_up:
                raise CheckpointGivenUp(f"the checkpoint of txid {txid} was given up")
            piece = next(pieces, None)
            if piece is None:
                break
            yield piece
        saving.release()

    def give_up_checkpoint(self) -> None:
        """Something more urgent comes: transactions go on at once. Harmless when there is no checkpoint under way."""
        self._urgent += 1
        if self._saving is not None:
            self._saving.given_up = True
            self._saving.release()
