"""The blocking client under its public name, `bookkeeper.blocking.connect(uri)`: `bookkeeper.client.faces.blocking`."""

from bookkeeper.client.faces.blocking import (
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
