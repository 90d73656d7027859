"""What the HTTP server shows of a bookie process, and what it lets an operator do. Imported only when it is on.

Thread: reactor; directories are read on a worker of its own ("http"), so that a long listing holds up no reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError

from bookkeeper.admin.access.gate import make_gate
from bookkeeper.admin.http.ledger_access import LedgerAccess
from bookkeeper.admin.http.one_bookie import BookieState, UnmendedPage
from bookkeeper.admin.http.server import listen_http  # twisted.web costs memory that most bookies need not spend
from bookkeeper.admin.http.whole import Parts, router_of
from bookkeeper.bookie.identity.cookie_rules import directories_of, verify
from bookkeeper.bookie.identity.identity import check_known, inspect_directories
from bookkeeper.bookie.integrity.scrub.page_repair import BadPage
from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import file_name
from bookkeeper.bookie.journal.mark import mark_name, read_marks
from bookkeeper.bookie.offline.inspection import list_entry_logs, list_index_files
from bookkeeper.bookie.process.mode import ModeSwitch, ReadOnlyReason
from bookkeeper.bookie.storage.disks import current
from bookkeeper.config import ServerSettings
from bookkeeper.errors import ConfigurationError, InvalidArgument
from bookkeeper.filesystem import DiskUsage, FileSystem
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, LogMark
from bookkeeper.ports import Worker
from bookkeeper.system.addresses import cannot_serve_http

if TYPE_CHECKING:
    from bookkeeper.admin.http.garbage import Collecting
    from bookkeeper.admin.http.routing import Route
    from bookkeeper.admin.http.whole import OperatorAccess


class BookieView:
    """The bookie as `admin.http.one_bookie.ServedBookie`.

    cookie: the one it runs with. phase: of the process, as in the status file. usage: of the ledger directories' disks.
    unmended: damaged index pages that could not be made anew, and why.
    """

    def __init__(
        self,
        cookie: Cookie,
        settings: ServerSettings,
        fs: FileSystem,
        store: MetadataStore,
        mode: ModeSwitch,
        worker: Worker,
        *,
        phase: Callable[[], str],
        usage: Callable[[], DiskUsage],
        unmended: Callable[[], Sequence[tuple[BadPage, str]]],
    ) -> None:
        self._cookie, self._settings, self._fs, self._store = cookie, settings, fs, store
        self._mode, self._worker, self._phase, self._usage = mode, worker, phase, usage
        self._unmended = unmended

    @property
    def bookie_id(self) -> BookieId:
        """See ServedBookie."""
        return self._cookie.bookie_id

    def state(self) -> BookieState:
        """See ServedBookie."""
        mode, phase = self._mode, self._phase()
        return BookieState(
            running=phase in ("serving", "stopping"),
            read_only=mode.read_only,
            shutting_down=phase == "stopping",
            priority_writes=not mode.read_only or mode.priority_writes_allowed,
            reasons=tuple(sorted(reason.value for reason in mode.reasons)),
            ordered=ReadOnlyReason.OPERATOR in mode.reasons,
        )

    def order_read_only(self, *, read_only: bool) -> None:
        """See ServedBookie."""
        if read_only and not self._settings.read_only_mode_enabled:
            raise InvalidArgument("readOnlyModeEnabled=false: this bookie is writable, or it does not run")
        (self._mode.forbid if read_only else self._mode.allow)(ReadOnlyReason.OPERATOR)

    def space(self) -> Deferred[tuple[int, int]]:
        """See ServedBookie."""

        def measured() -> tuple[int, int]:
            usage = self._usage()
            return usage.free, usage.total

        return self._on_worker(measured)

    def last_marks(self) -> Deferred[Sequence[LogMark]]:
        """See ServedBookie."""
        count = len(self._settings.journal_directories)
        directories = [current(str(path)) for path in self._settings.ledger_directories]

        def read() -> Sequence[LogMark]:
            return [read_marks(self._fs, directories, mark_name(index, count)) for index in range(count)]

        return self._on_worker(read)

    def unmended_pages(self) -> Sequence[UnmendedPage]:
        """See ServedBookie."""
        return [UnmendedPage(each.ledger_id, each.path, each.page, why) for each, why in self._unmended()]

    def files(self, kind: str) -> Deferred[Sequence[str]]:
        """See ServedBookie."""
        return self._on_worker(partial(self._files, kind))

    def _files(self, kind: str) -> Sequence[str]:
        fs, settings = self._fs, self._settings
        if kind == "journal":
            directories = [current(str(path)) for path in settings.journal_directories]
            return [file_name(each) for path in directories for each in list_journals(fs, path)]
        if kind == "entrylog":
            logs = list_entry_logs(fs, [str(path) for path in settings.ledger_directories])
            return [path.rpartition("/")[2] for _, path in logs]
        indexes = list_index_files(fs, [str(path) for path in settings.index_directories])
        return [path.rpartition("/")[2] for _, path in indexes]

    def check_storage(self) -> Deferred[str]:
        """See ServedBookie."""
        return Deferred.fromCoroutine(self._check_storage())

    async def _check_storage(self) -> str:
        cookie = self._cookie
        uri = self._settings.metadata_service_uri
        await check_known(self._fs, self._store.cookies, cookie, expansion_allowed=False, cluster_uri=uri)
        stored = await self._store.cookies.read(cookie.bookie_id)
        kinds = directories_of(cookie)
        found = await self._on_worker(lambda: inspect_directories(self._fs, kinds))
        known = None if stored is None else parse_cookie(stored.value, f"cookie of {cookie.bookie_id}")
        verify(cookie, known, found, expansion_allowed=False, cluster_uri=uri)
        return f"The cookie of {cookie.bookie_id} covers all its directories: {', '.join(kinds)}."

    def _on_worker(self, work: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self._worker.submit(work, done.callback, done.errback)
        return done


class HttpSide:
    """The HTTP server of a bookie. Listens from the start; see `close`. Raises ConfigurationError where it cannot.

    advertised: the host that clients connect to.
    """

    def __init__(
        self,
        reactor: Any,
        settings: ServerSettings,
        metrics_text: Callable[[], bytes],
        view: BookieView,
        store: MetadataStore,
        access: OperatorAccess | None,
        *,
        advertised: str,
        collecting: Collecting | None = None,
        extra: Sequence[Route] = (),
    ) -> None:
        self._ledgers = None if access is None else LedgerAccess(reactor, access.client_settings)
        router = router_of(
            Parts(
                metrics_text,
                config=None if access is None else access.config,
                store=store,
                client=None if self._ledgers is None else self._ledgers.client,
                connect=None if self._ledgers is None else self._ledgers.connect,
                bookie=view,
                collecting=collecting,
                recovering=None if access is None else access.recovering,
                troubled=None if access is None else access.troubled,
                ledger_content=settings.http_server_ledger_content,
                extra=extra,
            )
        )
        host, port = settings.http_server_host, settings.http_server_port
        gate = make_gate(
            host,
            token_file=settings.http_server_token_file,
            allowed_hosts=settings.http_server_allowed_hosts,
            advertised=advertised,
        )
        try:
            self._listening = listen_http(reactor, host, port, router, gate)
        except CannotListenError as error:
            raise ConfigurationError(cannot_serve_http(host, port, error.socketError)) from error

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listening.getHost().port)

    async def close(self) -> None:
        """Take no more requests, and end the client that some of them needed."""
        await maybeDeferred(self._listening.stopListening)
        if self._ledgers is not None:
            await self._ledgers.close()
