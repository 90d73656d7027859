"""A region's records and ledgers over the process's ledger client. Thread: reactor."""

from __future__ import annotations

from typing import TypeVar

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.connecting import metadata_settings
from bookkeeper.metadata.znode_store import ZnodeStore
from hedwig.admin.region import Region
from hedwig.names import Paths
from hedwig.spark.region_options import RegionOptions, TopicOptions

R = TypeVar("R", bound=RegionOptions)


def region_of(client: LedgerClient, options: TopicOptions[R]) -> Region:
    """The region that the options name; whether there is one is not looked at (`Region.check` does)."""
    context, own, words = client.context, options.own, options.words
    assert isinstance(context.store, ZnodeStore)
    return Region(
        context.store.tree,
        client,
        context.clock,
        metadata_settings(options.client),
        Paths(own.zk_prefix, own.region),
        own.password,
        (words.word("zk_prefix") or "zk_prefix", words.word("region") or "region"),
    )
