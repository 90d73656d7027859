"""Settings: Apache's names and defaults, where each value comes from, and every fault in one message."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.config import (
    ClientSettings,
    ConfText,
    Loaded,
    Placement,
    ServerSettings,
    Source,
    Use,
    keys_of,
    load_client,
    load_server,
)
from bookkeeper.config.ignored import IGNORED, REFUSED, SWITCHES
from bookkeeper.config.load import known_names
from bookkeeper.config.render import render
from bookkeeper.errors import ConfigurationError
from bookkeeper.model import DigestType

CONF = Path(__file__).resolve().parents[3] / "conf" / "bk_server.conf"

# Defaults of Apache 4.18 (ServerConfiguration, ClientConfiguration), as far as the keys have a meaning here and our
# default is Apache's.
APACHE_SERVER_DEFAULTS = {
    "bookiePort": "3181",
    "ledgerDirectories": "/tmp/bk-data",
    "journalDirectories": "/tmp/bk-txn",
    "zkLedgersRootPath": "/ledgers",
    "zkTimeout": "10000",
    "nettyMaxFrameSizeBytes": "5242880",
    "maxBatchReadSize": "5242880",
    "journalMaxSizeMB": "2048",
    "journalMaxBackups": "5",
    "journalPreAllocSizeMB": "16",
    "journalAlignmentSize": "512",
    "logSizeLimit": "1073741824",
    "flushInterval": "10000",
    "pageSize": "8192",
    "diskUsageThreshold": "0.95",
    "diskUsageWarnThreshold": "0.90",
    "diskCheckInterval": "10000",
    "readOnlyModeEnabled": "true",
    "readOnlyModeOnAnyDiskFullEnabled": "true",
    "allowLoopback": "false",
    "allowStorageExpansion": "false",
}
APACHE_CLIENT_DEFAULTS = {
    "clientConnectTimeoutMillis": "10000",
    "readTimeout": "5",
    "addEntryQuorumTimeoutSec": "-1",
    "getBookieInfoTimeoutSecs": "5",
    "clientTcpNoDelay": "true",
    "clientSockKeepalive": "true",
    "enableDigestTypeAutodetection": "true",
    "speculativeReadTimeout": "2000",
    "speculativeReadTimeoutBackoffMultiplier": "2.0",
    "maxNumEnsembleChanges": "2147483647",
    "ledgerMetadataVersion": "-1",
    "diskWeightBasedPlacementEnabled": "false",
    "getBookieInfoIntervalSeconds": "86400",
    "getBookieInfoRetryIntervalSeconds": "60",
    "bookieMaxMultipleForWeightBasedPlacement": "3",
    "opportunisticStriping": "false",
    "delayEnsembleChange": "false",
}
# Every other important key of Apache 4.18: it departs from Apache with a reason, is refused, or has no effect.
APACHE_KEYS_ELSEWHERE = """
    useV2WireProtocol journalDirectory indexDirectories addEntryTimeoutSec readEntryTimeoutSec
    ledgerStorageClass sortedLedgerStorageEnabled firstSpeculativeReadLACTimeout maxSpeculativeReadLACTimeout
    journalWriteBufferSizeKB recoveryReadBatchSize enableParallelRecoveryRead explicitLacInterval journalSyncData
    journalWriteData journalAdaptiveGroupWrites journalMaxGroupWaitMSec
    journalBufferedWritesThreshold journalBufferedEntriesThreshold journalFlushWhenQueueEmpty journalQueueSize throttle
    entryLogFilePreallocationEnabled numChannelsPerBookie openFileLimit skipListSizeLimit writeBufferSizeBytes
    readBufferSizeBytes gcWaitTime gcOverreplicatedLedgerWaitTime minorCompactionThreshold minorCompactionInterval
    reorderReadSequenceEnabled majorCompactionThreshold majorCompactionInterval stickyReadSEnabled compactionRate
    useTransactionalCompaction batchReadEnabled bookieQuarantineTimeSeconds persistBookieStatusEnabled
    bookieErrorThresholdPerInterval numAddWorkerThreads numReadWorkerThreads bookieHealthCheckEnabled
    numHighPriorityWorkerThreads numLongPollWorkerThreads storeSystemTimeAsLedgerCreationTime digestType passwd
    maxPendingReadRequestsPerThread maxPendingAddRequestsPerThread auditorPeriodicCheckInterval
    auditorPeriodicBookieCheckInterval enableBookieAddressTracking lostBookieRecoveryDelay startTLSTimeoutSecs
    openLedgerRereplicationGracePeriod rereplicationEntryBatchSize rwRereplicateBackoffMs autoRecoveryDaemonEnabled
    bookieAddressResolverEnabled waitTimeoutOnBackpressureMs journalFormatVersionToWrite fileInfoFormatVersionToWrite
    """


def server(text: str = "", **given: str) -> Loaded[ServerSettings]:
    return load_server(ConfText("bk.conf", text), overrides=given, environ={})


def faults(text: str = "", environ: dict[str, str] | None = None, **given: str) -> list[str]:
    """The faults reported for a bookie's configuration, one a line."""
    with pytest.raises(ConfigurationError) as failure:
        load_server(ConfText("bk.conf", text), overrides=given, environ=environ or {})
    first, *lines = str(failure.value).splitlines()
    assert first == f"{len(lines)} fault{'s' * (len(lines) > 1)} in the configuration:"
    return [line.strip() for line in lines]


