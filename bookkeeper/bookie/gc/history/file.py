"""The file with a bookie's memory of the metadata store (layout: history_format.py), one in every ledger directory.

A file that is damaged or of a newer release is an error and not skipped: its list of kept ledgers would be lost.
Thread: a worker.
"""

from __future__ import annotations

import os
from dataclasses import replace

from twisted.logger import Logger

from bookkeeper.bookie.gc.history import format as fmt
from bookkeeper.bookie.gc.history.format import History
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.errors import NoWritableDisk
from bookkeeper.filesystem import FileSystem, is_no_space, read_whole, replace_durable

log = Logger()


class HistoryFile:
    """The history file of one bookie. The caller holds the locks of its directories."""

    def __init__(self, fs: FileSystem, directories: LedgerDirectories) -> None:
        self._fs = fs
        self._directories = directories

    def read(self, cluster: str) -> History:
        """Return the newest history saved for `cluster`; an empty one if there is none.

        Raises CorruptRecord, UnknownFormatVersion, OSError (fatal: I-48).
        """
        newest = History(cluster)
        for path in self._paths():
            if not self._fs.exists(path):
                continue
            self._fs.sync_dir(os.path.dirname(path))  # a killed process may have renamed it without a sync
            found = fmt.decode(read_whole(self._fs, path, size_max=fmt.FILE_SIZE_MAX), path)
            if found.cluster != cluster:
                log.warn(
                    "{path}: not used, as it belongs to cluster {found} and this bookie to cluster {cluster}",
                    path=path,
                    found=found.cluster,
                    cluster=cluster,
                )
            elif found.saved > newest.saved:
                newest = found
        return newest

    def save(self, history: History) -> History:
        """Write the history, durably on return; return it as written.

        Raises NoWritableDisk (the old file counts), OSError (fatal; the newest file counts, which may be the new one).
        """
        saved = replace(history, saved=history.saved + 1)
        data = fmt.encode(saved)
        written, full = 0, None
        for path in self._paths():
            try:
                replace_durable(self._fs, path, data)
                written += 1
            except OSError as error:
                if not is_no_space(error):
                    raise
                full = error
        if not written:
            raise NoWritableDisk(
                f"{fmt.FILE_NAME}: no ledger directory has room for its {len(data)} bytes; free some space outside of "
                "the bookie's directories"
            ) from full
        return saved

    def _paths(self) -> list[str]:
        return [os.path.join(current(directory), fmt.FILE_NAME) for directory in self._directories.ledger_dirs]
