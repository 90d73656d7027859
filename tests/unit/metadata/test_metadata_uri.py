"""metadataServiceUri in Apache's forms."""

import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.uri import MetadataUri, parse_uri, uri_from_servers

HIERARCHICAL = LayoutKind.HIERARCHICAL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk+hierarchical://h1:2181;h2:2182/ledgers", MetadataUri(("h1:2181", "h2:2182"), "/ledgers", HIERARCHICAL)),
        ("zk+flat://h1:2181/ledgers", MetadataUri(("h1:2181",), "/ledgers", LayoutKind.FLAT)),
        ("zk+longhierarchical://h:1/l", MetadataUri(("h:1",), "/l", LayoutKind.LONG_HIERARCHICAL)),
        ("zk+null://h:1/ledgers", MetadataUri(("h:1",), "/ledgers", None)),
        ("zk://h:1/ledgers", MetadataUri(("h:1",), "/ledgers", None)),
        ("ZK+Hierarchical://h:1/ledgers", MetadataUri(("h:1",), "/ledgers", HIERARCHICAL)),
        ("zk://h/ledgers/", MetadataUri(("h:2181",), "/ledgers", None)),
        ("zk://h:1/chroot/of/mine/ledgers", MetadataUri(("h:1",), "/chroot/of/mine/ledgers", None)),
        ("zk://[::1]:2181;127.0.0.1:2182/ledgers", MetadataUri(("[::1]:2181", "127.0.0.1:2182"), "/ledgers", None)),
    ],
)
def test_every_form_is_read(text: str, expected: MetadataUri) -> None:
    assert parse_uri(text) == expected
    assert parse_uri(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "'://'"),
        ("localhost:2181", "'://'"),
        ("etcd://h:1/ledgers", "only ZooKeeper"),
        ("zk+ms://h:1/ledgers", "'ms' is not one of"),
        ("zk+://h:1/ledgers", "is not one of"),
        ("zk://h1:1,h2:2/ledgers", "separated by ';'"),
        ("zk://h:1", "root is missing"),
        ("zk://h:1/", "root is missing"),
        ("zk:///ledgers", "not host:port"),
        ("zk://h:1;2001:2181/ledgers", "'2001' is a number"),
        ("zk://10.1/ledgers", "'10.1' is a number"),
        ("zk://h:0/ledgers", "port 0"),
        ("zk://h:65536/ledgers", "port 65536"),
        ("zk://h:x/ledgers", "not host:port"),
        ("zk://h:1;/ledgers", "not host:port"),
        ("zk://h:1/led//gers", "not a ZooKeeper path"),
        ("zk://h:1/../ledgers", "not a ZooKeeper path"),
        ("zk://h:1/led?gers", "character"),
    ],
)
def test_a_wrong_uri_says_what_is_wrong_and_shows_the_form(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault) as raised:
        parse_uri(text)
    assert "zk[+flat|" in str(raised.value)


def test_the_older_settings_mean_the_same() -> None:
    assert uri_from_servers("h1:1,h2:2", "/ledgers", LayoutKind.FLAT) == parse_uri("zk+flat://h1:1;h2:2/ledgers")
    assert uri_from_servers("h1:1/chroot", "/ledgers") == parse_uri("zk://h1:1/chroot/ledgers")


def test_the_connect_string_is_zookeepers() -> None:
    assert parse_uri("zk://h1:1;h2/ledgers").connect_string == "h1:1,h2:2181"
