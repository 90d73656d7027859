"""Settings of hubs and of their clients: Apache's keys and files, what is refused and how that is said."""

import re
import resource
from pathlib import Path

import pytest

from bookkeeper.config import ConfText, Loaded, Source, keys_of
from bookkeeper.errors import ConfigurationError
from bookkeeper.model import DigestType
from hedwig.client_config import HedwigClientSettings, load_hedwig_client
from hedwig.config.hub import HubConfig
from hedwig.config.load import load_hub
from hedwig.config.render import render
from hedwig.embedded import LocalHub
from hedwig.hub.tuning import hub_settings
from hedwig.model import HubAddress, Topic

CONF = Path(__file__).resolve().parents[3] / "conf" / "hw_server.conf"

# hedwig/PROTOCOL.md 5.1, of the keys that have an effect; cache_size and readahead_count differ on purpose.
HUB_DEFAULTS = {
    "region": "standalone",
    "server_port": "4080",
    "ssl_enabled": "false",
    "ssl_server_port": "9876",
    "cert_name": "",
    "cert_path": "",
    "password": "",
    "max_message_size": "1258291",
    "readahead_size": "4194304",
    "scan_backoff_ms": "1000",
    "default_message_window_size": "0",
    "consume_interval": "50",
    "messages_consumed_thread_run_interval": "60000",
    "zk_timeout": "2000",
    "zk_prefix": "/hedwig",
    "bk_ensemble_size": "3",
    "bk_write_quorum_size": "",
    "bk_ack_quorum_size": "",
    "bk_quorum_size": "2",
    "max_entries_per_ledger": "0",
}

# Every key of hedwig/PROTOCOL.md 5.1 with its default, as in a file that sets them all.
APACHES = """
zk_host=zk1:2181,zk2:2181, zk3
zk_timeout=2000
standalone=false
server_port=4080
ssl_server_port=9876
ssl_enabled=false
cert_name=
cert_path=
password=
max_message_size=1258291
consume_interval=50
retention_secs=0
messages_consumed_thread_run_interval=60000
default_message_window_size=0
max_entries_per_ledger=0
region=standalone
regions=
inter_region_ssl_enabled=false
retry_remote_subscribe_thread_run_interval=120000
readahead_enabled=true
readahead_count=10
readahead_size=4194304
cache_size=
scan_backoff_ms=1000
num_readahead_cache_threads=
cache_entry_ttl=
zk_prefix=/hedwig
metadata_manager_based_topic_manager_enabled=false
metadata_manager_factory_class=
metastore_impl_class=
metastoreMaxEntriesPerScan=50
bk_ensemble_size=3
bk_write_quorum_size=2
bk_ack_quorum_size=2
bk_quorum_size=2
init_num_topics=128
max_num_topics=2147483647
retention_secs_after_access=0
num_delivery_threads=2
rebalance_tolerance=10.0
rebalance_max_shed=50
rebalance_interval_sec=300
throttle=5000
addEntryTimeoutSec=7
"""


def hub(text: str = "", environ: dict[str, str] | None = None, **given: str) -> Loaded[HubConfig]:
    return load_hub(ConfText("hw.conf", text), given, environ or {})


