"""A bookie's settings reach the part they belong to."""

from __future__ import annotations

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from bookkeeper.bookie.process import part_settings
from bookkeeper.bookie.process import storage as storage_side
from bookkeeper.config import ServerSettings, load_server
from bookkeeper.config.keys import keys_of
from bookkeeper.errors import ConfigurationError
from bookkeeper.metadata.grouped_changes import BYTES_MAX
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.serving import descriptors


def test_settings_become_those_of_the_parts() -> None:
    settings = load_server(
        None,
        {
            "journalMaxSizeMB": "64",
            "journalMaxMemorySizeMb": "32",
            "journalMaxBackups": "2",
            "logSizeLimit": "1048576000",
            "minUsableSizeForEntryLogCreation": "2000000000",
            "skipListSizeLimit": "8388608",
            "openFileLimit": "123",
            "flushInterval": "2500",
            "diskUsageThreshold": "0.9",
            "diskUsageWarnThreshold": "0.8",
            "zkTimeout": "4000",
            "zkMaxRequestSizeBytes": "300000",
            "maxReadsInProgressLimit": "77",
            "maxBatchReadSize": "4096",
        },
        {},
    ).settings
    journal = part_settings.journal_settings(settings)
    assert (journal.file_size_max, journal.pending_bytes_max) == (64 << 20, 32 << 20)
    assert (journal.backups_max, journal.format_version) == (2, 6)
    storage = part_settings.storage_settings(settings)
    assert (storage.memtable_bytes_max, storage.open_files_max) == (8 << 20, 123)
    assert (storage.flush_interval_s, storage.entry_log_bytes_max) == (2.5, 1_048_576_000)
    disks = part_settings.disk_settings(settings)
    assert disks.entry_log_free_bytes_min == 2_000_000_000
    assert (disks.usage_threshold, disks.warn_threshold, disks.low_water_mark) == (0.9, 0.8, 0.9)
    bookie = part_settings.bookie_bounds(settings)
    assert (bookie.journal_bytes_max, bookie.cold_reads_max) == (
        16 << 20,
        77,
    )  # reading stops before the journal is full
    assert bookie.batch_read_bytes_max == 4096
    metadata = part_settings.metadata_settings(settings)
    assert metadata.session_timeout_s == 4.0
    assert metadata.registration_wait_s > metadata.session_timeout_s
    assert metadata.request_size_max == 300_000


def test_the_conf_file_says_how_much_is_kept_free_on_every_disk() -> None:
    disks = part_settings.disk_settings(load_server(None, {}, {}).settings)
    meaning = keys_of(ServerSettings)["diskUsageThreshold"].meaning
    assert f"less than {disks.reserve_bytes >> 20} MiB free" in meaning
    assert f"until {disks.release_free_bytes >> 20} MiB are" in meaning


def test_the_largest_request_to_zookeeper_is_one_that_a_server_with_defaults_takes() -> None:
    default = int(keys_of(ServerSettings)["zkMaxRequestSizeBytes"].default)
    assert default == MetadataSettings().request_size_max == 1024 * 1024 - 1 - 4095
    assert load_server(None, {"zkMaxRequestSizeBytes": str(BYTES_MAX)}, {}).settings.zk_request_size_max == BYTES_MAX
    with pytest.raises(ConfigurationError):  # the limit must allow a group of small changes
        load_server(None, {"zkMaxRequestSizeBytes": str(BYTES_MAX - 1)}, {})


@pytest.mark.parametrize(
    ("files", "level", "text"),
    [
        (
            1000,
            LogLevel.info,
            "At most 384 index files are kept open, because ulimit -n is 1024; openFileLimit=1000 needs 2256",
        ),
        (
            20_000,
            LogLevel.warn,
            "At most 384 index files are kept open, because ulimit -n is 1024; openFileLimit=20000 needs 40256: raise "
            "ulimit -n, or lower openFileLimit",
        ),
        (384, None, ""),
    ],
)
def test_fewer_open_files_are_a_warning_only_if_more_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, files: int, level: LogLevel | None, text: str
) -> None:
    monkeypatch.setattr(descriptors, "raise_descriptor_limit", lambda: 1024)
    with capturedLogs() as events:
        storage_side.log_fewer_open_files(ServerSettings(open_index_files_max=files))
    found = [(event["log_level"], formatEvent(event)) for event in events]
    assert found == ([] if level is None else [(level, text)])


@pytest.mark.parametrize("files", [1000, 20_000])
def test_the_needed_limit_is_the_least_that_keeps_all_files_open(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    needed = descriptors.descriptors_for(files)
    monkeypatch.setattr(descriptors, "raise_descriptor_limit", lambda: needed)
    assert descriptors.fitting_files(files) == files
    monkeypatch.setattr(descriptors, "raise_descriptor_limit", lambda: needed - 1)
    assert descriptors.fitting_files(files) < files
