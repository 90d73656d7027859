"""A session with a real ZooKeeper; the only user of kazoo.

    reactor thread                                  kazoo's connection thread
    call -> waiting queue -> in flight -> kazoo ->  sends, receives, reconnects, expires
    Deferred, watches, states  <- inbox  <--------  answer, watch event, state: in the order they happened

kazoo's handler is replaced by one that runs callbacks where they arise, so answers, watch events and states keep the
order of the wire; a callback only puts an item into the inbox, and one `call_from_thread` empties it for many items.

A connection that goes takes every call with it: a change in flight is OutcomeOpen, a read, or what was not sent yet, is
NotAttempted. A session that the server ended is told as LOST; kazoo makes the next one.

A server closes a connection that sends more than its jute.maxbuffer. Each request is therefore measured before it is
sent. A request larger than `request_size_max` fails with MetadataTooLarge. The size of answers is not bounded: neither
servers nor kazoo limit it. Apache's Java client closes the connection if an answer exceeds its own jute.maxbuffer.

A server ends the handshake of a client that has seen a later transaction than the server has, for example after a
restore from an older copy. kazoo would offer that transaction for ever. So when servers accept connections but end
every handshake for longer than the session timeout, the session counts as LOST, and a new client starts, which has seen
no transaction. Servers that cannot be reached, or do not answer, are waited for. A server that is slow to start ends
handshakes, too; by that time the session would have been lost anyway. So do the servers of an ensemble that has no
quorum. They keep their sessions, so after an outage of that length the session is given up without need. But the leader
that follows begins a new epoch, so the first answer to the new client shows that the state is not an older one, and
`sessions_refused` does not count the session.

Thread: reactor, except where a method says otherwise.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import (
    AccessDenied,
    ConfigurationError,
    MetadataCorrupt,
    MetadataError,
    MetadataUnavailable,
    again,
)
from bookkeeper.metadata.store import REQUEST_SIZE_MAX, MetadataSettings, StoreState, Watch
from bookkeeper.metadata.tree import (
    Access,
    Create,
    Delete,
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeKind,
    NodeNotEmpty,
    NotAttempted,
    OutcomeOpen,
    Stat,
    Step,
    WatchListener,
    Write,
    largest_path,
    operation_size,
    too_large,
    transaction_size,
)
from bookkeeper.metadata.watches import Listeners, WatchBook, WatchKind

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer

log = Logger()

# A program that sends Python's logs nowhere would find kazoo's warnings on stderr, one per attempt to connect. What it
# has to know of the session it hears from us; a program that does send them somewhere goes on hearing kazoo too.
logging.getLogger("kazoo").addHandler(logging.NullHandler())

# kazoo's own reconnecting, on its own thread. Without a maximum number of tries: who waits has a deadline of his own.
_RECONNECT_FIRST_S = 0.05
_RECONNECT_MAX_S = 1.0
_HANDSHAKE_S = 2.5  # at least
_STOP_TIMEOUT_S = 2.0

_STORE_STATES = {
    KazooState.CONNECTED: StoreState.CONNECTED,
    KazooState.SUSPENDED: StoreState.SUSPENDED,
    KazooState.LOST: StoreState.LOST,
}

# What ZooKeeper says no with; everything else that kazoo raises is a lost connection, or a fault of ours.
_REFUSALS: tuple[tuple[type[Exception], type[MetadataError]], ...] = (
    (exceptions.NoNodeError, NodeAbsent),
    (exceptions.NodeExistsError, NodeExists),
    (exceptions.BadVersionError, NodeChanged),
    (exceptions.NotEmptyError, NodeNotEmpty),
    (exceptions.NoAuthError, AccessDenied),
    (exceptions.AuthFailedError, AccessDenied),
    (exceptions.InvalidACLError, AccessDenied),
    (exceptions.NoChildrenForEphemeralsError, NodeAbsent),
    (exceptions.MarshallingError, MetadataCorrupt),
)
_CONNECTION_GONE = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
    exceptions.SessionMovedError,
    exceptions.OperationTimeoutError,
    exceptions.NotReadOnlyCallError,
    exceptions.SystemZookeeperError,
)


_EPOCH_SHIFT = 32


def may_be_older(zxid: int, seen: int) -> bool:
    """Return whether servers with the last transaction `zxid` may have lost the transaction `seen`.

    Every new leader begins an epoch, the high half of a transaction's number. Within one epoch the numbers do not
    decide: new transactions may have followed the restored ones.
    """
    return zxid >> _EPOCH_SHIFT <= seen >> _EPOCH_SHIFT


class _Call:
    """One operation: waiting, in flight, or done."""

    __slots__ = ("deadline_s", "done", "is_change", "name", "path", "size", "start")

    def __init__(
        self, name: str, path: str, start: Callable[[KazooClient], Any], *, is_change: bool, size: int = 0
    ) -> None:
        self.name = name
        self.path = path
        self.start = start
        self.is_change = is_change
        self.size = size  # bytes of the request, at most
        self.done: Deferred[Any] = Deferred()
        self.deadline_s = 0.0

    def __str__(self) -> str:
        return f"{self.name} {self.path}"

    def connection_gone(self, why: str) -> MetadataUnavailable:
        """What is known of a call that was in flight."""
        if self.size > REQUEST_SIZE_MAX:
            why += f" (a server with a jute.maxbuffer below the {self.size} bytes of this request closes connections)"
        return OutcomeOpen(f"{self}: {why}") if self.is_change else NotAttempted(f"{self}: {why}")


class _Callbacks(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """Runs kazoo's callbacks at once, on the thread that has them, instead of on two threads without common order."""

    def start(self) -> None:
        """No threads to start; a handler that does not run makes kazoo call back directly."""

    def stop(self) -> None:
        """Nothing to stop."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        super().__init__()
        self._soon, self._thread = soon, threading.get_ident()
        self.on_refused: Callable[[], None] = _nothing

    def create_connection(self, *args: Any, **options: Any) -> socket.socket:
        """Return a connection that calls `on_refused` if it ends before the server has sent anything."""
        return _Handshake(super().create_connection(*args, **options), self.on_refused)

    def create_socket_pair(self) -> tuple[_PipeEnd, _PipeEnd]:
        """What kazoo wakes its thread with: one byte per operation, which stays there while the connection is down.

        A pipe holds 65 536 of them. A socket pair, kazoo's own choice, holds some 280, and the next operation would
        block the reactor thread until the server is back.
        """
        read_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        return _PipeEnd(read_fd), _WakingEnd(write_fd, self._soon, self._thread)


class _Handshake(socket.socket):
    """A connection that reports its end if the server has sent nothing.

    on_refused: called on kazoo's thread. A reset counts as an end: a server that closes with bytes unread sends one.
    """

    def __init__(self, connected: socket.socket, on_refused: Callable[[], None]) -> None:
        timeout = connected.gettimeout()
        super().__init__(connected.family, connected.type, connected.proto, fileno=connected.detach())
        self.settimeout(timeout)
        self._on_refused: Callable[[], None] | None = on_refused

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Read as `socket.recv` does; report an end before the first byte."""
        try:
            data = super().recv(size, flags)
        except ConnectionResetError:
            self._ended()
            raise
        if data:
            self._on_refused = None
        else:
            self._ended()
        return data

    def _ended(self) -> None:
        on_refused, self._on_refused = self._on_refused, None
        if on_refused is not None:
            on_refused()


