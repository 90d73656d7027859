"""Keys that Apache's hubs have and the table has not: those without effect, those refused, and all others unknown.

What is only tuned otherwise here is told, and has no effect; what promises something that hubs do not do here is
refused. Keys of Apache's ledger client are judged as they are for the ledger client: `bookkeeper.config.ignored`.

Source: hedwig/PROTOCOL.md 5.1.
"""

from __future__ import annotations

from bookkeeper.config.ignored import ignored_reason
from bookkeeper.config.keys import keys_of
from bookkeeper.config.table import Given, nearest
from hedwig.config.hub import HubConfig

_ONE_THREAD = "one reactor thread does this work"
_IDLE = "a topic that nobody uses costs a record here; it stays with its hub until that one stops"
_BALANCE = "topics move when somebody says so, or when a hub ends; no hub sheds them by itself"
_READING = "older messages are always read ahead, readahead_count at a time"
_METASTORE = "belongs to a kind of metadata that hubs do not have here"
_ONE_SESSION = "one session with ZooKeeper serves a hub: zk_host and zk_timeout are its settings"
_AS_APACHES = "ledgers of topics are as Apache's hubs make them and can read them: CRC32, metadata as text"

IGNORED: dict[str, str] = {
    **dict.fromkeys(("num_readahead_cache_threads", "num_delivery_threads"), _ONE_THREAD),
    **dict.fromkeys(("retention_secs", "retention_secs_after_access", "max_num_topics", "init_num_topics"), _IDLE),
    **dict.fromkeys(("rebalance_tolerance", "rebalance_max_shed", "rebalance_interval_sec"), _BALANCE),
    **dict.fromkeys(("readahead_enabled", "readhead_enabled"), _READING),
    "cache_entry_ttl": "messages stay in memory until newer ones need the room (cache_size)",
    **dict.fromkeys(("metastore_impl_class", "metastoreMaxEntriesPerScan"), _METASTORE),
    **dict.fromkeys(("zkServers", "zkTimeout"), _ONE_SESSION),
    **dict.fromkeys(("digestType", "ledgerMetadataVersion"), _AS_APACHES),
}
"""Key -> why it has no effect."""

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "standalone": (
        ("false", "no", "off"),
        "a hub keeps its topics in ledgers; a ZooKeeper, a bookie and a hub on one machine are "
        "`bookkeeper standalone --hub`",
    ),
    "metadata_manager_based_topic_manager_enabled": (
        ("false", "no", "off"),
        "owners of topics are ephemeral znodes here, as Apache's hubs keep them without this setting; hubs that look "
        "elsewhere would not see each other's topics",
    ),
    "metadata_manager_factory_class": (
        ("null", "org.apache.hedwig.server.meta.zkmetadatamanagerfactory"),
        "the metadata is in ZooKeeper, as ZkMetadataManagerFactory keeps it; in another kind no topic would be found",
    ),
}
"""Key -> values besides "" that promise nothing (lower case), and why the others are refused."""


def judge(given: Given) -> str | None:
    """Why a key has no effect, or None if it has. Raises ValueError for one that must not stand at all."""
    table = keys_of(HubConfig)
    if given.name in table:
        return None
    refused = REFUSED.get(given.name)
    if refused is not None:
        harmless, why = refused
        if given.text.lower() not in ("", *harmless):
            raise ValueError(f"{given.name}={given.text} is refused: {why}")
        return "its value is what hubs always do here"
    reason = IGNORED.get(given.name) or ignored_reason(given.name)
    if reason is None:
        raise ValueError(f"unknown key {given.name!r}" + nearest(given.name, [*table, *IGNORED, *REFUSED]))
    return reason
