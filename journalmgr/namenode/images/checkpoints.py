"""Where checkpoints are kept: images of the whole state, each as it was after one transaction.

    directory      image_%019d beside each other, written under another name, synced, renamed
    ledgers        an image is a ledger, listed by a znode: every server of a group has it (`ledger_checkpoints`)

An image is listed only once it is whole and durable, and was read back by who saved it. It may be damaged later, so
who purges looks at it again (`schedule`). One that is listed under a txid already stays, unless it turns out to be
damaged: then it makes room.

Pieces are written one after the other, with the reactor in between: an image is never whole in memory.
"""

from __future__ import annotations

import errno
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.filesystem import File, FileSystem, OpenMode
from journalmgr.errors import JournalError, SegmentUnreadable
from journalmgr.namenode.errors import ImageError

if TYPE_CHECKING:
    from bookkeeper.ports import Worker

log = Logger()

T = TypeVar("T")

READ_SIZE = 1024 * 1024

UNREADABLE = (ImageError, SegmentUnreadable)
"""What reading an image fails with when trying again does not help: it is damaged, or is not there any more."""

_GONE_OR_DAMAGED = frozenset({errno.ENOENT, errno.EIO})

_NAME = re.compile(r"image_(\d{19})")
_UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """One image. txid: the last transaction it covers. name: of the file or znode. ledger_id: where it is, if so."""

    txid: int
    name: str
    ledger_id: int | None = None


Check = Callable[[Checkpoint, AsyncIterator[bytes]], Awaitable[None]]
"""Reads an image back before it is listed. Fails with one of UNREADABLE where it is not what was to be written."""


class CheckpointStore(Protocol):
    """Images by txid. Fails with JournalError or the errors of the store below."""

    @property
    def description(self) -> str:
        """Where, for messages."""

    def all(self) -> Deferred[list[Checkpoint]]:
        """All that are whole, by txid."""

    def read(self, checkpoint: Checkpoint) -> AsyncIterator[bytes]:
        """Its pieces. Fails with SegmentUnreadable where some of it is damaged or gone for good."""

    def write(self, txid: int, pieces: Iterator[bytes], check: Check) -> Deferred[Checkpoint]:
        """Keep an image; durable, checked and listed when it fires. Where one of this txid passes the check, it stays.

        Fails with what `pieces` and `check` raise; nothing is listed then.
        """

    def remove(self, checkpoint: Checkpoint) -> Deferred[None]:
        """Remove one. Harmless when it is gone."""


async def passes(store: CheckpointStore, checkpoint: Checkpoint, check: Check) -> bool:
    """Whether an image that is listed can be read, and passes the check. Fails with what may pass."""
    try:
        await check(checkpoint, store.read(checkpoint))
    except UNREADABLE as error:
        log.error(
            "The checkpoint {image} in {where} cannot be read, and is to be saved anew: {error}",
            image=checkpoint.name,
            where=store.description,
            error=error,
        )
        return False
    return True


def image_name(txid: int) -> str:
    """The name of the image that covers the transactions up to `txid`."""
    return f"image_{txid:019d}"


