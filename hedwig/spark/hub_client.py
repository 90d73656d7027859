"""One hub client per process and settings, for code that Spark runs: committers of streams, and tasks that publish.

As bookkeeper.spark.process_client: made at first use, found again by the process's id and the settings, on a daemon
thread. Bound: CLIENTS_MAX clients. Thread: any.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.process_client import client_of
from hedwig.client.faces.blocking import BlockingClient, connect
from hedwig.client_config import HedwigClientSettings
from hedwig.errors import NoHubReached
from hedwig.model import HubAddress
from hedwig.spark.region_access import region_of
from hedwig.spark.region_options import HUBS, RegionOptions, TopicOptions

R = TypeVar("R", bound=RegionOptions)

CLIENTS_MAX = 4

_lock = threading.Lock()
_clients: OrderedDict[tuple[int, HedwigClientSettings], BlockingClient] = OrderedDict()


def hub_client_of(options: TopicOptions[R]) -> BlockingClient:
    """The client of this process with these settings. Not to be closed by who uses it.

    Without hubs in the options, those are asked that are registered in the region now. Raises ConfigurationError where
    none is, NoHubReached, MetadataError.
    """
    key = (os.getpid(), options.hubs) if options.names_hubs else (os.getpid(), _of_region(options))
    with _lock:
        found = _clients.get(key)
        if found is None:
            for other in [each for each in _clients if each[0] != key[0]]:
                del _clients[other]  # of the process that this one was forked from: its thread is not here
            while len(_clients) >= CLIENTS_MAX:
                _clients.popitem(last=False)[1].close()
            try:
                found = _clients[key] = connect(None, key[1])
            except NoHubReached as error:
                raise NoHubReached.of(error.failures, options.words.word("hubs") or HUBS) from None
        _clients.move_to_end(key)
        return found


def _of_region(options: TopicOptions[R]) -> HedwigClientSettings:
    """The settings with the hubs that are registered."""

    async def look(client: LedgerClient) -> tuple[HubAddress, ...]:
        region = region_of(client, options)
        await region.check()
        return tuple(sorted(await region.metadata.hubs(), key=str))

    hubs = client_of(options.client).run(lambda client: Deferred.fromCoroutine(look(client)))
    if not hubs:
        own = options.own
        raise ConfigurationError(
            f"no hub runs in {own.zk_prefix}/{own.region}: start one, or give the address of one that others cannot "
            f"see ({options.words.word('hubs')})"
        )
    return replace(options.hubs, servers=hubs)
