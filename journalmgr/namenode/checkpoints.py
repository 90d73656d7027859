"""Where checkpoints are kept: images of the whole state, each as it was after one transaction.

    directory      image_%019d beside each other, written under another name, synced, renamed
    ledgers        an image is a ledger, listed by a znode: every server of a group has it (`ledger_checkpoints`)

An image is listed only once it is whole and durable, so whoever reads the list may purge what the listed ones cover.
Pieces are written one after the other, with the reactor in between: an image is never whole in memory.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.filesystem import File, FileSystem, OpenMode
from journalmgr.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookkeeper.ports import Worker

log = Logger()

T = TypeVar("T")

READ_SIZE = 1024 * 1024

_NAME = re.compile(r"image_(\d{19})")
_UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """One image. txid: the last transaction it covers. name: of the file or znode. ledger_id: where it is, if so."""

    txid: int
    name: str
    ledger_id: int | None = None


class CheckpointStore(Protocol):
    """Images by txid. Fails with JournalError or the errors of the store below."""

    @property
    def description(self) -> str:
        """Where, for messages."""

    def all(self) -> Deferred[list[Checkpoint]]:
        """All that are whole, by txid."""

    def read(self, checkpoint: Checkpoint) -> AsyncIterator[bytes]:
        """Its pieces."""

    def write(self, txid: int, pieces: Iterator[bytes]) -> Deferred[Checkpoint]:
        """Keep an image; durable and listed when it fires. One of this txid that is there already stays."""

    def remove(self, checkpoint: Checkpoint) -> Deferred[None]:
        """Remove one. Harmless when it is gone."""


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

    async def read(self, checkpoint: Checkpoint) -> AsyncIterator[bytes]:
        """See CheckpointStore."""
        file = await self._do(lambda: self._fs.open(f"{self._directory}/{checkpoint.name}", OpenMode.READ))
        try:
            offset = 0
            while data := await self._do(partial(file.pread, READ_SIZE, offset)):
                offset += len(data)
                yield data
        finally:
            self._close(file)

    def write(self, txid: int, pieces: Iterator[bytes]) -> Deferred[Checkpoint]:
        """See CheckpointStore."""
        return Deferred.fromCoroutine(self._write(txid, pieces))

    async def _write(self, txid: int, pieces: Iterator[bytes]) -> Checkpoint:
        name = image_name(txid)
        path = f"{self._directory}/{name}"
        # Its own: a server that is on this directory too, by mistake, must not write what this one lists.
        unfinished = f"{path}.{uuid4().hex}{_UNFINISHED}"

        def begin() -> bool:
            self._fs.make_dirs(self._directory)
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
            return Checkpoint(txid, name)
        file = await self._do(lambda: self._fs.open(unfinished, OpenMode.CREATE_EXCLUSIVE))
        try:
            size = 0
            for piece in pieces:
                await self._do(partial(file.pwrite, piece, size))
                size += len(piece)
            await self._do(file.sync)
        except BaseException:
            self._close(file)
            self._do(give_up).addErrback(lambda failure: log.warn("{error}", error=failure.value))
            raise
        self._close(file)

        def end() -> None:
            self._fs.rename(unfinished, path)
            self._fs.sync_dir(self._directory)

        await self._do(end)
        return Checkpoint(txid, name)

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
