"""Replicated logs in Python: bookies and a ledger client that speak Apache BookKeeper's protocols.

    application
        |  append, read                        ZooKeeper
        v                                          ^  ledger metadata, registrations, cookies
    client   LedgerClient (Deferreds)              |
             BookKeeper (asyncio)      ------------+------------  bookie
             blocking.connect                                     |
        |                                                         v
        |  wire: protocol v2 or v3 over TCP               journal -> acknowledged
        +------------------------------------------------>  storage: entry logs, index

    model, errors, ports    the nouns, every error, the seams to clock, network and threads
    clock                   monotonic time for durations, the wall clock for dates
    wire                    pure: frames and messages, entry digests
    protocol                pure: quorums, pending adds, reads, recovery, ledger transitions
    metadata                ledgers, registrations and cookies in ZooKeeper, or in memory for tests
    client                  the ledger client: three faces over one core
    bookie                  the storage server
    serving                 bounds of the connections of every server
    config, metrics         settings from Apache-style files; what is counted
    tls, auth               certificates and the layer over a connection; authentication providers
    embedded, cli           a ZooKeeper and bookies as child processes; the `bookkeeper` command

Public names: `BookKeeper` (asyncio), `bookkeeper.blocking.connect`, `bookkeeper.client.client.LedgerClient`;
`ClientSettings` for any of them, and `load_client`, which reads them from a file and the environment; the modules
`bookkeeper.model` and `bookkeeper.errors`. Names are looked up at first use, so that a bookie does not load the client;
importing this package never imports a reactor.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bookkeeper.client.faces.aio import BookKeeper
    from bookkeeper.config import ClientSettings, load_client

__all__ = ["BookKeeper", "ClientSettings", "load_client"]


def __getattr__(name: str) -> object:
    if name == "BookKeeper":
        from bookkeeper.client.faces.aio import BookKeeper

        return BookKeeper
    if name in {"ClientSettings", "load_client"}:
        from bookkeeper import config

        return getattr(config, name)
    if name == "blocking":
        import importlib

        return importlib.import_module("bookkeeper.blocking")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