# --- the tables ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "defaults"), [(ServerSettings, APACHE_SERVER_DEFAULTS), (ClientSettings, APACHE_CLIENT_DEFAULTS)]
)
def test_defaults_are_those_of_apache(settings: type, defaults: dict[str, str]) -> None:
    table = keys_of(settings)
    assert {name: table[name].default for name in defaults} == defaults


def test_every_important_key_of_apache_is_known() -> None:
    names = [*APACHE_SERVER_DEFAULTS, *APACHE_CLIENT_DEFAULTS, *APACHE_KEYS_ELSEWHERE.split()]
    assert [name for name in names if name not in known_names()] == []


@pytest.mark.parametrize("settings", [ServerSettings, ClientSettings])
def test_a_key_has_one_meaning(settings: type) -> None:
    table = keys_of(settings)
    assert not table.keys() & (IGNORED.keys() | REFUSED.keys() | SWITCHES.keys())
    assert len(IGNORED.keys() | REFUSED.keys() | SWITCHES.keys()) == len(IGNORED) + len(REFUSED) + len(SWITCHES)
    assert all(key.meaning.endswith(".") for key in table.values())
    fields = {field.name for field in dataclasses.fields(settings)}
    assert {key.attribute for key in table.values()} <= fields


def test_keys_shared_by_bookie_and_client_agree() -> None:
    server_table, client_table = keys_of(ServerSettings), keys_of(ClientSettings)
    for name in server_table.keys() & client_table.keys():
        assert server_table[name] == client_table[name]


def test_deliberate_departures_have_their_values_and_a_reason() -> None:
    bookie, client = ServerSettings(), ClientSettings()
    assert (bookie.memtable_bytes_max, bookie.index_cache_bytes_max) == (16777216, 33554432)
    assert bookie.open_index_files_max == 1000
    assert (client.use_v2, client.digest_type) == (True, DigestType.CRC32C)
    assert client.explicit_lac_interval_s == 1.0
    table = {**keys_of(ServerSettings), **keys_of(ClientSettings)}
    for name in ("skipListSizeLimit", "openFileLimit", "useV2WireProtocol", "digestType", "explicitLacInterval"):
        assert table[name].differs
    assert "Differs from Apache" in IGNORED["journalMaxGroupWaitMSec"]


@pytest.mark.parametrize("settings", [ServerSettings(), ClientSettings()])
def test_defaults_have_no_fault(settings: ServerSettings | ClientSettings) -> None:
    assert list(settings.faults()) == []


# --- the shipped file ----------------------------------------------------------------------------------------------


def test_the_shipped_file_is_what_the_tables_render() -> None:
    assert CONF.read_text() == render(), "conf/bk_server.conf is not current: run `make conf`"


def test_the_shipped_file_names_every_key_with_its_default() -> None:
    found = dict(re.findall(r"^#?(\w+)=(.*)$", render(), re.MULTILINE))
    tables = {**keys_of(ClientSettings), **keys_of(ServerSettings)}
    assert found == {name: key.default for name, key in tables.items()}


