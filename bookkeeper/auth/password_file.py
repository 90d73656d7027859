"""Users and passwords in files: the provider `password-file`.

The client sends one payload, NUL user NUL password as in RFC 4616 (SASL PLAIN), and the bookie says yes or no. So
whoever can listen learns the password: without TLS neither side takes part, unless passwordOverClearText says so. (A
warning instead would be read after the password has been on the wire.)

The bookie checks on a thread of its own, one password at a time: a check is slow by design. It remembers passwords that
were right, as keyed digests under a key that never leaves the process, so that thousands of clients that come back
after a restart of theirs cost one slow check for each user. A remembered password is taken at once,
whoever else waits, so a flood of wrong ones keeps nobody out who was in before; and who has hung up is not checked any
more. Both files are read again when they change.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.internet.defer import succeed
from twisted.logger import Logger

from bookkeeper.auth.passwords import COST_N, PASSWORD_SIZE_MAX, PasswordHash, check_user, hash_password, parse_users
from bookkeeper.auth.provider import Answer, AuthenticationFailed, Peer
from bookkeeper.errors import ConfigurationError
from bookkeeper.system.secret_files import exposed, warn_exposed

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bookkeeper.config import ClientSettings, ServerSettings

log = Logger()

PLUGIN_NAME = "PasswordFile"
FILE_SIZE_MAX = 16 << 20
CHECKS_WAITING_MAX = 1000
"""Checks that may wait for their turn; more are refused. At 50 ms each this is most of a minute."""

RunInThread = Callable[[Callable[[], Answer]], "Deferred[Answer]"]
"""Run a piece of work on another thread, in order; fires on the reactor's."""


# --- bookie -----------------------------------------------------------------------------------------------------------


class UserFile:
    """The bookie's file: who has which password. Thread: that of the checks, after construction; `remembers` on any."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._secret = os.urandom(32)
        self._right: dict[str, bytes] = {}
        self._nobody = hash_password(b"nobody", n=COST_N)
        self._signature = self._stat()
        self._users = self._load()
        warn_exposed(exposed(f"bookiePasswordFile={path}", path))

    def check(self, user: str, password: bytes) -> bool:
        """True for the right password. A user that does not exist takes as long as one with another password."""
        self._refresh()
        seen = hmac.digest(self._secret, password, "sha256")
        known = self._right.get(user)
        if known is not None and hmac.compare_digest(known, seen):
            return True
        hashed = self._users.get(user)
        if hashed is None:
            self._nobody.matches(password)
            return False
        if not hashed.matches(password):
            return False
        self._right[user] = seen
        return True

    def remembers(self, user: str, password: bytes) -> bool:
        """True for a password that was right, in the file as it still is; False says nothing. Does not compute long."""
        try:
            if self._stat() != self._signature:  # before the look below: with a new signature, all was forgotten
                return False
        except ConfigurationError:
            return False  # `check` tells what is wrong with the file
        known = self._right.get(user)
        return known is not None and hmac.compare_digest(known, hmac.digest(self._secret, password, "sha256"))

    def _refresh(self) -> None:
        try:
            signature = self._stat()
            if signature == self._signature:
                return
            users = self._load()
        except ConfigurationError as error:
            log.error("The users read before stay: {error}", error=error)
            return
        self._right.clear()
        self._users, self._signature = users, signature

    def _stat(self) -> tuple[int, ...]:
        # st_ctime too: a copied file may keep the mtime of its original, and no program can set st_ctime.
        try:
            status = self._path.stat()
        except OSError as error:
            raise ConfigurationError(f"bookiePasswordFile={self._path} cannot be read: {error.strerror}") from error
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    def _load(self) -> dict[str, PasswordHash]:
        text = _text("bookiePasswordFile", self._path)
        try:
            return parse_users(text)
        except ValueError as error:
            raise ConfigurationError(f"bookiePasswordFile={self._path}: {error}") from None


class BookiePasswords:
    """The bookie's side."""

    plugin_name = PLUGIN_NAME

    def __init__(self, users: UserFile, run_in_thread: RunInThread, *, over_clear_text: bool) -> None:
        self._users, self._run, self._over_clear_text = users, run_in_thread, over_clear_text
        self._waiting = 0

    def converse(self, peer: Peer) -> _BookieConversation:
        """See provider.BookieProvider."""
        return _BookieConversation(self, peer)

    def check(self, peer: Peer, payload: bytes) -> Deferred[Answer]:
        """Whether the payload is that of a user. Raises, or fails with, AuthenticationFailed."""
        if not (peer.secure or self._over_clear_text):
            raise AuthenticationFailed(
                "passwords are not taken over clear text: turn TLS on at the client, or set passwordOverClearText=true"
            )
        parts = payload.split(b"\0")
        if len(parts) != 3 or len(parts[2]) > PASSWORD_SIZE_MAX:
            raise AuthenticationFailed("the payload is not of this plug-in")
        user, password = parts[1].decode("utf-8", "replace"), parts[2]
        if self._users.remembers(user, password):
            return succeed(Answer(b"", True, user))
        if self._waiting >= CHECKS_WAITING_MAX:
            raise AuthenticationFailed(f"{CHECKS_WAITING_MAX} passwords wait to be checked already")

        over = False

        def work() -> Answer:
            if over:
                raise AuthenticationFailed("nobody waits for the verdict any more")
            if not self._users.check(user, password):
                raise AuthenticationFailed(f"user {user!r:.64} does not exist or has another password")
            return Answer(b"", True, user)

        def done(result: object) -> object:
            nonlocal over
            over = True
            self._waiting -= 1
            return result

        self._waiting += 1
        checking = self._run(work)
        checking.addBoth(done)
        return checking


