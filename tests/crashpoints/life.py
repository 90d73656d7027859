"""A story while it happens: the machine, the bookie's processes one after the other, and a look at every operation.

`Life` is what a story is told with; `watch` sees each operation of the disk just before it happens, and may raise
OSError instead of letting it happen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookkeeper.errors import BookKeeperError, NoWritableDisk
from tests.crashpoints.history import Damaged, History, Mended, PowerLost
from tests.crashpoints.machine import BookieProcess, Layout, Machine
from tests.crashpoints.offline import rebuild_index_files
from tests.support.disk_image import DiskImage
from tests.support.faulty_filesystem import FaultyFileSystem, Op

Watch = Callable[[Op, str], None]


THE_END = "the end of this process"
"""What an error says by which a story ends a process on purpose."""


class Ended(Exception):
    """The bookie did not start, or ended by an error of the disk: the story is over, or of its next process."""


class Life:
    """One telling of a story.

    meanwhile: called before each operation that a worker does, never while it runs itself: what the reactor and the
    other threads do in that very moment.
    """

    def __init__(
        self, name: str, layout: Layout, watch: Watch | None = None, fs: FaultyFileSystem | None = None
    ) -> None:
        self.name = name
        self.machine = Machine(layout, fs)
        self.history = History()
        self.meanwhile: Watch | None = None
        self._watch = watch
        self._in_meanwhile = False
        self.processes: list[BookieProcess] = []
        self.ends: list[str] = []
        self.bookie = BookieProcess(self.machine, self.history, name)
        self.machine.fs.on_operation = self._look

    def _look(self, op: Op, path: str) -> None:
        if self._watch is not None:
            self._watch(op, path)
        if self.meanwhile is not None and not self._in_meanwhile and self.bookie.failure is None:
            self._in_meanwhile = True
            try:
                self.meanwhile(op, path)
            finally:
                self._in_meanwhile = False

    # --- processes ----------------------------------------------------------------------------------------------------

    def start(self) -> BookieProcess:
        """A new process on what the disk shows. Raises Ended."""
        self.bookie = BookieProcess(self.machine, self.history, f"{self.name}/{len(self.processes)}")
        self.processes.append(self.bookie)
        try:
            self.bookie.start()
        except (BookKeeperError, OSError) as error:
            raise self._ended(f"did not start: {error!r}") from error
        return self.bookie

    def stop(self) -> None:
        """An orderly stop. Raises Ended when it fails."""
        self.meanwhile = None
        try:
            self.bookie.stop()
        except (BookKeeperError, OSError) as error:
            raise self._ended(f"did not stop: {error!r}") from error
        self._check_alive()

    def kill(self) -> None:
        """kill -9 between two turns."""
        self.meanwhile = None
        self.machine.kill()

    def lose_power(self, *, survives: bool) -> None:
        """All that was not synced survives, or nothing of it."""
        self.meanwhile = None
        image = DiskImage.of(self.machine.fs)
        self.machine.fs.on_operation = None
        self.machine.fs = image.after_power_cut(image.units if survives else ())
        self.machine.fs.on_operation = self._look
        self.history.note(PowerLost())

    # --- what stories do ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until all is answered. Raises Ended when the bookie failed."""
        self.bookie.settle()
        self._check_alive()

    def flush(self) -> None:
        """The write buffer to the entry log, nothing synced. Raises Ended when the bookie failed."""
        try:
            self.bookie.rotate_and_flush()
        except NoWritableDisk:
            pass
        except (BookKeeperError, OSError) as error:
            raise self._ended(f"no flush: {error!r}") from error

    def checkpoint(self, *, ahead: bool = False) -> None:
        """One checkpoint; none where the disk is full. Raises Ended when the bookie failed.

        ahead: while it is made the journals write nothing of what waits for them.
        """
        try:
            self.bookie.checkpoint(ahead=ahead)
        except NoWritableDisk:
            pass
        except (BookKeeperError, OSError) as error:
            raise self._ended(f"no checkpoint: {error!r}") from error
        self._check_alive()

    def collect(self) -> None:
        """A round of garbage collection, with compaction. Raises Ended when the bookie failed."""
        try:
            self.bookie.collect()
        except (BookKeeperError, OSError) as error:
            raise self._ended(f"no collection: {error!r}") from error
        self._check_alive()

    def scrub(self) -> None:
        """A round of the scrub. Raises Ended when the bookie failed."""
        try:
            self.bookie.scrub()
        except (BookKeeperError, OSError) as error:
            raise self._ended(f"no scrub: {error!r}") from error
        self._check_alive()

    def accident(self, happen: Callable[[Machine], Damaged | list[Damaged] | None]) -> None:
        """Something happens to the files at rest; no crash point is in it. Raises Ended where there is no such file."""
        self.machine.fs.on_operation = None
        try:
            damage = happen(self.machine)
        except (BookKeeperError, OSError) as error:
            raise self._ended(f"no accident: {error!r}") from error
        for event in [damage] if isinstance(damage, Damaged) else damage or []:
            self.history.note(event)
        self.machine.fs.on_operation = self._look

    def rebuild(self, ledger_ids: Sequence[int]) -> None:
        """Index files are made anew, of a bookie that does not run. Raises Ended when that fails."""
        try:
            rebuilt = rebuild_index_files(self.machine, ledger_ids)
        except (BookKeeperError, OSError) as error:
            raise self._ended(f"no new index: {error!r}") from error
        for each in rebuilt:
            if each.refused is not None:
                raise self._ended(f"no new index: {each.refused}")
            self.history.note(Mended(each.ledger_id))

    def pass_time(self, seconds: float) -> None:
        """Timers run. Raises Ended when the bookie failed."""
        self.bookie.pass_time(seconds)
        self._check_alive()

    def _check_alive(self) -> None:
        if self.bookie.failure is not None:
            raise self._ended(f"ended by {self.bookie.failure!r}") from self.bookie.failure

    def _ended(self, why: str) -> Ended:
        if THE_END not in why:
            self.ends.append(why)
        return Ended(why)
