"""The journals of a command: which one is meant, with which settings, and calling it from the main thread.

with session(args) as commands:
    journal = commands.open(commands.uri(args.journal))
    segments = commands.call(journal.segments)

The reactor is a private one in another thread, so that Ctrl-C interrupts whatever is waited for, and several commands
may run in one process one after the other. Everything that was opened is closed in the end, the last one first.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bookkeeper.client.faces.process_objects import BlockingFace
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_USAGE, CommandFailed, counted, note
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_json_again, add_verbose

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bookkeeper.config import Loaded
    from journalmgr.config import JournalSettings
    from journalmgr.contract import JournalManager
    from journalmgr.ledger_audit import LedgerAudit
    from journalmgr.model import NamespaceInfo

T = TypeVar("T")


def add_journal_argument(parser: argparse.ArgumentParser) -> None:
    """JOURNAL, which may be left out."""
    parser.add_argument(
        "journal",
        nargs="?",
        metavar="JOURNAL",
        help="'bookkeeper://ZOOKEEPER;ZOOKEEPER/ZNODE' or file:///DIRECTORY "
        "(default: the setting dfs.namenode.shared.edits.dir)",
    )


def add_settings_arguments(parser: argparse.ArgumentParser, *, json_text: str = "JSON instead of text") -> None:
    """--conf, -D, --json, -v."""
    group = parser.add_argument_group("settings")
    group.add_argument(
        "--conf",
        type=Path,
        metavar="FILE",
        help="conf file, or a Hadoop configuration (*.xml) (default: none, the environment and the defaults)",
    )
    group.add_argument(
        "-D",
        dest="defines",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"one setting, repeatable; {SEEN_BY_OTHERS}",
    )
    parser.set_defaults(json=False)
    add_json_again(parser, "-J", text=json_text)
    add_verbose(parser)


class Session(BlockingFace):
    """What one command has open."""

    def __init__(self, settings: JournalSettings) -> None:
        from bookkeeper.client.faces.reactor_thread import ReactorThread

        self.settings = settings
        self._crossing = ReactorThread()
        self._closing: list[Callable[[], Deferred[Any]]] = []
        self._crossing.owned_by("the journals of a command", partial(_close_all, self._closing))

    @property
    def reactor(self) -> Any:
        """Its reactor."""
        return self._crossing.reactor

    def uri(self, named: str | None) -> str:
        """The journal that is meant. Raises CommandFailed where none is."""
        from journalmgr.config import SHARED_EDITS, variable_of

        uri = named or self.settings.shared_edits_dir
        if not uri:
            raise CommandFailed(
                f"no journal is named: give its URI, or set {SHARED_EDITS} (-D, {variable_of(SHARED_EDITS)} in the "
                "environment, or --conf)",
                EXIT_USAGE,
            )
        return uri

    def call(self, what: Callable[[], Deferred[T]]) -> T:
        """Wait for what this starts on the reactor's thread."""
        return self._crossing.run(what)

    def on_reactor(self, what: Callable[[], T]) -> T:
        """Call this on the reactor's thread."""
        return self._crossing.call(what)

    def run(self, what: Callable[[], Awaitable[T]]) -> T:
        """Wait for a coroutine."""
        from twisted.internet.defer import Deferred

        async def await_it() -> T:
            return await what()

        return self._crossing.run(lambda: Deferred.fromCoroutine(await_it()))

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """An iteration that waits for the next one each time."""
        end: list[T] = []

        async def following() -> list[T]:
            async for item in items:
                return [item]
            return end

        while (found := self.run(following)) is not end:
            yield found[0]

    def open(self, uri: str, namespace: NamespaceInfo | None = None) -> JournalManager:
        """Open a journal; to be changed only with a namespace. Raises CommandFailed for a URI that can be none."""
        from journalmgr.plugins import open_journal

        options = self.settings.options(check_uri(uri))
        with _mistyped():
            journal = self.call(lambda: open_journal(uri, self.reactor, namespace, options))
        self._closing.append(journal.close)
        return journal

    def open_to_change(self, uri: str) -> JournalManager:
        """Open it as one of the namespace that it says it belongs to. Raises NotFormatted."""
        return self.open(uri, self.call(self.open(uri).namespace))

    def namespace_of(self, journal: JournalManager) -> NamespaceInfo | None:
        """Whose a journal is; None for one that is so old that it does not say, which may be read all the same.

        Raises NotFormatted.
        """
        from journalmgr.errors import NamespaceMismatch

        try:
            return self.call(journal.namespace)
        except NamespaceMismatch as error:
            note(str(error))
            return None

    def open_audit(self, uri: str) -> LedgerAudit | None:
        """The ledgers of a journal; None for one that has none."""
        from journalmgr.ledger_audit import connect_audit, is_on_ledgers

        if not is_on_ledgers(uri):
            return None
        with _mistyped():
            audit = self.call(lambda: connect_audit(uri, self.reactor, self.settings))
        self._closing.append(audit.close)
        return audit

    def note_left_out(self, uri: str, journal: JournalManager, end: int) -> None:
        """Warn of transactions behind `end`, the last one printed, that are or may be acknowledged."""
        segments = self.call(journal.segments)
        if not segments:
            return
        newest = segments[-1]
        later: int | None = newest.last_txid
        report: str | None = None
        if newest.in_progress:
            audit = self.open_audit(uri)
            if audit is None:
                return
            if newest.ledger_id is None:
                note(
                    f"warning: segment {newest}: its record cannot be read; its transactions are not printed: restore "
                    "the record, or take the segment from another copy of the journal"
                )
                return
            later, report = self.run(lambda: audit.end_in_progress(newest))
        if later is not None and later > end:
            note(f"warning: transactions {end + 1} to {later} were acknowledged after this read began; run it again")
        if report is not None:
            note(
                f"warning: segment {newest}: {report}; their transactions are not printed: follow the writer with "
                "`journalmgr tail`, or if it is dead, end the segment with `journalmgr recover`"
            )

    def close(self) -> None:
        """Close all that was opened, and end the reactor."""
        try:
            self._crossing.close_in_order(partial(_close_all, self._closing))
        finally:
            self._crossing.stop()

    def _abandon(self) -> None:
        self._crossing.abandon()


