"""One name node, put together: journal, election, checkpoints, state, HTTP interface. The composition root.

    journal in ledgers       the journal's own ZooKeeper session carries the election; checkpoints are ledgers beside it
    any other journal        the server is alone, and its checkpoints are files

Everything is handed its reactor. A server that cannot go on (a gap in the journal, an operation it does not know) tells
`on_failed` and ends; whoever supervises it starts it again once an operator has seen to that.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from bookkeeper.admin.access.gate import make_gate
from bookkeeper.admin.access.rules import Rules
from bookkeeper.admin.access.tokens import check_token_file
from bookkeeper.clock import wall_ms
from bookkeeper.errors import ConfigurationError
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.runtime import ThreadWorker, watch_turns
from journalmgr.config import ALLOWED_HOSTS_KEY, TOKEN_FILE_KEY
from journalmgr.contract import JournalManager
from journalmgr.errors import NotSupported
from journalmgr.group import ELECTION_PARENT, Member, open_own_journal
from journalmgr.ledger.journal import LedgerJournal
from journalmgr.metrics import NameNodeMetrics
from journalmgr.model import HADOOP_2_7
from journalmgr.namenode.http.api import HttpApi
from journalmgr.namenode.http.operations import PREFIX
from journalmgr.namenode.http.server import listen_http
from journalmgr.namenode.images.checkpoints import CheckpointStore, DirectoryCheckpoints
from journalmgr.namenode.images.ledger_checkpoints import LedgerCheckpoints
from journalmgr.namenode.images.schedule import Checkpointing, CheckpointSettings
from journalmgr.namenode.machine import NamespaceMachine
from journalmgr.namenode.service import NameService
from journalmgr.replica import ReplicaSettings, Role

log = Logger()

RULES = Rules(form_posts=PREFIX, token_key=TOKEN_FILE_KEY, names_key=ALLOWED_HOSTS_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameNodeSettings:
    """journal: its URI. server_id: of this server, unique in its group. http_host, http_port: 0 takes any free port.

    token_file, allowed_hosts: rules of access, see `bookkeeper.admin.access`.
    election_parent: znode below which the journal's group elects. images: directory of the checkpoints of a journal
    that is not in ledgers. private_files: create its files with access only for the process's user. journal_options:
    options of the journal's `open_journal`.
    """

    journal: str
    server_id: str = field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    http_host: str = "127.0.0.1"
    http_port: int = 0
    token_file: str = ""
    allowed_hosts: tuple[str, ...] = ()
    election_parent: str = ELECTION_PARENT
    images: str = ""
    private_files: bool = True
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    journal_options: Mapping[str, Any] = field(default_factory=dict)


class NameNode:
    """Start it, stop it. on_role, on_failed: as of Replica."""

    def __init__(
        self,
        reactor: Any,
        settings: NameNodeSettings,
        *,
        on_role: Callable[[Role], object] = lambda role: None,
        on_failed: Callable[[BaseException], object] = lambda error: None,
    ) -> None:
        self._reactor, self.settings = reactor, settings
        self._on_role, self._on_failed = on_role, on_failed
        self._journal: JournalManager | None = None
        self._member: Member | None = None
        self._worker: ThreadWorker | None = None
        self._checkpointing: Checkpointing | None = None
        self._port: Any = None
        self._metrics = NameNodeMetrics()
        self._metrics.watch_turns(watch_turns(reactor))
        self.service: NameService | None = None
        self.address = ""

    def start(self) -> Deferred[None]:
        """Open the journal, serve HTTP, load, stand for the role; fires once HTTP is served and loading has begun.

        Fails with ConfigurationError, JournalError, and as opening the journal does; nothing is left open then.
        """
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        try:
            await self._build()
        except BaseException:
            await self._close()
            raise

    async def _build(self) -> None:
        settings = self.settings
        check_token_file(settings.token_file, TOKEN_FILE_KEY)
        journal, info = await open_own_journal(self._reactor, settings.journal, settings.journal_options)
        self._journal = journal
        machine = NamespaceMachine(self._checkpoint_store(journal), info)
        api = self._listen()
        checkpointing = self._checkpointing = Checkpointing(
            machine, journal, self._reactor, settings.checkpoints, lambda: member.role
        )
        member = self._member = Member(
            self._reactor,
            journal,
            machine,
            address=self.address,
            layout_version=HADOOP_2_7,
            election_parent=settings.election_parent,
            settings=settings.replica,
            on_loaded=checkpointing.before_standing,
            on_role=self._role_changed,
            on_turn=machine.give_up_checkpoint,
            on_failed=self._on_failed,
            observer=self._metrics,
        )
        self.service = NameService(
            settings.server_id, self.address, member.replica, machine, member.election, self._reactor
        )
        self._metrics.watch(self.service)
        api.serve(self.service)
        checkpointing.start()
        member.start()

    def _checkpoint_store(self, journal: JournalManager) -> CheckpointStore:
        settings = self.settings
        if isinstance(journal, LedgerJournal) and not settings.images:
            return LedgerCheckpoints(
                journal.client,
                journal.tree,
                self._reactor,
                journal.metadata_settings,
                journal.root,
                journal.settings.available_path.rpartition("/")[0],
                ensemble=journal.settings.ensemble,
                write_quorum=journal.settings.write_quorum,
                ack_quorum=journal.settings.acknowledgements,
            )
        if not settings.images:
            raise ConfigurationError(
                f"the journal {settings.journal} is not in ledgers: say with --images in which directory checkpoints "
                "are to be kept"
            )
        self._worker = ThreadWorker(self._reactor, "checkpoints")
        return DirectoryCheckpoints(
            RealFileSystem(private=settings.private_files), self._worker, os.path.abspath(settings.images)
        )

    def _role_changed(self, role: Role) -> None:
        log.info("Server {server} is {role}", server=self.settings.server_id, role=role.value)
        if self._checkpointing is not None:
            self._checkpointing.on_role(role)
        self._on_role(role)

    def _listen(self) -> HttpApi:
        """Serve HTTP: until there is somebody to answer, it says that the server is starting."""
        settings = self.settings
        api = HttpApi(
            wall_ms,
            self._reactor.seconds,
            checkpoint=self._save,
            metrics_text=self._metrics.text,
            counts=self._metrics,
        )
        gate = make_gate(
            settings.http_host,
            token_file=settings.token_file,
            allowed_hosts=settings.allowed_hosts,
            advertised=None,
            rules=RULES,
        )
        try:
            self._port = listen_http(self._reactor, settings.http_host, settings.http_port, api, gate)
        except CannotListenError as error:
            raise ConfigurationError(
                f"cannot serve HTTP on {settings.http_host}:{settings.http_port}: {error.socketError}; choose another "
                "port, or 0 for any that is free"
            ) from error
        self.address = f"{settings.http_host}:{self._port.getHost().port}"
        return api

    def _save(self) -> Deferred[Any]:
        """Save an image now, because somebody asks."""
        service, checkpointing = self.service, self._checkpointing
        if service is None or checkpointing is None or service.replica.role is not Role.STANDBY:
            what = "starting" if service is None else service.replica.role.value
            return fail(
                NotSupported(
                    f"server {self.settings.server_id} is {what}; ask a standby for a checkpoint (a server that is "
                    "alone saves one when it starts)"
                )
            )
        return checkpointing.save()

    def stop(self) -> Deferred[None]:
        """End in order: the active closes its segment and hands the role on. Never fails."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._port is not None:
            port, self._port = self._port, None
            await port.stopListening()
        idle = self._checkpointing.stop() if self._checkpointing is not None else succeed(None)
        if self._member is not None:
            await self._member.leave()
        elif self._journal is not None:
            await self._journal.close()
        await idle  # after the role was handed on, which is urgent
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.stop()
