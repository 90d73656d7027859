"""Making the directories this bookie's own: who it is, the locks, the cookies.

    id -> cookie as configured -> is it known to the store? -> lock every directory -> compare, stamp what is new

Nothing is written before the port is taken and the cluster known, and no directory is touched that another process
holds. The locks stay until `release`, or until the process ends. What comparisons allow: `cookie_rules`.
Thread: reactor.
"""

from __future__ import annotations

from twisted.logger import Logger

from bookkeeper.bookie.identity.identity import (
    Verdict,
    check_known,
    directories_of,
    establish,
    expected_cookie,
    lock_directories,
    other_ids,
)
from bookkeeper.config import ServerSettings
from bookkeeper.filesystem import FileSystem, Lock, wider_directories
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId

log = Logger()


class Claim:
    """That of one bookie on its directories."""

    def __init__(self, settings: ServerSettings, fs: FileSystem) -> None:
        self._settings, self._fs = settings, fs
        self._locks: list[Lock] = []

    async def establish(self, store: MetadataStore, bookie_id: BookieId, instance_id: str, port: int) -> Cookie:
        """The cookie that the bookie runs with; the directories are locked and hold it, and so does the store.

        port: the port that the bookie listens on, which is part of its possible earlier ids.
        Raises CookieMismatch, StorageError, MetadataError: it must not serve.
        """
        settings, fs = self._settings, self._fs
        expected = expected_cookie(settings, bookie_id, instance_id)
        expansion_allowed = settings.allow_storage_expansion
        cluster_uri = settings.metadata_service_uri
        await check_known(fs, store.cookies, expected, expansion_allowed=expansion_allowed, cluster_uri=cluster_uri)
        self._locks = lock_directories(fs, directories_of(expected))
        if wider := wider_directories(fs, directories_of(expected)):
            log.warn(
                "Other users can reach files in {directories}: run chmod -R go= on each, or set privateFiles=false",
                directories=", ".join(wider),
            )
        verdict = await establish(
            fs,
            store.cookies,
            expected,
            other_ids(settings, bookie_id, port),
            expansion_allowed=expansion_allowed,
            cluster_uri=cluster_uri,
        )
        if verdict is Verdict.NEW:
            log.info(
                "New bookie of cluster {instance_id}: its cookie is in the metadata store and in every directory",
                instance_id=instance_id,
            )
        elif verdict is Verdict.EXPAND:
            log.info("Storage expanded to {directories}", directories=list(directories_of(expected)))
        return expected

    def release(self) -> None:
        """Give the locks up."""
        for lock in self._locks:
            lock.release()
