"""Auto-recovery processes for integration tests, and marks without an auditor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.config import ClientSettings
from bookkeeper.console.reactor import with_store
from bookkeeper.embedded.server import LocalServer
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata
from tests.support.cluster import SESSION_TIMEOUT_MS


class LocalAutoRecovery(LocalServer):
    """`bookkeeper autorecovery` as a process."""

    def __init__(
        self, directory: Path, uri: str, settings: Mapping[str, str] | None = None, name: str = "auto-recovery"
    ) -> None:
        super().__init__(
            name,
            directory,
            conf_name="autorecovery.conf",
            log_name="autorecovery.log",
            command=("bookkeeper.cli.main", "autorecovery"),
            environment_prefix="BK_",
            settings={"metadataServiceUri": uri, "zkTimeout": str(SESSION_TIMEOUT_MS), **(settings or {})},
        )

    @property
    def address(self) -> str:
        """Nobody connects to it."""
        return self.name

    def __enter__(self) -> LocalAutoRecovery:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


def _settings(uri: str) -> ClientSettings:
    return ClientSettings(metadata_service_uri=uri)


def mark(uri: str, ledger_ids: Collection[int], missing: Collection[str]) -> None:
    """What an auditor publishes."""

    async def use(store: MetadataStore) -> None:
        for ledger_id in ledger_ids:
            await store.underreplication.mark(LedgerId(ledger_id), [BookieId(each) for each in missing], now_ms=1)

    with_store(_settings(uri), use)


def marked(uri: str) -> list[LedgerId]:
    """What is marked now."""

    async def use(store: MetadataStore) -> list[LedgerId]:
        return [ledger_id async for batch in store.underreplication.ids() for ledger_id in batch]

    return with_store(_settings(uri), use)


def await_no_marks(uri: str) -> None:
    """Return once no ledger is marked; woken by the tree itself."""
    with_store(_settings(uri), no_marks)


async def no_marks(store: MetadataStore) -> None:
    """Return once no ledger is marked."""
    changed: Deferred[None] = Deferred()

    def on_work() -> None:
        nonlocal changed
        fired, changed = changed, Deferred()
        fired.callback(None)

    watch = store.underreplication.watch_work(on_work)
    try:
        while True:
            news = changed  # before the listing, during which the last mark may be removed
            if not [batch async for batch in store.underreplication.ids()]:
                return
            await news
    finally:
        watch.cancel()


def await_unregistered(uri: str, bookie_id: str) -> None:
    """Return once a killed bookie's registration is gone."""

    async def use(store: MetadataStore) -> None:
        gone: Deferred[None] = Deferred()

        def look(bookies: Any) -> None:
            if bookie_id not in bookies.writable and bookie_id not in bookies.read_only and not gone.called:
                gone.callback(None)

        watch = store.bookies.watch(look)
        await gone
        watch.cancel()

    with_store(_settings(uri), use)


def names(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Whether any fragment has the bookie as a member."""
    return any(bookie_id in fragment.ensemble for fragment in metadata.fragments)