class _PipeEnd:
    """One end of a pipe with the methods of a socket that kazoo calls."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """The descriptor; -1 once closed."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Write; never blocks."""
        return os.write(self._fd, data)

    def recv(self, size: int) -> bytes:
        """Read what is there, or wait for it."""
        return os.read(self._fd, size)

    def close(self) -> None:
        """Release the descriptor. Harmless when repeated."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _WakingEnd(_PipeEnd):
    """The end that is written. What the session's thread writes leaves at the end of its turn, in one piece: kazoo's
    thread, woken for each operation, would take the interpreter from it each time.

    soon: calls at the end of the turn. thread: number of the session's.
    """

    def __init__(self, fd: int, soon: Callable[[Callable[[], None]], object], thread: int) -> None:
        super().__init__(fd)
        self._soon, self._thread = soon, thread
        self._held = 0

    def send(self, data: bytes) -> int:
        """Write, at once or soon; never blocks."""
        if threading.get_ident() != self._thread:
            return super().send(data)
        if not self._held:
            self._soon(self.flush)
        self._held += len(data)
        return len(data)

    def flush(self) -> None:
        """Write what waits."""
        held, self._held = self._held, 0
        if held and self._fd >= 0:
            os.write(self._fd, bytes(held))


class _ServerWatch:
    """A watch as kazoo sees it. Equal ones are set once, so a path needs one however many listen."""

    __slots__ = ("_kind", "_path", "_put")

    def __init__(self, put: Callable[[Callable[[], None]], None], kind: WatchKind, path: str, fire: Any) -> None:
        self._kind = kind
        self._path = path
        self._put: Callable[[], None] = lambda: put(lambda: fire(kind, path))

    def __call__(self, event: WatchedEvent) -> None:
        # NONE is kazoo's way to say that the connection went; the state says so too, to all watches at once.
        if event.type != EventType.NONE:
            self._put()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ServerWatch) and (self._kind, self._path) == (other._kind, other._path)

    def __hash__(self) -> int:
        return hash((self._kind, self._path))


class ZooKeeperSession:
    """A Tree of a real ZooKeeper.

    servers: "host:port,host:port". call_from_thread: the reactor's; may be called from any thread.
    """

    def __init__(
        self,
        servers: str,
        clock: Clock,
        call_from_thread: Callable[[Callable[[], object]], object],
        settings: MetadataSettings,
    ) -> None:
        if settings.secure and settings.digest_auth is None:
            raise ConfigurationError(
                "zkEnableSecurity needs credentials: without them ZooKeeper cannot tell who the creator is; "
                "give them as user:password"
            )
        if settings.digest_auth is not None and ":" not in settings.digest_auth:
            raise ConfigurationError("the digest credentials of ZooKeeper are not of the form user:password")
        self._servers = servers
        self._clock = clock
        self._call_from_thread = call_from_thread
        self._settings = settings
        self._access = {
            Access.DEFAULT: CREATOR_ALL_ACL if settings.secure else OPEN_ACL_UNSAFE,
            Access.OPEN: OPEN_ACL_UNSAFE,
        }
        self._states: Listeners[[StoreState]] = Listeners()
        self._book = WatchBook()
        self._waiting: deque[_Call] = deque()
        self._in_flight: dict[_Call, None] = {}  # in the order they were sent
        self._timer: Timer | None = None
        self._inbox: deque[Callable[[], None]] = deque()  # appended by any thread, emptied by the reactor's
        self._inbox_announced = False
        self.refusal: MetadataError | None = None  # why no session can be made any more
        self.state = StoreState.SUSPENDED
        self.sessions_refused = 0
        self.session_id = 0
        self._refused_since_s: float | None = None  # servers have ended every handshake since then
        self._refused_s = 0.0  # time of the last ended handshake
        self._refused_zxid = 0  # last transaction of a refused session, until servers show theirs
        self._client = self._new_client()

    @property
    def description(self) -> str:
        """The servers, for messages."""
        return f"ZooKeeper at {self._servers}"

    @property
    def session_key(self) -> tuple[int, bytes] | None:
        """Id and password of the session, as ZooKeeper clients take them to continue it elsewhere."""
        key: tuple[int, bytes] | None = self._client.client_id
        return key

    def start(self) -> None:
        """Begin to connect. Never blocks."""
        self._client.start_async()

    def watch_state(self, on_change: Callable[[StoreState], object]) -> Watch:
        """Hear of every change of `state`."""
        return self._states.add(on_change)

    # --- operations ------------------------------------------------------------------------------------------------

    def create(
        self, path: str, data: bytes | None, kind: NodeKind = NodeKind.PERSISTENT, access: Access = Access.DEFAULT
    ) -> Deferred[str]:
        """Make a node; its path."""
        acl = self._access[access]
        ephemeral = kind is not NodeKind.PERSISTENT
        sequence = kind is NodeKind.EPHEMERAL_SEQUENTIAL
        return self._submit(
            "create",
            path,
            lambda client: client.create_async(path, data, acl=acl, ephemeral=ephemeral, sequence=sequence),
            is_change=True,
            size=operation_size(path, data),
        )

    def read(self, path: str, watch: WatchListener | None = None) -> Deferred[tuple[bytes, Stat]]:
        """Data and stat."""
        server_watch = self._server_watch(WatchKind.NODE, path, watch)
        reading = self._submit("read", path, lambda client: client.get_async(path, watch=server_watch))
        return self._watched(path, watch, reading).addCallback(lambda found: (found[0] or b"", _stat(found[1])))

    def stat(self, path: str, watch: WatchListener | None = None) -> Deferred[Stat | None]:
        """Stat, or None."""
        server_watch = self._server_watch(WatchKind.NODE, path, watch)
        looking = self._submit("stat", path, lambda client: client.exists_async(path, watch=server_watch))
        return self._watched(path, watch, looking).addCallback(lambda found: None if found is None else _stat(found))

    def children(self, path: str, watch: WatchListener | None = None) -> Deferred[list[str]]:
        """Names of the children."""
        server_watch = self._server_watch(WatchKind.CHILDREN, path, watch)
        listing = self._submit("children", path, lambda client: client.get_children_async(path, watch=server_watch))
        return self._watched(path, watch, listing)

    def write(self, path: str, data: bytes | None, version: int) -> Deferred[Stat]:
        """Replace the data that has `version`."""
        assert version >= 0, f"unconditional change of {path}"  # -1 is "any version" to ZooKeeper (I-15)
        writing = self._submit(
            "write",
            path,
            lambda client: client.set_async(path, data, version),
            is_change=True,
            size=operation_size(path, data),
        )
        return writing.addCallback(_stat)

    def delete(self, path: str, version: int) -> Deferred[None]:
        """Remove the node that has `version`."""
        assert version >= 0, f"unconditional removal of {path}"
        removing = self._submit("delete", path, lambda client: client.delete_async(path, version), is_change=True)
        return removing.addCallback(lambda _: None)

    def transact(self, steps: Sequence[Step]) -> Deferred[None]:
        """All steps or none."""

        unconditional = [step.path for step in steps if not isinstance(step, Create) and step.version < 0]
        assert not unconditional, f"unconditional change of {unconditional}"  # as above

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            for step in steps:
                if isinstance(step, Create):
                    ephemeral = step.kind is NodeKind.EPHEMERAL
                    transaction.create(step.path, step.data, acl=self._access[Access.DEFAULT], ephemeral=ephemeral)
                elif isinstance(step, Write):
                    transaction.set_data(step.path, step.data, step.version)
                elif isinstance(step, Delete):
                    transaction.delete(step.path, step.version)
                else:
                    transaction.check(step.path, step.version)
            return transaction.commit_async()

        size = transaction_size(steps)
        path = largest_path(steps) if size > self._settings.request_size_max else steps[0].path if steps else "/"
        done = self._submit("transaction on", path, start, is_change=True, size=size)
        return done.addCallback(_check_results, steps)

    def sync(self) -> Deferred[None]:
        """Later reads see everything written before."""
        # The path of a sync has no effect; the root always exists.
        syncing = self._submit("sync", "/", lambda client: client.sync_async("/"))
        return syncing.addCallback(lambda _: None)

    def forget(self, path: str, watch: WatchListener) -> None:
        """Do not fire this watch."""
        self._book.forget(path, watch)

    def close(self) -> Deferred[None]:
        """End the session and kazoo's thread."""
        if self.state is StoreState.CLOSED:
            return defer.succeed(None)
        self.state = StoreState.CLOSED
        self._book.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        error = MetadataUnavailable(f"the connection to {self.description} was closed")
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for call in calls:
            _fail(call, again(error))
        self._states.tell(StoreState.CLOSED)
        return self._stop(self._client)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _submit(
        self,
        name: str,
        path: str,
        start: Callable[[KazooClient], Any],
        *,
        is_change: bool = False,
        size: int | None = None,
    ) -> Deferred[Any]:
        """Send a call, or let it wait. size: bytes of the request if it contains more than the path."""
        size = operation_size(path) if size is None else size
        if size > self._settings.request_size_max:
            return defer.fail(too_large(name, path, size, self._settings.request_size_max))
        call = _Call(name, path, start, is_change=is_change, size=size)
        if self.state is StoreState.CLOSED:
            return defer.fail(MetadataUnavailable(f"{call}: the connection to {self.description} was closed"))
        if self.refusal is not None:
            return defer.fail(again(self.refusal))
        # kazoo's thread may know of a lost connection before its message has reached this one; or even have the next
        # session, in which nothing is to be done that was thought of in the one before.
        key = self._client.client_id
        if self.state is not StoreState.CONNECTED or key is None or key[0] != self.session_id:
            return defer.fail(NotAttempted(f"{call}: not connected to {self.description}"))
        if not self._waiting and len(self._in_flight) < self._settings.operations_in_flight_max:
            self._send(call)
        elif len(self._waiting) < self._settings.operations_waiting_max:
            self._waiting.append(call)
        else:
            return defer.fail(
                MetadataUnavailable(
                    f"{call}: {self._settings.operations_waiting_max} operations wait for {self.description} already; "
                    "wait for some of them before asking for more"
                )
            )
        return call.done

    def _send(self, call: _Call) -> None:
        call.deadline_s = self._clock.seconds() + self._settings.session_timeout_s
        self._in_flight[call] = None
        if self._timer is None:
            self._timer = self._clock.callLater(self._settings.session_timeout_s, self._on_timer)
        # kazoo appends to a queue and writes a byte into a pipe; with the bound on what is in flight that never blocks.
        # The link calls back on kazoo's thread, or here when the call ended at once.
        call.start(self._client).rawlink(lambda result: self._put(lambda: self._on_result(call, result)))

    def _send_waiting(self) -> None:
        while (
            self._waiting
            and self.state is StoreState.CONNECTED
            and len(self._in_flight) < self._settings.operations_in_flight_max
        ):
            call = self._waiting.popleft()
            if not call.done.called:
                self._send(call)

    def _on_result(self, call: _Call, result: Any) -> None:
        if call not in self._in_flight:
            return  # given up when its time was up, or when the connection went
        del self._in_flight[call]
        if self._refused_zxid:
            self._compare_with_refused(self._client.last_zxid)
        error = result.exception
        if error is None:
            if not call.done.called:
                call.done.callback(result.value)
        else:
            _fail(call, _translate(error, call))
        self._send_waiting()

    def _on_timer(self) -> None:
        """Give up calls whose time is up. The oldest is first, and all have the same time."""
        self._timer = None
        now_s = self._clock.seconds()
        while self._in_flight:
            call = next(iter(self._in_flight))
            if call.deadline_s > now_s:
                self._timer = self._clock.callLater(call.deadline_s - now_s, self._on_timer)
                return
            del self._in_flight[call]
            _fail(call, call.connection_gone(f"no answer within {self._settings.session_timeout_s:g} s"))
        self._send_waiting()

    def _server_watch(self, kind: WatchKind, path: str, watch: WatchListener | None) -> _ServerWatch | None:
        if watch is None:
            return None
        self._book.add(kind, path, watch)
        return _ServerWatch(self._put, kind, path, self._book.fire)

    def _watched(self, path: str, watch: WatchListener | None, reading: Deferred[Any]) -> Deferred[Any]:
        if watch is None:
            return reading

        def failed(failure: Failure) -> Failure:
            self._book.forget(path, watch)
            return failure

        return reading.addErrback(failed)

    # --- states ----------------------------------------------------------------------------------------------------

    def _on_state(self, client: KazooClient, kazoo_state: str, session_id: int, why_closed: str | None) -> None:
        if client is not self._client or self.state is StoreState.CLOSED:
            return
        state = _STORE_STATES[kazoo_state]
        self.state = state
        self._refused_since_s = None
        if state is StoreState.CONNECTED:
            self.session_id = session_id
            log.info("Connected to {servers}, session 0x{session:x}", servers=self.description, session=session_id)
            self._states.tell(state)
            self._send_waiting()
            return
        log.info("{servers}: {state}", servers=self.description, state=state.value)
        self._fail_calls(why_closed or f"connection to {self.description} {state.value}")
        self._states.tell(state)
        self._book.lose_all()
        if why_closed is not None:
            self._replace_client(client, why_closed)

    def _on_refused(self, client: KazooClient) -> None:
        """Note that a server accepted a connection and ended it without an answer."""
        if client is not self._client or self.state in (StoreState.CONNECTED, StoreState.CLOSED):
            return
        now_s, timeout_s = self._clock.seconds(), self._settings.session_timeout_s
        if self._refused_since_s is None or now_s - self._refused_s > timeout_s:
            self._refused_since_s = now_s  # the first, or the first after servers could not be reached
        self._refused_s = now_s
        refused_s = now_s - self._refused_since_s
        # A client that has seen no transaction is refused for another reason: a new client would be refused as well.
        if refused_s < timeout_s or not client.last_zxid:
            return
        log.error(
            "{servers} accepted connections but ended each handshake for {seconds:.0f} s. It has no quorum, or an "
            "older state than this process has seen (restored from a backup?). The session counts as lost; a new one "
            "begins",
            servers=self.description,
            seconds=refused_s,
        )
        self._refused_since_s = None
        self._refused_zxid = client.last_zxid
        self.state = StoreState.LOST
        self._fail_calls(f"{self.description} refuses the session")
        self._states.tell(StoreState.LOST)
        self._book.lose_all()
        if client is self._client and self._is_open():
            # Without waiting for the old client: none of its requests can still be under way.
            self._client = self._new_client()
            self._client.start_async()
            self._stop(client)

    def _compare_with_refused(self, zxid: int) -> None:
        """Decide why servers refused the last session. zxid: what they showed since; 0 for nothing yet."""
        if not zxid:
            return
        if may_be_older(zxid, self._refused_zxid):
            self.sessions_refused += 1
        else:
            log.info("{servers} has a newer state than before: it had no quorum", servers=self.description)
        self._refused_zxid = 0

    def _is_open(self) -> bool:
        return self.state is not StoreState.CLOSED

    def _fail_calls(self, why: str) -> None:
        in_flight, waiting = list(self._in_flight), list(self._waiting)
        self._in_flight.clear()
        self._waiting.clear()
        for call in in_flight:
            _fail(call, call.connection_gone(why))
        for call in waiting:
            _fail(call, NotAttempted(f"{call}: {why}"))

    def _replace_client(self, client: KazooClient, why: str) -> None:
        """kazoo's connection thread has ended. After bad credentials that is final, else another client goes on."""
        if client.client_state == KeeperState.AUTH_FAILED or why == KeeperState.AUTH_FAILED:
            self.refusal = AccessDenied(f"{self.description} refused the credentials of zkDigestAuth")
            return
        log.error("The ZooKeeper client ended by itself ({why}); starting another", why=why)
        self._client = self._new_client()
        # Not before the old session is over: until then the server might still act on what that one had sent, after
        # the new one has looked whether it did.
        self._clock.callLater(self._settings.session_timeout_s, self._start_replacement, self._client)
        self._stop(client)

    def _start_replacement(self, client: KazooClient) -> None:
        if client is self._client and self.state is not StoreState.CLOSED:
            client.start_async()

    def _new_client(self) -> KazooClient:
        settings = self._settings
        handler = _Callbacks(lambda call: self._clock.callLater(0, call))
        client = KazooClient(
            hosts=",".join([self._servers] * self._rounds()),
            timeout=settings.session_timeout_s,
            handler=handler,
            auth_data=[("digest", settings.digest_auth)] if settings.digest_auth is not None else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=_RECONNECT_FIRST_S, max_delay=_RECONNECT_MAX_S, ignore_expire=True
            ),
        )

        def on_state(kazoo_state: str) -> None:
            # kazoo's thread, and the only moment when the session id is sure to belong to this state.
            session_id = client.client_id[0] if client.client_id is not None else 0
            keeper_state = client.client_state
            ended = keeper_state if keeper_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED) else None
            self._put(lambda: self._on_state(client, kazoo_state, session_id, ended))

        client.add_listener(on_state)
        handler.on_refused = lambda: self._put(lambda: self._on_refused(client))
        return client

    def _rounds(self) -> int:
        """How often to name each server to kazoo, which waits session timeout / number of names for a handshake.

        A server that accepts before it serves loses the handshake, and one server alone would then cost the whole
        session timeout, and with it the session.
        """
        names = self._servers.count(",") + 1
        return max(1, int(self._settings.session_timeout_s / (_HANDSHAKE_S * names)))

    def _stop(self, client: KazooClient) -> Deferred[None]:
        """Stop a client on a thread of its own: that waits for kazoo's thread, and for the server's last answer.

        Fires after at most _STOP_TIMEOUT_S: a silent server must not keep a process from stopping.
        """
        stopped: Deferred[None] = Deferred()

        def end() -> None:
            if timer.active():
                timer.cancel()
            if not stopped.called:
                stopped.callback(None)

        timer = self._clock.callLater(_STOP_TIMEOUT_S, end)

        def stop() -> None:
            try:
                client.stop()
                client.close()
            except Exception:  # noqa: BLE001 - the session is given up either way; the server expires it
                log.failure("Stopping the ZooKeeper client failed")
            self._call_from_thread(end)

        threading.Thread(target=stop, name="zookeeper-stop", daemon=True).start()
        return stopped

    # --- threads ---------------------------------------------------------------------------------------------------

    def _put(self, item: Callable[[], None]) -> None:
        """Have `item` run on the reactor thread, after those put before it. Thread: any.

        No lock: a finalizer may run on the thread that holds it. Two announcements do no harm.
        """
        self._inbox.append(item)
        if not self._inbox_announced:
            self._inbox_announced = True
            self._call_from_thread(self._empty_inbox)

    def _empty_inbox(self) -> None:
        self._inbox_announced = False  # before the items are counted: what comes later is announced again
        items = [self._inbox.popleft() for _ in range(len(self._inbox))]
        for item in items:
            try:
                item()
            except Exception:  # noqa: BLE001 - one message must not keep the others from being heard
                log.failure("A message of the ZooKeeper client could not be dealt with")


