"""Publish-subscribe on ledgers, by Hedwig's protocol.

    model errors names    values; what can go wrong; which names there are, and where their znodes are
    wire                  frames, messages, requests, responses, records: bytes and back
    protocol              decisions apart from I/O
    hub                   the server: topics, subscriptions, deliveries
    client                publish and subscribe: three faces over one core

Public names: `connect` (asyncio), `hedwig.blocking.connect`, `hedwig.client.connecting.connect_to` (Twisted, with a
reactor); `HedwigClientSettings` for any of them, and `load_hedwig_client`, which reads them from a file and the
environment; the modules `hedwig.model`, `hedwig.errors` and `hedwig.filters` (`with_expression`: the hub chooses the
messages of a subscription); `one_by_one`, preferences of a work queue. Names are looked up at first use; importing this
package never imports a reactor.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hedwig.client.faces.aio import connect
    from hedwig.client.subscriptions.work_queue import one_by_one
    from hedwig.client_config import HedwigClientSettings, load_hedwig_client

__all__ = ["HedwigClientSettings", "connect", "load_hedwig_client", "one_by_one"]


def __getattr__(name: str) -> object:
    if name == "connect":
        from hedwig.client.faces.aio import connect

        return connect
    if name == "one_by_one":
        from hedwig.client.subscriptions.work_queue import one_by_one

        return one_by_one
    if name in {"HedwigClientSettings", "load_hedwig_client"}:
        from hedwig import client_config

        return getattr(client_config, name)
    if name in {"aio", "blocking"}:
        import importlib

        return importlib.import_module(f"hedwig.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
