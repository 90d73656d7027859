"""Notes of the ledgers that belong to no listed image: none is left behind, none is deleted that is needed (I-86).

    ROOT/images/image_%019d          a listed image; names its ledger
    ROOT/images/notes/alive_<id>     ephemeral, of the session that writes ledger <id>; made first, never again later
    ROOT/images/notes/writing_<id>   the ledger is being written, or was; made before the ledger is
    ROOT/images/notes/deleting_<id>  nobody needs the ledger; its deletion may have been cut short

    begin     alive, then writing; then the caller creates the ledger, with the id that was noted
    list      one transaction: alive is there, the image comes, writing goes
    abandon   one transaction: writing goes, deleting comes        the writer; anybody, where writing is without alive
    remove    one transaction: the image goes, deleting comes
    finish    the ledger goes, then deleting
    sweep     abandon and finish what others left; no list of the cluster's ledgers is needed for it

No listed image loses its ledger. A ledger is deleted only by who saw its deleting note. That note comes with the
transaction that takes the image off the list, or with one that takes writing away (or later, by a writer that gave up
and found writing gone); the latter and the one that lists the image exclude each other, for each needs the one writing
note there is. That note could only be made twice by a
writer whose first attempt was answered too late: its session is over then, alive with it, and so nothing is listed.
None of this depends on time: a writer that slept, or whose session ended, finds that it cannot list its image.

Nobody disturbs a writer that lives. Alive comes before writing and goes after it, so a list of children that shows
writing without alive is of a writer whose session ended, or that gave up; an old list shows what is still so.

No ledger stays behind: its id is noted before it exists. A writer that ends in order removes its ledger itself. One gap
is left: a process that sleeps through the end of its session between the note and the creation of the ledger, while
another sweeps, and that dies between the creation and its next look at the note.

An id that was noted may turn out to be somebody else's (the ledger existed already, and the writer died when it was
told): only a ledger that says in its own metadata that it is an image of this journal is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError, MetadataError
from bookkeeper.metadata.directories import Directories
from bookkeeper.metadata.ledgers.id_generator import LedgerIds
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.tree import Check, Create, Delete, NodeAbsent, NodeExists, NodeKind, Stat, Tree
from journalmgr.errors import JournalUnavailable
from journalmgr.ledger.images import delete_image
from journalmgr.segment import is_ledger_id

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient

log = Logger()


class ImageNotes:
    """Of the journal at `root`. errand: begins an operation on the tree, with what it is for."""

    def __init__(
        self, client: LedgerClient, tree: Tree, errand: Callable[[str], Errand], root: str, ledgers_root: str
    ) -> None:
        self._client, self._errand = client, errand
        self._root = root
        self._path = f"{root}/images/notes"
        self._ids = LedgerIds(tree, ledgers_root, Directories(ledgers_root))

    async def begin(self, ahead: int = 1) -> int:
        """Note a ledger that is to be created now, and return its id. ahead: see `LedgerIds.generate`."""
        layout = await self._client.store.ledgers.prepare()
        errand = self._errand("note a ledger for an image")
        ledger_id = await self._ids.generate(errand, layout.kind, ahead)
        await self._ensure(errand)
        alive, writing = self._alive(ledger_id), self._writing(ledger_id)
        # The id is nobody else's: whatever is found there is this call's own, its answer was lost.
        await errand.create(alive, b"", lambda _data, _stat: True, kind=NodeKind.EPHEMERAL)
        try:
            await errand.create(writing, b"", lambda _data, _stat: True)
        except BookKeeperError:
            await self.end(ledger_id)
            raise
        return ledger_id

    async def check(self, ledger_id: int) -> None:
        """Raise JournalUnavailable where somebody has swept already: call it when the ledger is there."""
        found = await self._errand(f"look for the note of ledger {ledger_id}").read_surely(self._writing(ledger_id))
        if found is None:
            raise JournalUnavailable(
                f"the session that was to write ledger {ledger_id} ended before that; the next checkpoint will do"
            )

    async def list(self, ledger_id: int, path: str, data: bytes) -> None:
        """List the image at `path`. Raises NodeExists where another is there, JournalUnavailable where ours is lost."""
        errand = self._errand(f"list {path}")
        writing = self._writing(ledger_id)

        async def is_done() -> bool:
            found = await errand.read_if_present(path)
            return found is not None and found[0] == data

        try:
            await errand.transact([Create(path, data), Delete(writing, 0), Check(self._alive(ledger_id), 0)], is_done)
        except NodeAbsent as error:
            raise JournalUnavailable(
                f"{path} is not listed: the session that wrote ledger {ledger_id} ended, or the journal was formatted "
                f"meanwhile ({error}); the next checkpoint will do"
            ) from error

    async def give_up(self, ledger_id: int) -> None:
        """The writer's: delete the ledger of an image that is certainly not listed. Trouble is left to a sweep."""
        try:
            if not await self._abandon(ledger_id):
                # Somebody swept, maybe before the ledger was there: note it again, or nobody would finish this.
                errand = self._errand(f"note ledger {ledger_id} again")
                await self._ensure(errand)
                await errand.ensure(self._deleting(ledger_id))
            await self._finish(ledger_id)
        except BookKeeperError as error:
            log.warn(
                "Ledger {ledger_id} of an image that was given up is deleted later: {error}",
                ledger_id=ledger_id,
                error=error,
            )

    async def end(self, ledger_id: int) -> None:
        """The writer's last word, whatever became of the image: what is left of it is free to be swept."""
        try:
            await self._errand(f"end ledger {ledger_id}").delete(self._alive(ledger_id), 0)
        except NodeAbsent:
            return
        except MetadataError as error:
            log.info("A note goes with its session only: {error}", error=error)

    async def remove(self, path: str, stat: Stat, ledger_id: int) -> None:
        """Take an image off the list and delete its ledger. Raises NodeAbsent, NodeChanged."""
        errand = self._errand(f"remove {path}")
        await self._ensure(errand)
        deleting = self._deleting(ledger_id)

        async def is_done() -> bool:
            return await errand.read_if_present(path) is None

        try:
            await errand.transact([Delete(path, stat.version), Create(deleting)], is_done)
        except NodeExists:
            # Two images of one ledger, made by hand: it goes, and this one does not load any more.
            await errand.delete(path, stat.version, stat.creation_id)
        await self._finish(ledger_id)

    async def sweep(self) -> None:
        """Delete what writers and removals that were cut short left behind. Trouble is left to the next sweep."""
        try:
            names = set(await self._errand("look for what was left behind").children(self._path))
        except NodeAbsent:
            return
        except MetadataError as error:
            log.warn("What images left behind is swept later: {error}", error=error)
            return
        for name in sorted(names):
            kind, _, number = name.partition("_")
            if not is_ledger_id(number):
                continue
            ledger_id = int(number)
            try:
                if kind == "deleting":
                    await self._finish(ledger_id)
                elif kind == "writing" and f"alive_{number}" not in names and await self._abandon(ledger_id):
                    log.info("Deleting ledger {ledger_id}, of an image that was cut short", ledger_id=ledger_id)
                    await self._finish(ledger_id)
            except BookKeeperError as error:
                log.warn("Ledger {ledger_id} is deleted later: {error}", ledger_id=ledger_id, error=error)

    async def _abandon(self, ledger_id: int) -> bool:
        """Writing becomes deleting; False where there is no writing note (any more)."""
        errand = self._errand(f"abandon ledger {ledger_id}")
        deleting = self._deleting(ledger_id)

        async def is_done() -> bool:
            return await errand.read_if_present(deleting) is not None

        try:
            await errand.transact([Delete(self._writing(ledger_id), 0), Create(deleting)], is_done)
        except NodeAbsent:
            return False
        return True

    async def _finish(self, ledger_id: int) -> None:
        await self._delete_ledger(ledger_id)
        try:
            await self._errand(f"forget ledger {ledger_id}").delete(self._deleting(ledger_id), 0)
        except NodeAbsent:
            return

    async def _delete_ledger(self, ledger_id: int) -> None:
        if not await delete_image(self._client, ledger_id, self._root):
            log.warn(
                "Ledger {ledger_id} stays: it does not say that it is an image of {root}",
                ledger_id=ledger_id,
                root=self._root,
            )

    async def _ensure(self, errand: Errand) -> None:
        await errand.ensure(self._path.rpartition("/")[0])
        await errand.ensure(self._path)

    def _alive(self, ledger_id: int) -> str:
        return f"{self._path}/alive_{ledger_id}"

    def _writing(self, ledger_id: int) -> str:
        return f"{self._path}/writing_{ledger_id}"

    def _deleting(self, ledger_id: int) -> str:
        return f"{self._path}/deleting_{ledger_id}"