def _nothing() -> None:
    """Do nothing: the listener is not set yet."""


def _stat(found: ZnodeStat) -> Stat:
    # cversion is children created plus children removed, a signed 32-bit number. With the present children added it is
    # twice the children created, modulo 2**32.
    made = ((found.cversion + found.numChildren) & 0xFFFFFFFF) >> 1
    return Stat(found.version, found.czxid, found.ephemeralOwner, found.numChildren, found.ctime, found.mtime, made)


def _fail(call: _Call, error: MetadataError) -> None:
    if not call.done.called:
        call.done.errback(error)


def _translate(error: Exception, call: _Call) -> MetadataError:
    for refusal, meaning in _REFUSALS:
        if isinstance(error, refusal):
            translated = meaning(f"{call}: {type(error).__name__}")
            translated.__cause__ = error
            return translated
    if isinstance(error, _CONNECTION_GONE):
        return call.connection_gone(type(error).__name__)
    unexpected = MetadataError(f"{call}: {type(error).__name__}: {error}")
    unexpected.__cause__ = error
    return unexpected


def _check_results(results: Sequence[object], steps: Sequence[Step]) -> None:
    """A refused transaction answers with an error per step; only the refused step's is its own."""
    errors = [(step, result) for step, result in zip(steps, results, strict=True) if isinstance(result, Exception)]
    for step, error in errors:
        if not isinstance(error, exceptions.RolledBackError | exceptions.RuntimeInconsistency):
            raise _translate(error, _Call("transaction on", step.path, lambda _: None, is_change=True))
    if errors:
        raise MetadataError(f"transaction on {steps[0].path}: {errors[0][1]!r}")
