"""The file in which a bookie keeps its memory of the metadata store: history_format.py, in every ledger directory.

A file that is damaged, or of a newer release, is not passed over: what it said of ledgers to be kept would be lost.
Thread: a worker.
"""

from __future__ import annotations

import os
from dataclasses import replace

from twisted.logger import Logger

from bookkeeper.bookie import history_format as fmt
from bookkeeper.bookie.history_format import History
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.errors import NoWritableDisk
from bookkeeper.filesystem import FileSystem, is_no_space, read_whole, replace_durable

log = Logger()


class HistoryFile:
    """That of one bookie, whose directories are locked."""

    def __init__(self, fs: FileSystem, directories: LedgerDirectories) -> None:
        self._fs = fs
        self._directories = directories

    def read(self, cluster: str) -> History:
        """The newest that was saved; an empty one where there is none, or only another cluster's.

        Raises CorruptRecord, UnknownFormatVersion, OSError (fatal: I-48).
        """
        newest = History(cluster)
        for path in self._paths():
            if not self._fs.exists(path):
                continue
            self._fs.sync_dir(os.path.dirname(path))  # its name may have come with a process that was killed
            found = fmt.decode(read_whole(self._fs, path, size_max=fmt.FILE_SIZE_MAX), path)
            if found.cluster != cluster:
                log.warn(
                    "{path} is of cluster {found}, this bookie is of cluster {cluster}: the file is not used",
                    path=path,
                    found=found.cluster,
                    cluster=cluster,
                )
            elif found.saved > newest.saved:
                newest = found
        return newest

    def save(self, history: History) -> History:
        """Keep this, durably on return; as it was saved. Raises NoWritableDisk (the old one counts), OSError (fatal).

        After any other failure in one directory the newest one counts, which may be this.
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
                f"no ledger directory has room for the {len(data)} bytes of {fmt.FILE_NAME}: free some space outside "
                "of the bookie's directories"
            ) from full
        return saved

    def _paths(self) -> list[str]:
        return [os.path.join(current(directory), fmt.FILE_NAME) for directory in self._directories.ledger_dirs]
