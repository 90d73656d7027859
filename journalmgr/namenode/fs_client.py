"""A blocking client of the HTTP interface of several name nodes, with nothing but the standard library.

    files = FileSystemClient(["10.0.0.1:9870", "10.0.0.2:9870"])
    files.mkdirs("/logs")
    files.create("/logs/today", b"...")

It finds the active server, and finds it again after a failover: it asks one after the other, follows what a standby
says of the active, and waits while nobody is. A change carries a request id, the same in each attempt, so it happens
once however often it had to be sent; what has no id in the journal sets something to a value, and may be repeated.

Tokens go only to servers that the caller named, even if one of them reports another active server.

A server is sent a request only once it has shown on that connection that it answers at all: one that is frozen costs
`PROBE_S` and not the time that a slow change may take, and a change that is merely slow is not sent twice for that.

Errors of the servers are exceptions with Hadoop's names. Thread: one for each client.
"""

from __future__ import annotations

import http.client
import itertools
import math
import os
import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any
from urllib.parse import quote, urlencode

from bookkeeper.admin.access.rules import REQUEST_HEADER, SAFE_METHODS
from bookkeeper.admin.access.tokens import authorization, remedy
from bookkeeper.admin.questions import BoundedConnection, HttpAnswer
from bookkeeper.errors import InvalidArgument
from bookkeeper.texts import parse_json
from journalmgr.edits.fields import CLIENT_ID_SIZE
from journalmgr.errors import JournalError, JournalUnavailable
from journalmgr.model import TxId

PREFIX = "/webhdfs/v1"
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one answer. A page of 1000 links with targets of 8000 characters, at 6 bytes each in JSON, has 46 MiB."""

WAIT_S = 60.0
TIMEOUT_S = 10.0
PROBE_S = 1.5
"""How long a server has to show that it answers; also the least that any attempt is given, however little is left."""

PROBE_TARGET = "/heartbeat"
TELL_AFTER_S = 1.0
RETRY_DELAY_S = 0.05
RETRY_DELAY_MAX_S = 1.0

Json = dict[str, Any]


# --- errors


class RemoteException(JournalError):
    """What a server refuses, or fails with. status: of HTTP. java_class_name: whole."""

    def __init__(self, message: str, *, java_class_name: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.java_class_name = java_class_name
        self.status = status


class FileNotFoundException(RemoteException):
    """There is nothing at the path, or no file."""


class FileAlreadyExistsException(RemoteException):
    """There is something already."""


class ParentNotDirectoryException(RemoteException):
    """A component before the last is a file."""


class PathIsNotDirectoryException(RemoteException):
    """What is asked for only directories have."""


class PathIsNotEmptyDirectoryException(RemoteException):
    """The directory has children."""


class UnresolvedPathException(RemoteException):
    """A component is a symbolic link."""


class AlreadyBeingCreatedException(RemoteException):
    """Somebody writes the file."""


class LeaseExpiredException(RemoteException):
    """The client does not write the file."""


class QuotaExceededException(RemoteException):
    """A directory has no room for more."""


class FSLimitException(RemoteException):
    """A name too long, a path too deep, a directory too full."""


class AclException(RemoteException):
    """A list that is none."""


class InvalidPathException(RemoteException):
    """A path that cannot be."""


class HadoopIllegalArgumentException(RemoteException):
    """An argument that makes no sense for this path."""


class IllegalArgumentException(RemoteException):
    """A request that makes no sense."""


class StandbyException(RemoteException):
    """The server is not the active one. Callers see it only of what they ask of one server."""

    retriable = True


class RetriableException(RemoteException):
    """The server could not do it now."""

    retriable = True


class NoActiveServer(JournalUnavailable):
    """None of the servers did it in time; what became of a change is open."""


_BY_NAME = {
    kind.__name__: kind
    for kind in (
        *(FileNotFoundException, FileAlreadyExistsException, ParentNotDirectoryException, PathIsNotDirectoryException),
        *(PathIsNotEmptyDirectoryException, UnresolvedPathException, AlreadyBeingCreatedException),
        *(LeaseExpiredException, QuotaExceededException, FSLimitException, AclException, InvalidPathException),
        *(HadoopIllegalArgumentException, IllegalArgumentException, StandbyException, RetriableException),
    )
}


def _error_of(answer: HttpAnswer, what: str) -> RemoteException:
    status, body = answer.status, answer.body
    try:
        remote = parse_json(body)["RemoteException"]
        name, java_class_name, message = remote["exception"], remote["javaClassName"], remote["message"]
    except (ValueError, KeyError, TypeError):
        return RemoteException(f"{what}: HTTP {status}: {body[:200].decode(errors='replace')!r}", status=status)
    kind = _BY_NAME.get(str(name), RemoteException)
    return kind(f"{message}{remedy(status)}", java_class_name=str(java_class_name), status=status)


_PORT = re.compile(r"[0-9]{1,5}")


def parse_address(text: str) -> tuple[str, int]:
    """host:port, [v6]:port. Raises InvalidArgument."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or _PORT.fullmatch(port) is None or not 0 < int(port) < 65536:
        raise InvalidArgument(f"{text!r} is no address of a server; write HOST:PORT")
    return host.strip("[]").lower(), int(port)


