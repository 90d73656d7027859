"""The blocking client under its public name: `bookkeeper.blocking.connect(uri)`. See `bookkeeper.client.blocking`."""

from bookkeeper.client.blocking import (
    BlockingAdvancedWriteHandle,
    BlockingBookKeeper,
    BlockingReadHandle,
    BlockingWriteHandle,
    connect,
)

__all__ = [
    "BlockingAdvancedWriteHandle",
    "BlockingBookKeeper",
    "BlockingReadHandle",
    "BlockingWriteHandle",
    "connect",
]
