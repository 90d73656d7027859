"""The rules of one server, with its names and tokens. Thread: reactor."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace

from twisted.logger import Logger

from bookkeeper.admin.access.rules import Head, Rules, Tokens, Verdict, host_name
from bookkeeper.admin.access.tokens import read_tokens
from bookkeeper.errors import ConfigurationError
from bookkeeper.system.addresses import is_loopback

log = Logger()

RULES = Rules()
"""Rules of bookies, auto-recovery and hubs, before the names of the server are added."""


class TokenFile:
    """The tokens of a server. Thread: reactor. Raises ConfigurationError if the file is unusable at the start."""

    def __init__(self, path: str, key: str) -> None:
        self._path, self._key = path, key
        self._signature = self._stat()
        self._tokens: Tokens | None = Tokens(read_tokens(path, key))

    def tokens(self) -> Tokens | None:
        """Return the tokens that the file contains now, or None if it is unusable."""
        signature = self._stat()
        if signature != self._signature:
            self._signature = signature
            try:
                self._tokens = Tokens(read_tokens(self._path, self._key))
                log.info("Reloaded the tokens of {path}", path=self._path)
            except ConfigurationError as error:
                self._tokens = None
                log.error("All requests are refused until the token file is readable: {error}", error=error)
        return self._tokens

    def _stat(self) -> tuple[int, ...] | None:
        # st_ctime as well: a copied file may keep the mtime of its original, and chmod changes only st_ctime.
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode


class Gate:
    """Decisions about the requests to a server. token_file: "" for none. Raises ConfigurationError for a bad file."""

    def __init__(self, rules: Rules, token_file: str = "") -> None:
        self._rules = rules
        self._tokens = TokenFile(token_file, rules.token_key) if token_file else None

    def check(self, head: Head) -> Verdict:
        """Decide on one request."""
        if self._tokens is None:
            return self._rules.by_network(head)
        return self._rules.by_token(head, self._tokens.tokens())


def make_gate(
    host: str,
    *,
    token_file: str,
    allowed_hosts: Iterable[str],
    advertised: str | None,
    rules: Rules = RULES,
    own: Callable[[], str] = socket.getfqdn,
) -> Gate:
    """Return the gate of a server that listens on `host`. Raises ConfigurationError if the token file is unusable.

    advertised: the name or address that clients connect to, or None. own: looks up the machine's full name, which may
    block. It is not called if `advertised` is set, or if only this machine can reach the server.
    """
    machine = socket.gethostname()
    names = ["localhost", machine, machine.partition(".")[0], host, *allowed_hosts]
    if advertised:
        names.append(advertised)
    elif not is_loopback(host):
        names.append(own())
    return Gate(replace(rules, names=frozenset(map(host_name, names))), token_file)
