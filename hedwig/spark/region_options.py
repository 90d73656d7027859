"""The words by which the formats of this package find a region: its ZooKeeper, its ledgers, its hubs. Pure.

    metadataServiceUri (uri)         where the cluster is; the hubs' records are in the same ZooKeeper
    zk_prefix, region                which hubs' records, as in a hub's file
    default_server_host (hubs)       hubs to ask; without it those that are registered in the region

Besides, every key of the ledger client and of the hub client is an option, under its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from bookkeeper.config import ClientSettings
from bookkeeper.config.keys import key, secret_bytes, text
from bookkeeper.config.shared import check_root
from bookkeeper.config.table import S
from bookkeeper.spark.options.tables import ALIASES, NEEDED, NOWHERE, read_tables
from bookkeeper.spark.said_as import OF_OPTIONS, Words
from hedwig.client_config import HedwigClientSettings
from hedwig.config.kinds import region_name

WHERE = "hedwig"

HUBS = "default_server_host"

REGION_ALIASES = {**ALIASES, "hubs": HUBS, "hub": HUBS}

REGION = "Region"


@dataclass(frozen=True, slots=True)
class RegionOptions:
    """Which region. A table of words, to which a format adds its own."""

    zk_prefix: str = key(
        "zk_prefix", text("path", check_root), "/hedwig", REGION, "Above all that hubs keep in ZooKeeper."
    )
    region: str = key("region", region_name(), "standalone", REGION, "Name of the hubs' region.")
    password: bytes = key(
        "passwd", secret_bytes("text"), "sillysecret", REGION,
        "Password of the ledgers of topics, as the hubs have it.", secret=True,
    )  # fmt: skip

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """What is wrong between words."""
        return iter(())


@dataclass(frozen=True, slots=True)
class TopicOptions(Generic[S]):
    """What was chosen: words of the format, settings of the ledger client and of the hub client.

    names_hubs: hubs were given; else those are asked that are registered in the region. words: for errors, of who asks.
    """

    own: S
    client: ClientSettings
    hubs: HedwigClientSettings
    names_hubs: bool
    words: Words = OF_OPTIONS


def read_topic_options(
    cls: type[S],
    options: Mapping[str, str],
    *,
    where: str = WHERE,
    needs_uri: bool = True,
    elsewhere: Mapping[str, tuple[str, str]] = NOWHERE,
) -> TopicOptions[S]:
    """Read the options of a format whose words are the table `cls`, a RegionOptions.

    needs_uri: metadataServiceUri must be given; else that or hubs. elsewhere: see `read_tables`.
    Raises ConfigurationError, which lists every fault.
    """
    given = {word.lower() for word, value in options.items() if value.strip()}
    names_hubs = bool(given & {HUBS, *(word for word, name in REGION_ALIASES.items() if name == HUBS)})
    tables: Any = (cls, ClientSettings, HedwigClientSettings)
    needed = NEEDED if needs_uri or not names_hubs else {}
    own, client, hubs = read_tables(
        tables, options, where=where, needed=needed, aliases=REGION_ALIASES, elsewhere=elsewhere
    )
    return TopicOptions(own, client, hubs, names_hubs, Words.among(options))