def txid_of_image(name: str) -> int | None:
    """The txid in such a name; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class DirectoryCheckpoints:
    """Images as files of one directory. worker: does all that touches the disk."""

    def __init__(self, fs: FileSystem, worker: Worker, directory: str) -> None:
        self._fs, self._worker, self._directory = fs, worker, directory
        self._warned_of_mode = False

    @property
    def description(self) -> str:
        """See CheckpointStore."""
        return self._directory

    def all(self) -> Deferred[list[Checkpoint]]:
        """See CheckpointStore."""
        return self._do(self._list)

    def _list(self) -> list[Checkpoint]:
        if not self._fs.exists(self._directory):
            return []
        txids = [(txid_of_image(name), name) for name in self._fs.listdir(self._directory)]
        return sorted(Checkpoint(txid, name) for txid, name in txids if txid is not None)

    def read(self, checkpoint: Checkpoint) -> AsyncIterator[bytes]:
        """See CheckpointStore."""
        return self._read(f"{self._directory}/{checkpoint.name}")

    async def _read(self, path: str) -> AsyncIterator[bytes]:
        file = await self._read_some(lambda: self._fs.open(path, OpenMode.READ))
        try:
            offset = 0
            while data := await self._read_some(partial(file.pread, READ_SIZE, offset)):
                offset += len(data)
                yield data
        finally:
            self._close(file)

    async def _read_some(self, work: Callable[[], T]) -> T:
        try:
            return await self._do(work)
        except JournalError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in _GONE_OR_DAMAGED:
                raise SegmentUnreadable(str(error)) from error
            raise

    def write(self, txid: int, pieces: Iterator[bytes], check: Check) -> Deferred[Checkpoint]:
        """See CheckpointStore."""
        return Deferred.fromCoroutine(self._write(txid, pieces, check))

    async def _write(self, txid: int, pieces: Iterator[bytes], check: Check) -> Checkpoint:
        checkpoint = Checkpoint(txid, image_name(txid))
        path = f"{self._directory}/{checkpoint.name}"
        # Its own: a server that is on this directory too, by mistake, must not write what this one lists.
        unfinished = f"{path}.{uuid4().hex}{_UNFINISHED}"

        def begin() -> bool:
            self._fs.make_dirs(self._directory)
            if self._fs.is_wider(self._directory) and not self._warned_of_mode:
                self._warned_of_mode = True
                log.warn(
                    "Other users can reach files in {directory}: run chmod -R go= on it, or set "
                    "journalmgr.files.private=false",
                    directory=self._directory,
                )
            if self._fs.exists(path):
                return False
            for other in self._fs.listdir(self._directory):
                if other.endswith(_UNFINISHED):  # of a process that died; of two that live, one fails and tries again
                    self._fs.unlink(f"{self._directory}/{other}")
            return True

        def give_up() -> None:
            if self._fs.exists(unfinished):
                self._fs.unlink(unfinished)

        if not await self._do(begin):
            if await passes(self, checkpoint, check):
                return checkpoint
            await self.remove(checkpoint)
        file = await self._do(lambda: self._fs.open(unfinished, OpenMode.CREATE_EXCLUSIVE))
        try:
            size = 0
            for piece in pieces:
                await self._do(partial(file.pwrite, piece, size))
                size += len(piece)
            await self._do(file.sync)
            await check(checkpoint, self._read(unfinished))
        except BaseException:
            self._close(file)
            self._do(give_up).addErrback(lambda failure: log.warn("{error}", error=failure.value))
            raise
        self._close(file)

        def end() -> None:
            self._fs.rename(unfinished, path)
            self._fs.sync_dir(self._directory)

        await self._do(end)
        return checkpoint

    def remove(self, checkpoint: Checkpoint) -> Deferred[None]:
        """See CheckpointStore."""

        def unlink() -> None:
            path = f"{self._directory}/{checkpoint.name}"
            if self._fs.exists(path):
                self._fs.unlink(path)
                self._fs.sync_dir(self._directory)

        return self._do(unlink)

    def _close(self, file: File) -> None:
        """Behind what the worker has to do already; not awaited, for who is cancelled cannot wait."""
        self._do(file.close).addErrback(lambda failure: log.warn("{error}", error=failure.value))

    def _do(self, work: Callable[[], T]) -> Deferred[T]:
        done: Deferred[T] = Deferred(lambda _: None)

        def tell(result: T) -> None:
            if not done.called:
                done.callback(result)

        def fail(error: BaseException) -> None:
            if done.called:
                return
            if isinstance(error, OSError):
                explained = JournalError(f"{self._directory}: {error}")
                explained.__cause__ = error
                error = explained
            done.errback(error)

        self._worker.submit(work, tell, fail)
        return done