def _close_all(closing: list[Callable[[], Deferred[Any]]]) -> Deferred[None]:
    from twisted.internet.defer import Deferred

    async def close() -> None:
        while closing:
            await closing.pop()()

    return Deferred.fromCoroutine(close())


@contextmanager
def session(args: argparse.Namespace) -> Iterator[Session]:
    """Load the settings, and open what the command asks for. Raises ConfigurationError listing every fault."""
    from journalmgr.config import load_journal

    if "verbose" in args:
        from bookkeeper.logs import show_metadata_session

        show_metadata_session()
    loaded = load_journal(args.conf, parse_settings(args.defines))
    note_foreign(args.conf, loaded)
    with Session(loaded.settings) as commands:
        yield commands


def note_foreign(conf: Path | None, loaded: Loaded[JournalSettings]) -> None:
    """Say how many keys of a Hadoop configuration are others'."""
    from journalmgr.config import FOREIGN

    foreign = sum(ignored.reason == FOREIGN for ignored in loaded.ignored)
    if foreign:
        note(f"{conf}: passed over {counted(foreign, 'key')} of others")


def check_uri(uri: str) -> str:
    """The scheme of a journal's URI. Raises CommandFailed, a fault of usage, where nothing can be opened there."""
    from bookkeeper.errors import BookKeeperError, InvalidArgument
    from bookkeeper.metadata.uri import parse_uri as parse_metadata_uri
    from journalmgr.ledger.connecting import check_root
    from journalmgr.plugins import unserved
    from journalmgr.uri import parse_uri

    try:
        if (why := unserved(uri)) is not None:
            raise InvalidArgument(f"{uri}: {why}")
        parsed = parse_uri(uri)
        if parsed.scheme == "bookkeeper":
            if not parsed.servers:
                raise InvalidArgument(f"{uri} names no ZooKeeper server: write bookkeeper://zk1:2181;zk2:2181/path")
            check_root(parsed.path.rstrip("/") or "/")
            try:
                parse_metadata_uri(f"zk://{';'.join(parsed.servers)}/x")
            except BookKeeperError as error:
                why = str(error).partition(": ")[2].partition("; the form is")[0]
                raise InvalidArgument(f"{uri}: {why}") from error
    except InvalidArgument as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    return parsed.scheme


@contextmanager
def _mistyped() -> Iterator[None]:
    """What can never be opened was mistyped."""
    from bookkeeper.errors import InvalidArgument

    try:
        yield
    except InvalidArgument as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error


def segment_json(segment: Any) -> dict[str, object]:
    """A segment as plain values."""
    return {
        "first_txid": segment.first_txid,
        "last_txid": segment.last_txid,
        "in_progress": segment.in_progress,
        "layout_version": segment.layout_version or None,
        "ledger_id": segment.ledger_id,
        "name": segment.name,
    }


def namespace_json(namespace: NamespaceInfo | None) -> dict[str, object] | None:
    """A namespace as plain values."""
    if namespace is None:
        return None
    return {
        "namespace_id": namespace.namespace_id,
        "cluster_id": namespace.cluster_id,
        "block_pool_id": namespace.block_pool_id,
        "ctime": namespace.ctime,
        "layout_version": namespace.layout_version,
    }
