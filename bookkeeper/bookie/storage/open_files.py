"""A bounded number of open files, shared by threads.

Index files and entry logs are many more than the descriptors we may hold. A file that somebody uses is never closed, so
that nobody reads from a descriptor that meanwhile means another file.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from bookkeeper.filesystem import File, FileSystem, OpenMode


class _Slot:
    __slots__ = ("file", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 1


class OpenFiles:
    """Open files by path; the least recently used idle one is closed when more than `limit` are open. Thread: any.

    The bound is exceeded only while more than `limit` files are in use at once.
    """

    def __init__(self, fs: FileSystem, limit: int) -> None:
        self._fs = fs
        self._limit = limit
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._dropped: dict[int, _Slot] = {}  # by identity of the file: its path may mean another one by now
        self._drops = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._slots) + len(self._dropped)

    def acquire(self, path: str, mode: OpenMode) -> File:
        """The open file; pair with `release`. Raises FileNotFoundError or another OSError from opening."""
        while True:
            with self._lock:
                slot = self._slots.get(path)
                if slot is not None:
                    slot.users += 1
                    self._slots.move_to_end(path)
                    return slot.file
                drops = self._drops
            kept = self._keep(path, self._fs.open(path, mode), drops)
            if kept is not None:
                return kept

    def adopt(self, path: str, file: File) -> None:
        """Take over a file that was just created; it counts as in use until `release`."""
        self._keep(path, file, None)

    def release(self, file: File) -> None:
        """The file may be closed once nobody else uses it."""
        with self._lock:
            slot = self._slots.get(file.path)
            if slot is not None and slot.file is file:
                slot.users -= 1
                surplus = self._surplus()
            else:
                slot = self._dropped[id(file)]
                slot.users -= 1
                surplus = [] if slot.users else [self._dropped.pop(id(file)).file]
        for file in surplus:
            file.close()

    def drop(self, path: str) -> None:
        """The name is being deleted: whoever acquires it again opens it anew. No-op when it is not open.

        Whoever uses the file goes on with it, and the last one's `release` closes it.
        """
        with self._lock:
            self._drops += 1
            slot = self._slots.pop(path, None)
            if slot is None:
                return
            if slot.users:
                self._dropped[id(slot.file)] = slot
                return
        slot.file.close()

    def close(self) -> None:
        """Close everything. Nothing may be in use."""
        with self._lock:
            slots = [*self._slots.values(), *self._dropped.values()]
            self._slots.clear()
            self._dropped.clear()
        for slot in slots:
            slot.file.close()

    def _keep(self, path: str, file: File, drops: int | None) -> File | None:
        """The file to use; None when a name was dropped meanwhile, and `file` may be what it meant before."""
        with self._lock:
            if drops is not None and drops != self._drops:
                kept, surplus = None, [file]
            elif (slot := self._slots.get(path)) is None:
                self._slots[path] = _Slot(file)
                kept, surplus = file, self._surplus()
            else:  # another thread opened it meanwhile
                slot.users += 1
                kept, surplus = slot.file, [file]
        for idle in surplus:
            idle.close()
        return kept

    def _surplus(self) -> list[File]:
        closing: list[File] = []
        while len(self._slots) > self._limit:
            idle = next((path for path, slot in self._slots.items() if not slot.users), None)
            if idle is None:
                break
            closing.append(self._slots.pop(idle).file)
        return closing
