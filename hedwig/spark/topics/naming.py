"""Which topics of a region a pipeline is about: those that were named, or all whose names begin so. Thread: any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import connect
from bookkeeper.config import ClientSettings, keys_of
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.options.tables import ALIASES
from bookkeeper.spark.said_as import SAID_AS
from hedwig.client_config import HedwigClientSettings
from hedwig.spark.region_access import region_of
from hedwig.spark.region_options import REGION_ALIASES, RegionOptions, TopicOptions, read_topic_options
from hedwig.spark.topic_absence import check_topic
from hedwig.spark.topics.question import nameable

LEFT_OUT_TOLD_MAX = 5


def words_of(given: Mapping[str, str], *tables: type) -> dict[str, str]:
    """Those of the options that are words of these tables, of the ledger client, or the address; and SAID_AS."""
    known = {name.lower() for table in (*tables, ClientSettings) for name in keys_of(table)} | set(ALIASES)
    return _those(given, known)


def publishing_words(given: Mapping[str, str]) -> dict[str, str]:
    """Those that a write of the format hedwig knows, with the hubs; and SAID_AS."""
    known = {name.lower() for table in (RegionOptions, ClientSettings, HedwigClientSettings) for name in keys_of(table)}
    return _those(given, known | set(REGION_ALIASES))


def _those(given: Mapping[str, str], known: set[str]) -> dict[str, str]:
    return {word: text for word, text in given.items() if word.lower() in known or word == SAID_AS}


def topics_chosen(given: Mapping[str, str], topics: Sequence[str] | None, prefix: str = "") -> list[str]:
    """The topics that were named, once it is certain that they are there; else all whose names begin with `prefix`.

    given: options, of which those of the region and the client count. Raises InvalidArgument for a topic or region that
    there is not; ConfigurationError where there is none, or one that no list can name; BookKeeperError.
    """
    options = read_topic_options(RegionOptions, words_of(given, RegionOptions))
    with connect(options.client.metadata_service_uri, options.client) as client:
        return client.run(lambda ledgers: Deferred.fromCoroutine(_chosen(ledgers, options, topics, prefix)))


async def _chosen(
    client: LedgerClient, options: TopicOptions[RegionOptions], topics: Sequence[str] | None, prefix: str
) -> list[str]:
    region = region_of(client, options)
    await region.check()
    where = region.paths.root
    if topics is not None:
        for name in topics:
            await check_topic(region, name, options.words)
        return sorted(set(topics))
    found = [each.topic.decode() async for piece in region.topics(prefix.encode()) for each in piece]
    fit, others = nameable(found)
    if others:
        some = ", ".join(map(repr, others[:LEFT_OUT_TOLD_MAX]))
        raise ConfigurationError(
            f"{len(others)} topics of {where} cannot be named in a list: {some}. A comma divides, and blanks around a "
            "name are left out; choose topics by their names, or by a prefix that these do not have"
        )
    if not fit:
        raise ConfigurationError(f"{where} has no topic{f' whose name begins with {prefix!r}' if prefix else ''}")
    return fit