def test_the_shipped_file_with_every_key_uncommented_changes_nothing() -> None:
    text = re.sub(r"^#(\w+=)", r"\1", render(), flags=re.MULTILINE)
    assert load_server(ConfText("bk.conf", text), environ={}).settings == ServerSettings()
    assert load_client(ConfText("bk.conf", text), environ={}).settings == ClientSettings()


# --- reading -------------------------------------------------------------------------------------------------------


def test_values_are_converted_to_the_units_of_their_names() -> None:
    settings = server(
        "journalMaxSizeMB = 64\nflushInterval: 250\nbookieId=b-1\nallowLoopback YES\nledgerDirectories=/a, /b\n"
    ).settings
    assert settings.journal_file_size_max == 64 * 1024 * 1024
    assert settings.flush_interval_s == 0.25
    assert settings.bookie_id == "b-1"
    assert settings.allow_loopback
    assert settings.ledger_directories == settings.index_directories == (Path("/a"), Path("/b"))


def test_precedence_is_command_line_environment_file_default() -> None:
    conf = ConfText("bk.conf", "bookiePort=1\nzkTimeout=1001\nflushInterval=2001\n")
    environ = {"BK_bookiePort": "2", "BK_zkTimeout": "1002"}
    loaded = load_server(conf, overrides={"bookiePort": "3"}, environ=environ)
    assert loaded.settings.bookie_port == 3
    assert loaded.settings.zk_session_timeout_s == 1.002
    assert loaded.settings.flush_interval_s == 2.001
    assert [loaded.origin(name).source for name in ("bookiePort", "zkTimeout", "flushInterval", "pageSize")] == [
        Source.COMMAND_LINE,
        Source.ENVIRONMENT,
        Source.FILE,
        Source.DEFAULT,
    ]
    assert [loaded.origin(name).place for name in ("zkTimeout", "flushInterval")] == [
        "environment BK_zkTimeout",
        "bk.conf:3",
    ]


def test_variables_of_the_upstream_image_that_are_no_keys_are_left_alone() -> None:
    environ = {"BK_DATA_DIR": "/data", "BK_CLUSTER_ROOT_PATH": "/", "HOME": "/root"}
    assert load_server(environ=environ).settings == ServerSettings()


def test_the_older_journal_key_is_read_unless_the_newer_is_set() -> None:
    assert server("journalDirectory=/old\n").settings.journal_directories == (Path("/old"),)
    both = "journalDirectory=/old\njournalDirectories=/j1,/j2\n"
    assert server(both).settings.journal_directories == (Path("/j1"), Path("/j2"))


def test_one_file_may_serve_bookie_and_client() -> None:
    conf = ConfText("bk.conf", "bookiePort=4000\ndigestType=MAC\nuseV2WireProtocol=false\n")
    assert load_server(conf, environ={}).settings.bookie_port == 4000
    client = load_client(conf, environ={}).settings
    assert (client.digest_type, client.use_v2) == (DigestType.MAC, False)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_program_names_its_file_as_it_likes_and_the_environment_precedes_it(
    tmp_path: Path, kind: Callable[[Path], str | Path]
) -> None:
    path = tmp_path / "client.conf"
    path.write_text("useV2WireProtocol=false\nreadTimeout=7\n")
    settings = load_client(kind(path), environ={"BK_readTimeout": "9"}).settings
    assert (settings.use_v2, settings.read_timeout_base_s) == (False, 9.0)
    with pytest.raises(ConfigurationError, match=r"nowhere\.conf: cannot be read"):
        load_client(kind(tmp_path / "nowhere.conf"), environ={})


def test_ignored_keys_are_listed_with_the_reason() -> None:
    loaded = server("numReadWorkerThreads=8\ndbStorage_writeCacheMaxSizeMb=64\njournalSyncData=false\n")
    assert {item.name: item.origin.place for item in loaded.ignored} == {
        "numReadWorkerThreads": "bk.conf:1",
        "dbStorage_writeCacheMaxSizeMb": "bk.conf:2",
        "journalSyncData": "bk.conf:3",
    }
    assert all(item.reason for item in loaded.ignored)


def test_the_service_uri_is_made_of_servers_and_root_where_it_is_not_set() -> None:
    settings = server("zkServers=h1:2181, h2:2182\nzkLedgersRootPath=/a/ledgers\n").settings
    assert settings.metadata_service_uri == "zk+null://h1:2181;h2:2182/a/ledgers"
    both = server("zkServers=h1:2181\nmetadataServiceUri=zk+hierarchical://h3/ledgers\n").settings
    assert both.metadata_service_uri == "zk+hierarchical://h3/ledgers"


