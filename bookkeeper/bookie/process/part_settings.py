"""From a bookie's settings to the settings and bounds of its parts."""

from __future__ import annotations

from bookkeeper.bookie.bookie import BookieBounds
from bookkeeper.bookie.gc.candidates import CompactionSettings
from bookkeeper.bookie.gc.compactor import CompactionRate
from bookkeeper.bookie.gc.settings import GarbageSettings
from bookkeeper.bookie.integrity.scrub.driver import ScrubSettings
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.bookie.storage.disks import DiskSettings
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.config import ServerSettings
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.runtime import TcpOptions
from bookkeeper.serving.admission import ConnectionBounds
from bookkeeper.serving.descriptors import HTTP_CONNECTIONS_MAX, fitting_connections, fitting_files


def journal_settings(settings: ServerSettings) -> JournalSettings:
    """Sizes and format of the journals."""
    return JournalSettings(
        file_size_max=settings.journal_file_size_max,
        preallocation_size=settings.journal_preallocate_bytes,
        alignment=settings.journal_alignment_bytes,
        backups_max=settings.journal_backups_max,
        pending_bytes_max=settings.journal_queue_bytes_max,
        recycle=settings.journal_reuse_files,
    )


def metadata_settings(settings: ServerSettings) -> MetadataSettings:
    """The metadata session; operations and registrations outlive one session timeout."""
    timeout_s = settings.zk_session_timeout_s
    return MetadataSettings(
        request_size_max=settings.zk_request_size_max,
        session_timeout_s=timeout_s,
        operation_timeout_s=timeout_s * 1.5,
        registration_wait_s=timeout_s + 3.0,
        secure=settings.zk_enable_security,
        digest_auth=settings.zk_digest_auth,
        unknown_host_waits=True,
    )


def connection_bounds(settings: ServerSettings) -> ConnectionBounds:
    """Return the bounds of client connections. Index files and other uses of descriptors reduce their number."""
    reserved = open_files_max(settings) + HTTP_CONNECTIONS_MAX * settings.http_server_enabled
    return ConnectionBounds(
        connections_max=fitting_connections(settings.connections_max, reserved),
        first_request_s=settings.first_request_timeout_s,
        idle_s=settings.idle_connection_timeout_s,
        received_bytes_max=settings.connection_memory_max,
        untaken_bytes_max=settings.connection_memory_max,
        unsent_bytes_max=settings.unsent_reply_bytes_max,
        unsent_bytes_low=settings.unsent_reply_bytes_low,
    )


def open_files_max(settings: ServerSettings) -> int:
    """Return openFileLimit, reduced to what the process's limit on open files allows."""
    return fitting_files(settings.open_index_files_max)


def tcp_options(settings: ServerSettings) -> TcpOptions:
    """Options of the connections that clients open."""
    return TcpOptions(no_delay=settings.tcp_no_delay, keepalive=settings.tcp_keepalive)


def storage_settings(settings: ServerSettings) -> StorageSettings:
    """Buffers, caches and files of the ledger storage."""
    return StorageSettings(
        memtable_bytes_max=settings.memtable_bytes_max,
        index_cache_bytes_max=settings.index_cache_bytes_max,
        open_files_max=open_files_max(settings),
        entry_log_bytes_max=min(settings.entry_log_size_max, StorageSettings().entry_log_bytes_max),
        flush_interval_s=settings.flush_interval_s,
    )


def disk_settings(settings: ServerSettings) -> DiskSettings:
    """When a disk counts as full."""
    return DiskSettings(
        usage_threshold=settings.disk_usage_threshold,
        warn_threshold=settings.disk_usage_warn_threshold,
        low_water_mark=settings.disk_usage_low_water,
        read_only_on_any_full=settings.read_only_on_any_disk_full,
        entry_log_free_bytes_min=settings.entry_log_free_bytes_min,
        priority_free_bytes_min=settings.high_priority_free_bytes_min,
        check_interval_s=settings.disk_check_interval_s,
    )


def directory_uses(settings: ServerSettings) -> dict[str, tuple[str, ...]]:
    """Ledger and index directories -> the keys that name them."""
    uses: dict[str, tuple[str, ...]] = {}
    for name, paths in (
        ("ledgerDirectories", settings.ledger_directories),
        ("indexDirectories", settings.index_directories),
    ):
        for path in map(str, paths):
            uses[path] = (*uses.get(path, ()), name)
    return uses


def garbage_settings(settings: ServerSettings) -> GarbageSettings:
    """When ledgers and logs are collected."""
    return GarbageSettings(
        wait_s=settings.gc_wait_s,
        overreplicated_wait_s=settings.overreplicated_wait_s,
        metadata_reads_per_s=settings.metadata_reads_per_s,
        compaction=CompactionSettings(
            minor_threshold=settings.minor_compaction_threshold,
            minor_interval_s=settings.minor_compaction_interval_s,
            minor_time_max_s=settings.minor_compaction_time_max_s,
            major_threshold=settings.major_compaction_threshold,
            major_interval_s=settings.major_compaction_interval_s,
            major_time_max_s=settings.major_compaction_time_max_s,
        ),
        rate=CompactionRate(
            by_bytes=settings.compaction_throttled_by_bytes,
            entries_per_s=settings.compaction_entries_per_s,
            bytes_per_s=settings.compaction_bytes_per_s,
        ),
    )


def scrub_settings(settings: ServerSettings) -> ScrubSettings:
    """How often and how fast everything is read through."""
    return ScrubSettings(interval_s=settings.scrub_interval_s, bytes_per_s=settings.scrub_bytes_per_s)


def bookie_bounds(settings: ServerSettings) -> BookieBounds:
    """What the bookie keeps waiting: reading stops at half of what the journals may queue."""
    return BookieBounds(
        journal_bytes_max=settings.journal_queue_bytes_max // 2,
        cold_reads_max=settings.reads_in_progress_max,
        batch_read_bytes_max=settings.batch_read_bytes_max,
    )
