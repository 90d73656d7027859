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
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def acquire(self, path: str, mode: OpenMode) -> File:
        """The open file; pair with `release`. Raises FileNotFoundError or another OSError from opening."""
        with self._lock:
            slot = self._slots.get(path)
            if slot is not None:
                slot.users += 1
                self._slots.move_to_end(path)
                return slot.file
        file = self._fs.open(path, mode)
        return self._keep(path, file)

    def adopt(self, path: str, file: File) -> None:
        """Take over a file that was just created; it counts as in use until `release`."""
        self._keep(path, file)

    def release(self, path: str) -> None:
        """The file may be closed once nobody else uses it."""
        with self._lock:
            slot = self._slots[path]
            slot.users -= 1
            surplus = self._surplus()
        for file in surplus:
            file.close()

    def forget(self, path: str) -> None:
        """Close an idle file, for instance before it is deleted. No-op when it is not open."""
        with self._lock:
            slot = self._slots.get(path)
            if slot is None:
                return
            if slot.users:
                raise RuntimeError(f"{path} is in use and cannot be closed")
            del self._slots[path]
        slot.file.close()

    def close(self) -> None:
        """Close everything. Nothing may be in use."""
        with self._lock:
            slots = list(self._slots.values())
            self._slots.clear()
        for slot in slots:
            slot.file.close()

    def _keep(self, path: str, file: File) -> File:
        with self._lock:
            slot = self._slots.get(path)
            if slot is None:
                self._slots[path] = _Slot(file)
                surplus = self._surplus()
            else:  # another thread opened it meanwhile
                slot.users += 1
                surplus, file = [file], slot.file
        for idle in surplus:
            idle.close()
        return file

    def _surplus(self) -> list[File]:
        closing: list[File] = []
        while len(self._slots) > self._limit:
            idle = next((path for path, slot in self._slots.items() if not slot.users), None)
            if idle is None:
                break
            closing.append(self._slots.pop(idle).file)
        return closing
