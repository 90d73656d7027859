"""What a bookie does besides answering: it collects garbage, reports damaged copies and reads through what it stores.

Each runs from the moment there is a bookie until shortly before the last request is answered, on a clock of its own;
none of them is needed to serve, and what goes wrong in one is told and tried again. The collector alone may find that
the storage cannot be relied upon, which ends the process.
Thread: reactor; "garbage" and "scrub" do the reading and copying.
"""

from __future__ import annotations

from bookkeeper.bookie.gc.collector import GarbageCollector
from bookkeeper.bookie.gc.view import collection_status
from bookkeeper.bookie.integrity.damage.reports import DamageReports
from bookkeeper.bookie.integrity.scrub.driver import Scrubber
from bookkeeper.bookie.process import part_settings
from bookkeeper.bookie.process.process_context import Surroundings
from bookkeeper.bookie.process.status import BookieChronicle
from bookkeeper.bookie.process.storage import StorageSide
from bookkeeper.clock import wall_ms, wall_s
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId


class Background:
    """The three of one bookie. keeping: started."""

    def __init__(
        self,
        surroundings: Surroundings,
        keeping: StorageSide,
        store: MetadataStore,
        chronicle: BookieChronicle,
        *,
        bookie_id: BookieId,
        instance_id: str,
    ) -> None:
        assert keeping.bookie is not None
        settings, reactor, threads = surroundings.settings, surroundings.reactor, surroundings.threads
        storage = keeping.storage
        self.collector = GarbageCollector(
            surroundings.fs,
            surroundings.directories,
            storage,
            keeping.bookie.removal(keeping.storage_worker),
            keeping.checkpointer,
            store,
            reactor,
            worker=threads.start("garbage"),
            storage_worker=keeping.storage_worker,
            settings=part_settings.garbage_settings(settings),
            instance_id=instance_id,
            bookie_id=bookie_id,
            wall_s=wall_s,
            on_failure=keeping.fail,
            on_change=chronicle.changed,
            metrics=surroundings.metrics,
        )
        self._damage_reports = DamageReports(storage.damage, store.underreplication, reactor, bookie_id, wall_ms)
        scrub = storage.scrub()
        self.unmended_pages = lambda: scrub.unmended
        self._scrubber = Scrubber(
            scrub,
            storage.damage,
            reactor,
            threads.start("scrub"),
            part_settings.scrub_settings(settings),
            wall_ms,
            log_bytes=storage.entry_logs.total_size,
            on_change=chronicle.changed,
            metrics=surroundings.metrics,
        )
        collected = self.collector.status
        chronicle.collection = lambda: collection_status(collected)
        chronicle.scrub = self._scrubber.status

    def start(self) -> None:
        """All three."""
        self.collector.start()
        self._damage_reports.start()
        self._scrubber.start()

    async def stop(self) -> None:
        """Return when what was under way has ended."""
        await self.collector.stop()
        self._damage_reports.stop()
        await self._scrubber.stop()