def refused(text: str = "", **given: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        hub(text, **given)
    return str(caught.value)


def test_nothing_is_kept_longer_than_it_may_be_there() -> None:
    assert "limit_ms 5 is below keep_ms 9, which could not be kept" in refused(limit_ms="5", keep_ms="9")
    assert "limit_bytes 5 is below keep_bytes 9" in refused(limit_bytes="5", keep_bytes="9")
    assert hub(limit_ms="9", keep_ms="9", keep_bytes="7").settings.keep_bytes == 7


def test_topics_may_have_a_retention_of_their_own() -> None:
    own = '{"audit.": {"keep_ms": 9, "limit_bytes": 0}, "audit.eu.": {"keep_ms": 0}}'
    settings = hub(keep_ms="5", limit_bytes="7", retention_by_topic=own).settings

    def numbers(topic: bytes) -> tuple[int, ...]:
        found = settings.retention_of(topic)
        return tuple(found[name] for name in ("keep_ms", "keep_bytes", "limit_ms", "limit_bytes"))

    assert numbers(b"orders") == (5, 0, 0, 7)
    assert numbers(b"audit.us") == (9, 0, 0, 0)
    assert numbers(b"audit.eu.x") == (0, 0, 0, 7)
    assert "'audit.': limit_ms 5 is below keep_ms 9" in refused(limit_ms="5", retention_by_topic=own)


@pytest.mark.parametrize(("limit", "count"), [(100, 16), (1024, 512), (20_000, 10_000)])
def test_connections_of_a_hub_fit_the_limit_on_open_files(
    monkeypatch: pytest.MonkeyPatch, limit: int, count: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    given = {"metadataServiceUri": "zk+hierarchical://127.0.0.1:2181/ledgers", "httpServerEnabled": "true"}
    assert hub_settings(hub(**given).settings).connections.connections_max == count


def test_messages_get_times_unless_their_topic_is_excepted() -> None:
    settings = hub(publish_time_except="raw.,tmp").settings
    assert [settings.times(topic) for topic in (b"orders", b"raw.a", b"tmp")] == [True, False, False]
    assert not hub(publish_time="false").settings.times(b"orders")


def test_messages_without_a_subscription_are_kept_for_a_week_by_default() -> None:
    def kept(**given: str) -> list[int | None]:
        found = hub_settings(hub(metadataServiceUri="zk+hierarchical://127.0.0.1:2181/ledgers", **given).settings)
        return [found.retention_of(Topic(topic)).keep_unsubscribed_ms for topic in (b"orders", b"ticks.eu")]

    week = 7 * 24 * 3600 * 1000
    assert kept() == [week, week]
    assert kept(limit_ms="5") == [week, week], "a limit overrides it, and may be shorter"
    assert kept(keep_unsubscribed_ms="0") == [None, None], "Apache's rule"
    assert kept(retention_by_topic='{"ticks.": {"keep_unsubscribed_ms": 9}}') == [week, 9]
    assert kept(retention_by_topic='{"ticks.": {"keep_ms": 9}}') == [week, week]


# --- the table


def test_names_and_defaults_are_apaches() -> None:
    table = keys_of(HubConfig)
    assert {name: table[name].default for name in HUB_DEFAULTS} == HUB_DEFAULTS
    assert not any(table[name].ours for name in HUB_DEFAULTS)


def test_the_shipped_file_is_what_the_table_renders() -> None:
    assert CONF.read_text() == render(), "conf/hw_server.conf is not current: run `make conf`"


def test_the_shipped_file_with_every_key_uncommented_changes_nothing() -> None:
    text, _ = re.subn(r"^#(\w+=)", r"\1", render(), flags=re.MULTILINE)
    assert {name for name in keys_of(HubConfig) if f"\n{name}=" in text} == set(keys_of(HubConfig))
    assert hub(text).settings == HubConfig()


def test_a_file_for_apaches_hubs_is_read_as_it_is() -> None:
    loaded = hub(APACHES)
    settings = loaded.settings
    assert settings.metadata_service_uri == "zk+null://zk1:2181;zk2:2181;zk3/ledgers"
    assert (settings.readahead_count, settings.cache_size, settings.add_timeout_s) == (10, 256 * 1024 * 1024, 7.0)
    assert (settings.write_quorum, settings.ack_quorum) == (2, 2)
    told = {each.name for each in loaded.ignored}
    assert {"retention_secs", "rebalance_interval_sec", "num_delivery_threads", "throttle"} <= told
    assert all(each.reason for each in loaded.ignored)


def test_the_uri_counts_instead_of_the_servers() -> None:
    uri = "zk+hierarchical://zk9:2181/other/ledgers"
    settings = hub("zk_host=zk1\nzkLedgersRootPath=/mine", metadataServiceUri=uri).settings
    assert settings.metadata_service_uri == uri


def test_ledgers_of_topics_are_as_apaches_hubs_know_them() -> None:
    settings = hub().settings
    assert (settings.digest_type, settings.metadata_format_version) == (DigestType.CRC32, 2)
    assert settings.password == b"sillysecret"
    assert [each.name for each in hub(digestType="CRC32C").ignored] == ["digestType"]


def test_the_environment_stands_between_file_and_command_line() -> None:
    loaded = hub("server_port=1\nconsume_interval=1", {"HW_server_port": "2", "HW_region": "east"}, server_port="3")
    assert (loaded.settings.server_port, loaded.settings.consume_interval, loaded.settings.region) == (3, 1, "east")
    assert loaded.origin("region").source is Source.ENVIRONMENT


def test_both_quorums_follow_the_older_key() -> None:
    settings = hub(bk_quorum_size="3", bk_ack_quorum_size="2").settings
    assert (settings.write_quorum, settings.ack_quorum) == (3, 2)


def test_keys_of_tls_are_named_as_without_effect_while_tls_is_off() -> None:
    given = {"ssl_server_port": "9877", "cert_path": "x", "password": "p", "inter_region_ssl_trust_path": "y"}
    ignored = {each.name: each.reason for each in hub(**given).ignored}
    assert ignored.keys() == given.keys()
    assert ignored["cert_path"].endswith("set ssl_enabled=true")
    assert ignored["inter_region_ssl_trust_path"].endswith("set inter_region_ssl_enabled=true")
    assert hub(ssl_enabled="true", cert_path="x", ssl_server_port="9877").ignored == ()
    (client_key,) = load_hedwig_client(None, {"ssl_trust_path": "x"}, {}).ignored
    assert client_key.reason.endswith("set ssl_enabled=true")


def test_secrets_are_not_shown() -> None:
    loaded = hub(password="geheim", passwd="auch")
    assert "geheim" not in repr(loaded.settings)
    assert "auch" not in repr(loaded.settings)
    assert {row.text for row in loaded.rows if row.key.name in ("password", "passwd")} == {"(hidden)"}


# --- what is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server_prot=4081", "hw.conf:1: unknown key 'server_prot'; did you mean server_port?"),
        ("bookiePort=3181", "unknown key 'bookiePort'"),
        ("server_port=70000", "server_port=70000: out of range (want 0..65535 TCP port)"),
        ("zk_prefix=hedwig", "zk_prefix=hedwig: not an absolute path"),
        ("zk_host=a:b", "zk_host=a:b: 'a:b' is not host:port"),
        ("region=a/b", "region=a/b: not a name"),
        ("region=", "region=: not a name"),
        ("advertisedAddress=hub1:4080", "the port is server_port"),
        *(
            (f"{key}={value}", "is a number, which would be read as the address 0.0.7.209")
            for key, value in (
                *(("advertisedAddress", "2001"), ("listeningInterface", "2001"), ("httpServerHost", "2001")),
                *(("regions", "h:1 2001:4080"), ("zk_host", "2001:2181"), ("metadataServiceUri", "zk://2001/l")),
            )
        ),
        ("ssl_versions=SSLv3", "'SSLv3' is not one of TLSv1.2, TLSv1.3"),
        ("bk_ensemble_size=1", "need bk_ensemble_size >= bk_write_quorum_size >= bk_ack_quorum_size"),
        ("bk_ack_quorum_size=3\nbk_ensemble_size=3", "bk_write_quorum_size 2, bk_ack_quorum_size 3"),
        ("max_message_size=9000000", "raise nettyMaxFrameSizeBytes here and at the bookies"),
        (
            "max_message_size=5242880",
            "above 5111672, the largest that can be stored with nettyMaxFrameSizeBytes 5242880",
        ),
        ("ssl_enabled=true", "ssl_enabled=true needs a certificate: set cert_path"),
        ("ssl_enabled=true\ncert_name=server.p12", "name the file in cert_path"),
        ("ssl_enabled=true\ncert_path=x\nssl_server_port=4080", "server_port and ssl_server_port are both 4080"),
        ("httpServerEnabled=true\nhttpServerPort=4080", "server_port and httpServerPort are both 4080"),
        ("standalone=true", "bookkeeper standalone --hub"),
        ("regions=h:4080,g:4080", "regions=h:4080,g:4080: 'h:4080,g:4080' is no address of a hub"),
        ("retention_by_topic={", "retention_by_topic={: not JSON: "),
        ("retention_by_topic=[]", 'want {"BEGINNING": {"keep_ms": NUMBER, ...}, ...}'),
        ('retention_by_topic={"a": {}}', "'a': want the beginning of a name, and"),
        (
            'retention_by_topic={"a": {"keep_s": 1}}',
            "'a': 'keep_s' is not one of keep_ms, keep_bytes, limit_ms, limit_",
        ),
        ('retention_by_topic={"a": {"keep_ms": -1}}', "'a': keep_ms is -1, and must be a whole number from 0 on"),
        ('retention_by_topic={"a": {"keep_ms": true}}', "'a': keep_ms is True"),
        ("regions=h", "'h' is no address of a hub: want host:port or host:port:sslport"),
        ("regions=h:4080:9876 g:1 h:4080:9876", "h:4080:9876 stands there twice"),
        ("retry_remote_subscribe_thread_run_interval=0", "retry_remote_subscribe_thread_run_interval=0: out of range"),
        ("regions=h:1:2\ninter_region_ssl_enabled=true", "set inter_region_ssl_trust_path"),
        (
            "regions=h:1:2 g:3\ninter_region_ssl_enabled=true\ninter_region_ssl_trust_all=true",
            "regions names no TLS port for g: write g:3:SSLPORT",
        ),
        ("metadata_manager_based_topic_manager_enabled=true", "would not see each other's topics"),
        ("metadata_manager_factory_class=org.apache.hedwig.server.meta.MsMetadataManagerFactory", "is refused"),
        ("tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory", "clientTrustStore"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    assert said in refused(text)


def test_all_faults_are_told_at_once() -> None:
    message = refused("server_port=x\nconsume_interval=-1\nnobody=1")
    assert message.startswith("3 faults in the configuration:")
    assert [line.strip()[:9] for line in message.splitlines()[1:]] == ["hw.conf:1", "hw.conf:2", "hw.conf:3"]


def test_the_class_name_of_the_metadata_that_we_have_promises_nothing() -> None:
    assert hub(metadata_manager_factory_class="org.apache.hedwig.server.meta.ZkMetadataManagerFactory").ignored


# --- clients


def client(text: str = "", **given: str) -> Loaded[HedwigClientSettings]:
    return load_hedwig_client(ConfText("hw.conf", text), given, {})


def test_a_file_for_apaches_clients_is_read_as_it_is() -> None:
    loaded = client(
        "default_server_host=localhost:4080:9876\nmax_message_size=2097152\nmax_server_redirects=2\n"
        "auto_send_consume_message_enabled=true\nconsumed_messages_buffer_size=5\n"
        "message_consume_retry_wait_time=10000\nsubscribe_reconnect_retry_wait_time=10000\n"
        "max_outstanding_messages=10\nserver_ack_response_timeout=30000\ntimeout_thread_run_interval=60000\n"
        "ssl_enabled=false\nsubscription_message_bound=0\nsubscription_channel_sharing_enabled=false\nproxy_port=9099"
    )
    settings = loaded.settings
    assert settings.servers == (HubAddress("localhost", 4080, 9876),)
    assert (settings.window, settings.consume_every, settings.answer_timeout_s) == (10, 5, 30.0)
    assert not settings.shared_connections
    assert {each.name for each in loaded.ignored} == {
        *("max_server_redirects", "message_consume_retry_wait_time", "timeout_thread_run_interval", "proxy_port"),
    }


def test_several_hubs_may_be_asked() -> None:
    servers = client(default_server_host="a, b:1,c:2:3").settings.servers
    assert servers == (HubAddress("a", 4080), HubAddress("b", 1), HubAddress("c", 2, 3))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default_server_host=a:b", "'a:b' is not host:port or host:port:sslport"),
        ("default_server_host=a,,b", "'' is not host:port"),
        ("default_server_host=a,2001", "'2001' is a number"),
        ("default_server_host=a:1:2:3", "is not host:port"),
        ("ssl_enabled=true", "set ssl_trust_path"),
        ("ssl_enabled=true\nssl_trust_all=true\ndefault_server_host=a:1", "write a:1:SSLPORT"),
        ("max_outstanding_messages=3", "the hub would wait for what it is never told"),
        ("retry_wait_min_ms=2000", "retry_wait_min_ms is above subscribe_reconnect_retry_wait_time"),
        ("server_prt=1", "unknown key 'server_prt'"),
        ("server_port=1", "server_port is a hub's key"),
    ],
)
def test_what_a_client_cannot_mean_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        client(text)


def test_a_machines_environment_may_have_settings_of_hubs_and_of_clients() -> None:
    environ = {"HW_default_server_host": "hub1:4080", "HW_zk_host": "zk1:2181", "HW_region": "eu"}
    assert load_hub(None, None, environ).settings.region == "eu"
    assert load_hedwig_client(None, None, environ).settings.servers == (HubAddress("hub1", 4080),)
    with pytest.raises(ConfigurationError, match="HW_zk_hots"):
        load_hub(None, None, {**environ, "HW_zk_hots": "zk1:2181"})


def test_a_local_hub_is_shown_to_people_without_a_port_that_it_does_not_have(tmp_path: Path) -> None:
    hub = LocalHub(1, tmp_path, "zk://127.0.0.1:2181/ledgers", 4080, 3)
    assert (hub.address, hub.shown_address) == ("127.0.0.1:4080:-1", "127.0.0.1:4080")


def test_the_explicit_lac_interval_of_a_hub_is_a_second_by_default() -> None:
    assert load_hub(None).settings.explicit_lac_interval_s == 1.0
    assert load_hub(None, {"explicitLacInterval": "0"}).settings.explicit_lac_interval_s == 0.0