class _BookieConversation:
    def __init__(self, provider: BookiePasswords, peer: Peer) -> None:
        self._provider, self._peer = provider, peer

    def respond(self, payload: bytes) -> Deferred[Answer]:
        return self._provider.check(self._peer, payload)


def bookie_provider(settings: ServerSettings, run_in_thread: RunInThread) -> BookiePasswords:
    """The provider of a bookie. Raises ConfigurationError for a file that cannot be used."""
    users = UserFile(settings.auth_password_file)
    return BookiePasswords(users, run_in_thread, over_clear_text=settings.auth_over_clear_text)


# --- client -----------------------------------------------------------------------------------------------------------


class ClientPassword:
    """The client's side. The file is read for each connection: it may change, and connections are few."""

    plugin_name = PLUGIN_NAME

    def __init__(self, path: str, *, over_clear_text: bool) -> None:
        self._path, self._over_clear_text = Path(path), over_clear_text
        self.identity, _ = self.read()
        warn_exposed(exposed(f"clientPasswordFile={path}", path))

    def read(self) -> tuple[str, bytes]:
        """User and password. Raises ConfigurationError."""
        lines = [line.strip() for line in _text("clientPasswordFile", self._path).splitlines() if line.strip()]
        user, colon, password = lines[0].partition(":") if len(lines) == 1 else ("", "", "")
        try:
            check_user(user)
        except ValueError:
            colon = ""
        if not colon or not password or len(password.encode()) > PASSWORD_SIZE_MAX or "\0" in password:
            raise ConfigurationError(f"clientPasswordFile={self._path}: it should hold one line, user:password")
        return user, password.encode()

    def converse(self, peer: Peer) -> _ClientConversation:
        """See provider.ClientProvider."""
        return _ClientConversation(self, peer, allowed=peer.secure or self._over_clear_text)


class _ClientConversation:
    def __init__(self, provider: ClientPassword, peer: Peer, *, allowed: bool) -> None:
        self._provider, self._peer, self._allowed = provider, peer, allowed

    def first(self) -> bytes:
        if not self._allowed:
            raise AuthenticationFailed(
                "a password is not sent over clear text: turn TLS on, or set passwordOverClearText=true"
            )
        try:
            user, password = self._provider.read()
        except ConfigurationError as error:
            raise AuthenticationFailed(str(error)) from error
        return b"\0" + user.encode() + b"\0" + password

    def respond(self, payload: bytes) -> bytes | None:
        return None


def client_provider(settings: ClientSettings) -> ClientPassword:
    """The provider of a client. Raises ConfigurationError for a file that cannot be used."""
    return ClientPassword(settings.auth_password_file, over_clear_text=settings.auth_over_clear_text)


def _text(key: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{key}={path} cannot be read: {error.strerror}") from error
    if len(data) > FILE_SIZE_MAX:
        raise ConfigurationError(f"{key}={path} is larger than {FILE_SIZE_MAX} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{key}={path} is not UTF-8 text (byte {error.start})") from None
