"""The namespace as the state machine of a replica: loaded from a checkpoint, moved on by transactions, saved again.

    standby, taking over   apply(batch)     what others logged
    active                 execute(ops)     logs and applies what `operations` made of a request: the same code applies

A checkpoint is written from the live namespace, piece by piece: a standby holds transactions back meanwhile, and gives
it up when its turn comes. The active takes none: what it applied last may not be durable yet.
Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import InvalidArgument
from journalmgr.contract import RecordBatch
from journalmgr.edits.codec import decode
from journalmgr.errors import JournalError, NamespaceMismatch
from journalmgr.model import HADOOP_2_7, NamespaceInfo, TxId
from journalmgr.namenode.apply import apply
from journalmgr.namenode.checkpoints import Checkpoint, CheckpointStore
from journalmgr.namenode.image_format import ImageDecoder, encode
from journalmgr.namenode.namespace import Namespace

if TYPE_CHECKING:
    from journalmgr.edit_log import EditLog
    from journalmgr.edits.ops import Op

log = Logger()


class CheckpointGivenUp(JournalError):
    """Something more urgent came; the next one will do."""

    retriable = True


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
        self._saving: Deferred[None] | None = None
        self._given_up = False

    # --- loading

    def load(self) -> Deferred[int]:
        """Forget everything and load the newest image; fires with the last txid that it covers, 0 without any."""
        return Deferred.fromCoroutine(self._load())

    async def _load(self) -> int:
        self.give_up_checkpoint()
        images = await self.checkpoints.all()
        if not images:
            self.namespace, self.checkpoint_txid = Namespace(), 0
            return 0
        newest = images[-1]
        source = f"{self.checkpoints.description}/{newest.name}"
        decoder = ImageDecoder(source)
        async for piece in self.checkpoints.read(newest):
            decoder.feed(piece)
        image = decoder.finish()
        stored = (image.namespace_id, image.cluster_id, image.block_pool_id)
        if stored != (self._info.namespace_id, self._info.cluster_id, self._info.block_pool_id):
            raise NamespaceMismatch(
                f"{source} is an image of namespace id {image.namespace_id}, cluster {image.cluster_id}, block pool "
                f"{image.block_pool_id}; the journal belongs to {self._info}"
            )
        self.namespace, self.checkpoint_txid = image.namespace, newest.txid
        log.info("Loaded {image}, txid {txid}", image=source, txid=newest.txid)
        return newest.txid

    # --- transactions

    def apply(self, batch: RecordBatch) -> Deferred[None] | None:
        """Apply transactions of the journal; at once, or when the checkpoint under way is done.

        Raises ReplayError, SnapshotsRefused, EditsError; what was before the faulty one stays applied.
        """
        if self._saving is None:
            self._apply(batch)
            return None
        waiting: Deferred[None] = Deferred()
        self._saving.chainDeferred(waiting)
        return waiting.addCallback(lambda _: self._apply(batch))

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
        """Save an image of what is applied now; transactions wait until it is done or given up.

        Fails with CheckpointGivenUp, JournalError. Not for the active: see above.
        """
        return Deferred.fromCoroutine(self._checkpoint())

    async def _checkpoint(self) -> Checkpoint:
        if self._saving is not None:
            raise InvalidArgument("a checkpoint is being written already")
        saving: Deferred[None] = Deferred()
        self._saving, self._given_up = saving, False
        txid = self.namespace.last_txid
        try:
            checkpoint = await self.checkpoints.write(txid, self._pieces())
        finally:
            self._saving = None
            saving.callback(None)
        self.checkpoint_txid = checkpoint.txid
        log.info("Saved {image}, txid {txid}", image=checkpoint.name, txid=checkpoint.txid)
        return checkpoint

    def _pieces(self) -> Iterator[bytes]:
        for piece in encode(self.namespace, self._info, self._layout_version):
            if self._given_up:
                raise CheckpointGivenUp(f"the checkpoint of txid {self.namespace.last_txid} was given up")
            yield piece

    def give_up_checkpoint(self) -> None:
        """Something more urgent comes: transactions go on with the next piece. Harmless when there is none."""
        self._given_up = True