@pytest.mark.parametrize(
    "uri",
    [
        "zk+hierarchical://h1:2181;h2:2181/ledgers",
        "ZK+longhierarchical://[::1]:2181/a/b",
        "zk+flat://127.0.0.1/ledgers",
        "zk+null://h:1/ledgers",
        "zk://h:2181/ledgers",
    ],
)
def test_every_form_of_service_uri_apache_accepts_is_accepted(uri: str) -> None:
    assert server(metadataServiceUri=uri).settings.metadata_service_uri == uri


def test_a_timeout_that_is_not_set_follows_the_general_one() -> None:
    conf = ConfText("bk.conf", "readTimeout=20\nreadEntryTimeoutSec=7\n")
    settings = load_client(conf, environ={}).settings
    assert (settings.add_timeout_s, settings.read_timeout_s) == (20.0, 7.0)
    assert settings.add_quorum_timeout_s == 0.0


def test_a_limit_of_weights_is_taken_off_as_apache_does_it() -> None:
    text = "diskWeightBasedPlacementEnabled=true\nbookieMaxMultipleForWeightBasedPlacement=-1"
    settings = load_client(ConfText("bk.conf", text), environ={}).settings
    assert (settings.disk_weights, settings.disk_weight_multiple_max) == (True, -1)


def test_placement_takes_apache_class_names() -> None:
    name = "org.apache.bookkeeper.client.DefaultEnsemblePlacementPolicy"
    settings = load_client(overrides={"ensemblePlacementPolicy": name}, environ={}).settings
    assert settings.placement is Placement.RANDOM


def test_a_page_limit_takes_precedence_over_the_cache_size() -> None:
    assert server(pageLimit="100", pageSize="4096").settings.index_cache_bytes_max == 409600


def test_secrets_are_neither_shown_nor_repeated_in_messages() -> None:
    loaded = server("zkDigestAuth=bk:hunter2\nzkEnableSecurity=true\n")
    assert loaded.settings.zk_digest_auth == "bk:hunter2"
    assert "hunter2" not in repr(loaded.settings)
    assert "hunter2" not in "".join(row.text for row in loaded.rows)
    assert "hunter2" not in "".join(faults("zkDigestAuth=hunter2\n"))


# --- faults --------------------------------------------------------------------------------------------------------


def test_all_faults_are_in_one_message_with_their_places() -> None:
    lines = faults(
        "bookiePort=70000\nbokieId=x\nflushInterval=soon\nnonsense\n",
        environ={"BK_pageSize": "13"},
        openFileLimit="2",
    )
    assert sorted(line.split(": ")[0] for line in lines) == [
        "bk.conf:1",
        "bk.conf:2",
        "bk.conf:3",
        "bk.conf:4",
        "command line",
        "environment BK_pageSize",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, "2001") for key in ("advertisedAddress", "listeningInterface", "httpServerHost", "zkServers")),
        *(("zkServers", "zk1:2181,0x7d1:2181"), ("metadataServiceUri", "zk://zk1;2001:2181/ledgers")),
    ],
)
def test_a_host_that_is_a_number_is_refused(key: str, value: str) -> None:
    (line,) = faults(f"{key}={value}\n")
    assert line.endswith("is a number, which would be read as the address 0.0.7.209; write a name or an address")


