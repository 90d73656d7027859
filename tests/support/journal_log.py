"""A metadata server's edit log for tests that do not run on the reactor: what `journalmgr` is used on.

with writing(uri) as log:
    log.append(5); log.roll(); log.append(5)
    log.close()                      else the segment is left in progress, as after a kill
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from twisted.internet.defer import gatherResults

from journalmgr.cli.session import Session, session
from journalmgr.contract import JournalManager
from journalmgr.edit_log import EditLog
from journalmgr.model import TxId

T = TypeVar("T")


def payload(txid: int) -> bytes:
    """What the transaction of this txid says."""
    return b"transaction %d" % txid


class WritingLog:
    """An EditLog whose calls wait."""

    def __init__(self, commands: Session, journal: JournalManager) -> None:
        self._commands = commands
        self.journal = journal
        self.log = commands.on_reactor(lambda: EditLog(journal))

    def open(self, next_txid: int) -> None:
        """Become the writer."""

        async def become() -> None:
            await self.log.recover()
            await self.log.open(next_txid)

        self._commands.run(become)

    def append(self, count: int) -> None:
        """So many transactions, each durable before the next."""

        async def append_all() -> None:
            for _ in range(count):
                await self.log.append(payload(self.log.next_txid))

        self._commands.run(append_all)

    def append_together(self, count: int) -> None:
        """Append transactions without waiting for each; all are durable on return."""

        async def append_all() -> None:
            first = self.log.next_txid
            await gatherResults([self.log.append(payload(TxId(first + each))) for each in range(count)])

        self._commands.run(append_all)

    def append_payload(self, what: bytes) -> TxId:
        """One transaction that says this."""
        return self._commands.call(lambda: self.log.append(what))

    def roll(self) -> TxId:
        """End the segment, begin the next."""
        return self._commands.call(self.log.roll)

    def close(self) -> None:
        """End in order."""
        self._commands.call(self.log.close)


@contextmanager
def opened(uri: str, settings: Mapping[str, str] | None = None) -> Iterator[tuple[Session, JournalManager]]:
    """A journal to change. settings: besides the environment's."""
    defines = [f"{key}={value}" for key, value in (settings or {}).items()]
    with session(argparse.Namespace(conf=None, defines=defines)) as commands:
        yield commands, commands.open_to_change(uri)


@contextmanager
def writing(uri: str, next_txid: int = 1) -> Iterator[WritingLog]:
    """The journal's writer."""
    with opened(uri) as (commands, journal):
        log = WritingLog(commands, journal)
        log.open(next_txid)
        yield log


def with_journal(uri: str, use: Callable[[JournalManager], Awaitable[T]]) -> T:
    """What a coroutine makes of the journal."""
    with opened(uri) as (commands, journal):
        return commands.run(lambda: use(journal))