def addresses_of(host: str) -> frozenset[str]:
    """Return the addresses of a host; none if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(str(each[4][0]) for each in found)


def check_text(text: str) -> None:
    """Raise InvalidArgument for bytes of a command line that were no text, and so are no name on a server."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{text!a} has a character that UTF-8 lacks: names are text") from error


# --- asking


class FileSystemClient:
    """Operations on the files of a group of servers.

    servers: host:port of each. user: who asks. wait_s: how long an operation may take, servers that are looked for
    included; each is asked once however little that is. timeout_s: of one attempt. client_id: of its requests, 16
    bytes, unique. clock, sleep: seconds. connect: makes a connection from (host, port, timeout). tell: told once in
    each operation that takes longer than `TELL_AFTER_S` what is waited for.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        user: str = "",
        wait_s: float = WAIT_S,
        timeout_s: float = TIMEOUT_S,
        client_id: bytes | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        connect: Callable[..., BoundedConnection] = BoundedConnection,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        if not servers:
            raise InvalidArgument("no server is given")
        self._named = frozenset(map(parse_address, servers))
        self.servers = tuple(server.strip() for server in servers)
        self.client_id = os.urandom(CLIENT_ID_SIZE) if client_id is None else client_id
        if len(self.client_id) != CLIENT_ID_SIZE:
            raise InvalidArgument(f"a client id has {CLIENT_ID_SIZE} bytes, not {len(self.client_id)}")
        try:
            self._read_token, self._change_token = authorization("GET"), authorization("PUT")
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        self.attempts = 0
        self._user, self._wait_s, self._timeout_s = user, wait_s, timeout_s
        self._clock, self._sleep, self._connect, self._tell = clock, sleep, connect, tell
        self._tell_at_s: float | None = None
        self._calls = itertools.count(1)
        self._active = self.servers[0]
        self._connected_to = ""
        self._connection: BoundedConnection | None = None

    def close(self) -> None:
        """Give the connection up; the next operation makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> FileSystemClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def active(self) -> str:
        """Who served last, or will be asked first."""
        return self._active

    def ask(
        self, method: str, op: str, path: str, parameters: Mapping[str, object] | None = None, body: bytes | None = None
    ) -> bytes:
        """One operation of WebHDFS by its names; the body of the answer. Parameters that are None are left out.

        Raises RemoteException, NoActiveServer, and InvalidArgument for a path that does not begin with a slash.
        """
        if not path.startswith("/"):
            raise InvalidArgument(f"{path!r} is no path here: one begins with a slash")
        check_text(path)
        query: list[tuple[str, object]] = [("op", op)]
        if self._user:
            query.append(("user.name", self._user))
        for name, value in (parameters or {}).items():
            if value is None:
                continue
            several = value if isinstance(value, list) else [value]
            query += [(name, str(each).lower() if isinstance(each, bool) else each) for each in several]
        for _, text in query:
            check_text(str(text))
        return self._ask_active(method, f"{PREFIX}{quote(path)}?{urlencode(query)}", body)

    def _ask_active(self, method: str, target: str, body: bytes | None = None) -> bytes:
        """Ask whoever is active, and look for him first if need be."""
        headers = {}
        if method != "GET":
            headers["X-Request-Id"] = f"{self.client_id.hex()}:{next(self._calls)}"
        now_s = self._clock()
        deadline_s = now_s + self._wait_s
        self._tell_at_s = now_s + TELL_AFTER_S
        delay_s = RETRY_DELAY_S
        silent: dict[str, float] = {}  # server -> when it may be asked again
        asked: set[str] = set()
        withheld: Exception | None = None
        while True:
            trouble: Exception | None = None
            for server in self._candidates(silent):
                begun_s = self._clock()
                is_named = self._is_named(server)
                if begun_s >= deadline_s and trouble is not None and (server in asked or not is_named):
                    continue
                asked.add(server)
                try:
                    answer = self._attempt(server, method, target, body, headers, deadline_s)
                except (OSError, http.client.HTTPException) as error:
                    trouble = JournalUnavailable(f"{server}: {str(error) or type(error).__name__}")
                    trouble.__cause__ = error
                    now_s = self._clock()
                    silent[server] = now_s + 2 * (now_s - begun_s)
                    continue
                if answer.status < 300:
                    self._active = server
                    return answer.body
                if answer.status == http.HTTPStatus.UNAUTHORIZED and self._token(method) and not is_named:
                    withheld = trouble = JournalUnavailable(
                        f"{server}, which another server named, requires a token: add it to the list of servers if it "
                        "is yours; tokens go only to servers of the list"
                    )
                    silent[server] = math.inf
                    continue
                refused = _error_of(answer, server)
                if not isinstance(refused, (StandbyException, RetriableException)):
                    self._active = server
                    raise refused
                trouble = refused
                self._active = _known_address(answer.headers.get("x-active-server", "")) or self._active
            trouble = withheld or trouble
            if self._clock() >= deadline_s:
                raise NoActiveServer(
                    f"none of {', '.join(self.servers)} did {method} {target.partition('&')[0]} within "
                    f"{self._wait_s:g} s; the last trouble: {trouble}"
                ) from trouble
            self._tell_once(f"waiting up to {self._wait_s:g} s for an active server; now: {trouble}")
            self._sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_DELAY_MAX_S)

    def _candidates(self, silent: Mapping[str, float]) -> Iterator[str]:
        """Servers to ask in one round: who was said to be active, as long as that is news, then the others.

        silent: one that let us wait is left alone for twice as long, whatever a standby says of it, unless no other is
        left: it may be frozen, and its successor active long before others stop to name it.
        """
        asked: set[str] = set()

        def may_be_asked(server: str) -> bool:
            return server not in asked and silent.get(server, 0.0) <= self._clock()

        while True:
            if may_be_asked(self._active):
                server = self._active
            else:
                others = [server for server in self.servers if may_be_asked(server)]
                if not others and not asked:
                    others = [min(self.servers, key=lambda server: silent.get(server, 0.0))]
                if not others:
                    return
                server = others[0]
            asked.add(server)
            yield server

    def _tell_once(self, text: str) -> None:
        if self._tell is not None and self._tell_at_s is not None and self._clock() >= self._tell_at_s:
            self._tell_at_s = None
            self._tell(text)

    def _attempt(
        self,
        server: str,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline_s: float = math.inf,
    ) -> HttpAnswer:
        used_before = self._connection is not None and self._connected_to == server
        try:
            return self._exchange(server, method, target, body, headers, deadline_s)
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException):
            if not used_before:
                raise
        # A server ends connections that were idle; the request has its id, so it may go out again.
        return self._exchange(server, method, target, body, headers, deadline_s)

    def _exchange(
        self,
        server: str,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline_s: float,
    ) -> HttpAnswer:
        if self._connection is None or self._connected_to != server:
            self.close()
            self._connect_to(server)
        self.attempts += 1
        headers = {**headers, **({REQUEST_HEADER: "1"} if method == "POST" else {})}
        if self._is_named(server):
            headers |= self._token(method)
        return self._send(method, target, body, headers, max(PROBE_S, deadline_s - self._clock()))

    def _is_named(self, server: str) -> bool:
        """Return whether the caller named this server, also if by another name of its address."""
        host, port = parse_address(server)
        if (host, port) in self._named:
            return True
        names = [name for name, its_port in self._named if its_port == port]
        return bool(names) and not addresses_of(host).isdisjoint(chain.from_iterable(map(addresses_of, names)))

    def _token(self, method: str) -> Mapping[str, str]:
        return self._read_token if method in SAFE_METHODS else self._change_token

    def _connect_to(self, server: str) -> None:
        """A connection at whose other end somebody answers: a frozen process still has its connections accepted."""
        host, port = parse_address(server)
        self._connection = self._connect(host, port, timeout=min(PROBE_S, self._timeout_s))
        self._connected_to = server
        # Whatever the answer is, it is one.
        self._send("GET", PROBE_TARGET, None, {}, PROBE_S)

    def _send(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], most_s: float
    ) -> HttpAnswer:
        connection = self._connection
        assert connection is not None
        timeout_s = min(most_s, self._timeout_s)
        try:
            return connection.ask(
                *(method, target, body, headers),
                size_max=ANSWER_BYTES_MAX,
                timeout_s=timeout_s,
                on_sent=lambda: self._tell_if_late(connection, timeout_s),
            )
        except TimeoutError as error:
            self.close()
            raise TimeoutError(f"no answer within {timeout_s:.1f} s") from error
        except BaseException:
            self.close()
            raise

    def _tell_if_late(self, connection: BoundedConnection, timeout_s: float) -> None:
        """Report the server if its answer takes long. This wait is part of the time for the answer."""
        if self._tell is None or self._tell_at_s is None:
            return
        arrived = select.poll()
        arrived.register(connection.sock, select.POLLIN)
        if not arrived.poll(1000 * min(max(self._tell_at_s - self._clock(), 0.0), timeout_s)):
            self._tell_once(f"waiting for {self._connected_to}, which does not answer yet")

    def _json(self, method: str, op: str, path: str, **parameters: object) -> Json:
        return _object(self.ask(method, op, path, parameters), op)

    # --- looking

    def status(self, path: str) -> Json:
        """The FileStatus of what is there; of a link itself."""
        return dict(self._json("GET", "GETFILESTATUS", path)["FileStatus"])

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        try:
            self.status(path)
        except FileNotFoundException:
            return False
        return True

    def list_status(self, path: str) -> Iterator[Json]:
        """The FileStatus of each entry of a directory, by name, page by page; of a file, of itself."""
        after: str | None = None
        while True:
            listing = self._json("GET", "LISTSTATUS_BATCH", path, startAfter=after)["DirectoryListing"]
            entries = listing["partialListing"]["FileStatuses"]["FileStatus"]
            yield from entries
            if not listing["remainingEntries"] or not entries:
                return
            after = entries[-1]["pathSuffix"]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Content of a file."""
        return self.ask("GET", "OPEN", path, {"offset": offset, "length": length})

    def content_summary(self, path: str) -> Json:
        """Counts, sizes and quotas of a tree."""
        return dict(self._json("GET", "GETCONTENTSUMMARY", path)["ContentSummary"])

    def xattrs(self, path: str, *names: str) -> dict[str, bytes | None]:
        """Attributes with these names, all without any."""
        parameters: dict[str, object] = {"encoding": "hex", "xattr.name": list(names)}
        answer = _object(self.ask("GET", "GETXATTRS", path, parameters), "GETXATTRS")
        return {
            item["name"]: None if item["value"] is None else bytes.fromhex(item["value"][2:])
            for item in answer["XAttrs"]
        }

    def acl_status(self, path: str) -> Json:
        """Owner, group, mode, and the entries that the mode does not say."""
        return dict(self._json("GET", "GETACLSTATUS", path)["AclStatus"])

    # --- names

    def mkdirs(self, path: str, mode: int = 0o755) -> None:
        """The directory and all above it that are missing."""
        self._json("PUT", "MKDIRS", path, permission=f"{mode:o}")

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Whether something was there."""
        return bool(self._json("DELETE", "DELETE", path, recursive=recursive)["boolean"])

    def rename(self, path: str, destination: str, *, overwrite: bool = False) -> None:
        """To exactly that name."""
        options = "OVERWRITE" if overwrite else "NONE"
        self.ask("PUT", "RENAME", path, {"destination": destination, "renameoptions": options})

    def symlink(self, path: str, target: str) -> None:
        """A link at `path`."""
        self.ask("PUT", "CREATESYMLINK", path, {"destination": target, "createParent": False})

    # --- files

    def create(
        self,
        path: str,
        content: bytes = b"",
        *,
        overwrite: bool = False,
        mode: int | None = None,
        replication: int | None = None,
        block_size: int | None = None,
        create_parents: bool = True,
    ) -> None:
        """A file with its content."""
        parameters = {
            "overwrite": overwrite,
            "permission": None if mode is None else f"{mode:o}",
            "replication": replication,
            "blocksize": block_size,
            "createparent": create_parents,
            "data": True,
        }
        self.ask("PUT", "CREATE", path, parameters, content)

    def append(self, path: str, content: bytes) -> None:
        """More content for a file."""
        self.ask("POST", "APPEND", path, {"data": True}, content)

    def concat(self, path: str, sources: Sequence[str]) -> None:
        """Blocks of other files at the end of this one; they are gone then."""
        self.ask("POST", "CONCAT", path, {"sources": ",".join(sources)})

    # --- attributes

    def set_permission(self, path: str, mode: int) -> None:
        """Another mode."""
        self.ask("PUT", "SETPERMISSION", path, {"permission": f"{mode:o}"})

    def set_owner(self, path: str, owner: str = "", group: str = "") -> None:
        """Another owner, another group, or both."""
        self.ask("PUT", "SETOWNER", path, {"owner": owner or None, "group": group or None})

    def set_times(self, path: str, mtime: int = -1, atime: int = -1) -> None:
        """Other times, in milliseconds; -1: unchanged."""
        self.ask("PUT", "SETTIMES", path, {"modificationtime": mtime, "accesstime": atime})

    def set_replication(self, path: str, replication: int) -> None:
        """Another number of copies."""
        self.ask("PUT", "SETREPLICATION", path, {"replication": replication})

    def set_quota(self, path: str, *, names: int | None = None, space: int | None = None) -> None:
        """Limits of a tree: -1 takes one away, None leaves it."""
        self.ask("PUT", "SETQUOTA", path, {"namespacequota": names, "storagespacequota": space})

    def set_xattr(self, path: str, name: str, value: bytes | None = None, *, flag: str | None = None) -> None:
        """One attribute. flag: CREATE or REPLACE, if it must be new, or must not."""
        text = None if value is None else f"0x{value.hex()}"
        self.ask("PUT", "SETXATTR", path, {"xattr.name": name, "xattr.value": text, "flag": flag})

    def remove_xattr(self, path: str, name: str) -> None:
        """One attribute less."""
        self.ask("PUT", "REMOVEXATTR", path, {"xattr.name": name})

    def set_acl(self, path: str, spec: str) -> None:
        """The whole list."""
        self.ask("PUT", "SETACL", path, {"aclspec": spec})

    def modify_acl(self, path: str, spec: str) -> None:
        """Some entries of it, replaced or added."""
        self.ask("PUT", "MODIFYACLENTRIES", path, {"aclspec": spec})

    def remove_acl_entries(self, path: str, spec: str) -> None:
        """Some entries less."""
        self.ask("PUT", "REMOVEACLENTRIES", path, {"aclspec": spec})

    def remove_default_acl(self, path: str) -> None:
        """No default list any more."""
        self.ask("PUT", "REMOVEDEFAULTACL", path)

    def remove_acl(self, path: str) -> None:
        """Only the mode is left."""
        self.ask("PUT", "REMOVEACL", path)

    # --- servers

    def roll(self) -> TxId:
        """End the segment of the active; the first txid of the next one."""
        return TxId(_object(self._ask_active("POST", "/api/v1/roll"), "roll")["txid"])

    def server_status(self, server: str) -> Json:
        """How one server is. Raises RemoteException, JournalUnavailable."""
        return self._of(server, "GET", "/api/v1/status")

    def fingerprint(self, server: str) -> tuple[TxId, str]:
        """Txid and fingerprint of one server's state. Raises as `server_status`."""
        answer = self._of(server, "GET", "/api/v1/fingerprint")
        return TxId(answer["txid"]), str(answer["fingerprint"])

    def checkpoint(self, server: str) -> Json:
        """Let one server save an image. Raises as `server_status`."""
        return self._of(server, "POST", "/api/v1/checkpoint")

    def _of(self, server: str, method: str, target: str) -> Json:
        try:
            answer = self._attempt(server, method, target, None, {})
        except (OSError, http.client.HTTPException) as error:
            raise JournalUnavailable(f"{server}: {str(error) or type(error).__name__}") from error
        if answer.status != 200:
            raise _error_of(answer, server)
        return _object(answer.body, target)


def _object(answer: bytes, what: str) -> Json:
    try:
        value = parse_json(answer)
    except ValueError as error:
        raise RemoteException(f"the answer to {what} is no JSON: {answer[:200]!r}") from error
    if not isinstance(value, dict):
        raise RemoteException(f"the answer to {what} is no object: {answer[:200]!r}")
    return value


def _known_address(hint: str) -> str:
    """What a standby says of the active; nothing where that is no address."""
    try:
        parse_address(hint)
    except InvalidArgument:
        return ""
    return hint