def test_faults_stand_in_the_order_of_the_lines_they_are_about() -> None:
    """Whatever finds them: the reader of lines, of keys, of values, or the check between keys."""
    lines = faults(
        "bookiePort=70000\n=nameless\ndiskUsageWarnThreshold=0.97\nbokieId=x\npageSize=13\nbookiePort=1\nbare\n",
        environ={"BK_flushInterval": "soon"},
    )
    assert [line.split(": ")[0] for line in lines] == [
        *(f"bk.conf:{number}" for number in range(1, 8)),
        "environment BK_flushInterval",
    ]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("bookieport", "bookiePort"),
        ("journalDirectores", "journalDirectories"),
        ("zkserver", "zkServers"),
        ("ledgerDirs", "ledgerDirectories"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(typed: str, meant: str) -> None:
    (line,) = faults(f"{typed}=1\n")
    assert line == f"bk.conf:1: unknown key {typed!r}; did you mean {meant}?"


def test_an_unknown_key_is_refused_wherever_it_stands() -> None:
    (line,) = faults(environ={"BK_bookiePrt": "1"})
    assert line == "environment BK_bookiePrt: unknown key 'bookiePrt'; did you mean bookiePort?"
    (line,) = faults(qqqqqqqqqqqq="1")
    assert line == "command line: unknown key 'qqqqqqqqqqqq'"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bookiePort=x", "not a whole number (want 0..65535 TCP port)"),
        ("bookiePort=0", "allowEphemeralPorts=true"),
        ("bookiePort=", "not a whole number"),
        ("flushInterval=nan", "out of range"),
        ("diskUsageThreshold=1.5", "out of range (want 0.01..0.99)"),
        ("allowLoopback=maybe", "neither true nor false"),
        ("bookieId=a b", "characters"),
        ("bookieId=ReadOnly", "read-only registration node"),
        ("ledgerDirectories=", "names no directory"),
        ("ledgerDirectories=/a,,/b", "empty name"),
        ("ledgerDirectories=/a,/a", "names /a more than once"),
        ("journalDirectories=/j,/j", "names /j more than once"),
        ("diskUsageWarnThreshold=0.96", "above diskUsageThreshold=0.95"),
        ("diskUsageLwmThreshold=0.96", "above diskUsageThreshold=0.95"),
        ("journalPreAllocSizeMB=64\njournalMaxSizeMB=32", "journalPreAllocSizeMB is above journalMaxSizeMB"),
        ("nettyMaxFrameSizeBytes=100", "out of range"),
        ("nettyMaxFrameSizeBytes=50000000", "skipListSizeLimit (16777216 bytes) cannot hold"),
        ("journalMaxMemorySizeMb=8", "must hold 2 frames"),
        ("indexCacheBytesMax=65536", "at least 64 pages"),
        ("pageLimit=10", "pageLimit must hold at least 64 pages"),
        ("pageSize=1001", "multiple of 8"),
        ("journalAlignmentSize=600", "multiple of 512"),
        ("serverWriteBufferLowWaterMark=600000", "above serverWriteBufferHighWaterMark"),
        ("httpServerEnabled=true\nhttpServerPort=3181", "both 3181"),
        ("metadataServiceUri=zk://h1:2181,h2:2181/ledgers", "separate the servers of a URI by ';'"),
        ("metadataServiceUri=zk+tree://h/ledgers", "unknown layout 'tree'"),
        ("metadataServiceUri=zk://h", "root is missing"),
        ("metadataServiceUri=http://h/ledgers", "zk+hierarchical://"),
        ("metadataServiceUri=zk://h:99999/ledgers", "is not host:port"),
        ("zkServers=h1;h2", "is not host:port"),
        ("zkLedgersRootPath=ledgers", "absolute path"),
        ("zkLedgersRootPath=/ledgers/", "absolute path"),
        ("zkEnableSecurity=true", "set zkDigestAuth=user:password"),
        ("zkDigestAuth=only-a-name", "user:password"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_wanted(text: str, words: str) -> None:
    assert any(words in line for line in faults(text)), faults(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("digestType=MD5", "want CRC32, MAC, CRC32C, DUMMY"),
        ("ledgerMetadataVersion=4", "unknown version"),
        ("addEntryTimeoutSec=0", "out of range"),
        ("ensemblePlacementPolicy=org.example.Mine", "unknown value"),
        ("getBookieInfoRetryIntervalSeconds=0", "out of range"),
        ("bookieMaxMultipleForWeightBasedPlacement=-2", "out of range"),
        ("windowBytesMax=65536", "cannot hold a frame"),
        ("tailPollMinMillis=5000", "tailPollMinMillis is above tailPollMaxMillis"),
    ],
)
def test_a_bad_client_value_is_refused_with_what_is_wanted(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        load_client(ConfText("bk.conf", text), environ={})


@pytest.mark.parametrize(
    "text",
    [
        "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "httpServerTlsEnable=true",
        "skipReplayJournalInvalidRecord=true",
        "permittedStartupUsers=bk",
        "enforceMinNumFaultDomainsForWrite=true",
    ],
)
def test_a_promise_this_release_cannot_keep_is_refused_rather_than_ignored(text: str) -> None:
    (line,) = faults(text)
    assert line.startswith(f"bk.conf:1: {text} is refused: ")


SWITCHED_ON = [
    "dataIntegrityChecking=TRUE",
    "dataIntegrityStampMissingCookies=yes",
    "repairedPlacementPolicyNotAdheringBookieEnabled=true",
    "localConsistencyCheckOnStartup=on",
    "persistBookieStatusEnabled=true",
    "extraServerComponents=org.apache.bookkeeper.stream.server.StreamStorageLifecycleComponent",
]


@pytest.mark.parametrize("text", SWITCHED_ON)
def test_a_switch_of_an_absent_function_is_refused_where_a_bookie_is_to_run(text: str) -> None:
    (line,) = faults(text)
    assert line.startswith(f"bk.conf:1: {text} is refused: ")


@pytest.mark.parametrize("text", SWITCHED_ON)
def test_such_a_switch_is_only_noted_by_who_reads_another_bookies_configuration(text: str) -> None:
    conf = ConfText("bk.conf", text)
    for ignored in (load_server(conf, environ={}, use=Use.INSPECT).ignored, load_client(conf, environ={}).ignored):
        assert [(item.name, bool(item.reason)) for item in ignored] == [(text.partition("=")[0], True)]


def test_a_switch_that_is_off_is_accepted() -> None:
    assert {text.partition("=")[0] for text in SWITCHED_ON} == SWITCHES.keys()
    off = "".join(f"{name}=\n" for name in SWITCHES)
    assert server(off).settings == ServerSettings()
    assert server("dataIntegrityChecking=off\n").settings == ServerSettings()


@pytest.mark.parametrize(
    ("text", "consequence"),
    [
        ("isForceGCAllowWhenNoSpace=true", "only waits for room"),
        ("useTransactionalCompaction=false", "always transactional"),
        ("zkReplicationTaskRateLimit=5", "follows from replicationLedgersMax"),
    ],
)
def test_a_key_that_tunes_an_absent_function_is_noted_with_the_consequence(text: str, consequence: str) -> None:
    (ignored,) = server(text).ignored
    assert ignored.name == text.partition("=")[0]
    assert consequence in ignored.reason


def test_harmless_values_of_refused_keys_are_accepted() -> None:
    loaded = server(
        "ledgerStorageClass=org.apache.bookkeeper.bookie.SortedLedgerStorage\nbookieAuthProviderFactoryClass=null\n"
    )
    assert loaded.settings == ServerSettings()


def test_a_key_set_twice_is_refused_unless_both_say_the_same() -> None:
    (line,) = faults("bookiePort=3181\n\nbookiePort=3182\n")
    assert line == "bk.conf:3: bookiePort is set again (first at bk.conf:1)"
    assert server("bookiePort=4000\nbookiePort=4000\n").settings.bookie_port == 4000


def test_a_fault_between_keys_is_not_reported_on_top_of_one_of_its_keys() -> None:
    (line,) = faults("diskUsageThreshold=high\ndiskUsageWarnThreshold=0.97\n")
    assert "diskUsageThreshold=high" in line


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("minorCompactionInterval=60", "shorter than gcWaitTime"),
        ("majorCompactionThreshold=0.1", "not below majorCompactionThreshold"),
        ("minorCompactionInterval=90000", "longer than"),
    ],
)
def test_compaction_settings_that_contradict_each_other_are_refused(text: str, fault: str) -> None:
    (line,) = faults(text)
    assert fault in line


def test_a_compaction_that_is_off_is_not_compared_with_anything() -> None:
    settings = server("minorCompactionInterval=-1\nmajorCompactionThreshold=0\ngcWaitTime=7200000\n").settings
    assert (settings.minor_compaction_interval_s, settings.major_compaction_threshold) == (0.0, 0.0)


def test_of_thousands_of_faults_the_first_hundred_are_listed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        server("".join(f"timoutOfReads{number}=1\n" for number in range(5000)))
    lines = str(caught.value).splitlines()
    assert lines[0] == "more than 100 faults in the configuration:"
    assert (len(lines), lines[-1]) == (102, "  and more: correct these first, or name the right file")
