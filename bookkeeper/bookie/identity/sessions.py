"""The metadata sessions of this bookie's processes, in a file beside the journal.

A killed bookie's registration stays in the metadata store until its session times out, ten seconds by default, and a
restarted one would wait for that. So each process notes its session before it registers with it. Whoever holds the
directory's lock knows that every process which noted a session there before is dead, and may remove what that session
left. A node of any other session is somebody else's and is waited for as ever.

Losing the file, or an unreadable one, costs that wait and nothing else.
"""

from __future__ import annotations

import os

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import StorageError
from bookkeeper.filesystem import FileSystem, read_whole, replace_durable
from bookkeeper.ports import Worker

SESSIONS_FILE = "metadata.sessions"

SESSIONS_MAX = 16
"""Sessions kept: those of a process that lost several before it died, and of processes that died while starting."""

FORMAT = "bookkeeper sessions 1"
"""First line of the file; then one session id per line, hexadecimal, the newest last."""

_SIZE_MAX = 4096

log = Logger()


class SessionFile:
    """The record of one bookie. To be made and used only while the directory's lock is held.

    directory: where the file is. worker: runs the writes; its thread may block for a sync.
    """

    def __init__(self, fs: FileSystem, directory: str, worker: Worker) -> None:
        self._fs = fs
        self._path = os.path.join(directory, SESSIONS_FILE)
        self._worker = worker
        self._sessions = self._read()

    def known(self) -> frozenset[int]:
        """Sessions of this bookie; all but this process's newest are over, or their process is dead."""
        return frozenset(self._sessions)

    def add(self, session_id: int) -> Deferred[None]:
        """Fires once the session is noted durably, or cannot be; never fails."""
        sessions = [*(each for each in self._sessions if each != session_id), session_id][-SESSIONS_MAX:]
        self._sessions = sessions
        done: Deferred[None] = Deferred()
        data = "\n".join([FORMAT, *(f"{each:x}" for each in sessions), ""]).encode()

        def failed(error: BaseException) -> None:
            log.warn(
                "Cannot note the metadata session in {path}: {error}. After a crash the next start waits until the "
                "session times out",
                path=self._path,
                error=error,
            )
            done.callback(None)

        self._worker.submit(lambda: replace_durable(self._fs, self._path, data), done.callback, failed)
        return done

    def _read(self) -> list[int]:
        if not self._fs.exists(self._path):
            return []
        try:
            lines = read_whole(self._fs, self._path, size_max=_SIZE_MAX).decode("ascii").splitlines()
            if lines[:1] != [FORMAT]:
                raise ValueError(f"does not begin with {FORMAT!r}")
            return [int(line, 16) for line in lines[1:]][-SESSIONS_MAX:]
        except (OSError, ValueError, StorageError) as error:
            log.warn("Ignoring {path}: {error}", path=self._path, error=error)
            return []
