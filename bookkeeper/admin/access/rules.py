"""The decision about one request, from its head and its peer. Pure. The package's docstring describes the rules."""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OPEN_PATH = "/heartbeat"
REQUEST_HEADER = "X-BookKeeper-Request"

HEADERS = ("host", "origin", "authorization", "content-type", "user-agent", REQUEST_HEADER.lower())
"""Headers that the rules examine."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FORM_TYPES = frozenset({"", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})

SHOWN_MAX = 100
"""Characters of a header that a message shows."""

_AUTHORITY = re.compile(r"(\[[0-9a-f:.%]+\]|[^\[\]:/?#@\s]+)(?::([0-9]*))?")
_BROWSER = re.compile("Mozilla|Opera")


class Role(enum.Enum):
    """Role of a token. read: safe methods. operate: all methods."""

    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Head:
    """A request without its body. path: decoded. peer: IP address. headers: all values of each header in HEADERS."""

    method: str
    path: str
    peer: str
    headers: Mapping[str, Sequence[str]]

    def values(self, name: str) -> Sequence[str]:
        """Return all values of a header. name: in lower case."""
        return self.headers.get(name, ())

    @property
    def is_safe(self) -> bool:
        """Whether the method changes nothing."""
        return self.method in SAFE_METHODS


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision. status: 0 if the request is answered, else the status of the refusal. role: of the token, or None."""

    status: int = 0
    message: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    role: Role | None = None

    @property
    def who(self) -> str:
        """The role, for a log line."""
        return "none" if self.role is None else self.role.value


class Tokens:
    """The tokens that a server accepts, as digests."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        self._roles = [(_digest(token), role) for token, role in roles.items()]

    def role_of(self, token: str) -> Role | None:
        """Return the role of a token. The time does not depend on how similar the tokens are."""
        found: Role | None = None
        sent = _digest(token)
        for digest, role in self._roles:
            if hmac.compare_digest(digest, sent):
                found = role
        return found


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one server.

    names: host names that requests may use, in lower case. form_posts: prefix of the paths at which a POST needs the
    header only if it comes from a browser, or "". token_key, names_key: names of the settings, for messages.
    """

    names: frozenset[str] = frozenset()
    form_posts: str = ""
    token_key: str = "httpServerTokenFile"
    names_key: str = "httpServerAllowedHosts"

    def by_network(self, head: Head) -> Verdict:
        """Decide on a request to a server without tokens."""
        return self._host(head) or _origin(head) or self._unsafe(head) or Verdict()

    def by_token(self, head: Head, tokens: Tokens | None) -> Verdict:
        """Decide on a request to a server with tokens. tokens: None while they cannot be read."""
        refusal = _origin(head)
        if refusal is not None:
            return refusal
        if head.path.rstrip("/") == OPEN_PATH and head.is_safe:
            return Verdict()
        if tokens is None:
            return Verdict(503, f"the token file of {self.token_key} is unreadable; the server's log has the reason")
        sent = head.values("authorization")
        scheme, _, token = sent[0].strip().partition(" ") if len(sent) == 1 else ("", "", "")
        role = tokens.role_of(token.strip()) if scheme.lower() == "bearer" else None
        if role is None:
            return Verdict(
                401,
                f"{_why_no_role(sent, scheme, token)}; send Authorization: Bearer TOKEN with a token of "
                f"{self.token_key}",
                (("WWW-Authenticate", 'Bearer realm="BookKeeper"'),),
            )
        if role is Role.READ and not head.is_safe:
            return Verdict(
                403, f"{head.method} needs a token with the role operate; this one has the role read", (), role
            )
        return Verdict(role=role)

    def _host(self, head: Head) -> Verdict | None:
        hosts = head.values("host")
        if len(hosts) > 1:
            return Verdict(400, f"Host is given {len(hosts)} times")
        authority = _authority(hosts[0]) if hosts else None
        if not hosts or (authority is not None and (_is_address(authority[0]) or authority[0] in self.names)):
            return None
        return Verdict(
            421,
            f"Host: {hosts[0][:SHOWN_MAX]!r} is not a name of this server; use its IP address, or list the name in "
            f"{self.names_key}",
        )

    def _unsafe(self, head: Head) -> Verdict | None:
        if head.is_safe:
            return None
        if not _is_loopback(head.peer):
            return Verdict(
                403,
                f"{head.method} from {head.peer} is refused: without tokens only requests over loopback may change "
                f"anything; set {self.token_key}, or send the request to 127.0.0.1 on the server's machine",
            )
        if head.method != "POST" or head.values(REQUEST_HEADER.lower()):
            return None
        types = head.values("content-type") or ("",)
        if all(each.partition(";")[0].strip().lower() not in FORM_TYPES for each in types):
            return None
        agents = head.values("user-agent")
        if self.form_posts and head.path.startswith(self.form_posts) and not any(map(_BROWSER.match, agents)):
            return None
        return Verdict(403, f"POST {head.path} may come from a form of a web page; add the header {REQUEST_HEADER}: 1")


def _why_no_role(sent: Sequence[str], scheme: str, token: str) -> str:
    if len(sent) > 1:
        return f"Authorization is given {len(sent)} times"
    if scheme and scheme.lower() != "bearer":
        return "Authorization does not begin with Bearer"  # its first word may be a token, so it is not shown
    return "the token is unknown to this server" if token.strip() else "the token is missing"


def host_name(text: str) -> str:
    """Return a host name in the form that is compared: lower case, without a trailing dot."""
    return text.strip().lower().removesuffix(".")


def _origin(head: Head) -> Verdict | None:
    """Refuse a request from a page of another origin. Our servers speak HTTP, not HTTPS."""
    origins, hosts = head.values("origin"), head.values("host")
    host = _authority(hosts[0]) if len(hosts) == 1 else None
    for origin in origins:
        scheme, separator, authority = origin.strip().lower().partition("://")
        if scheme != "http" or not separator or host is None or _authority(authority) != host:
            return Verdict(
                403,
                f"Origin: {origin[:SHOWN_MAX]!r}: pages of another origin may not use this server; "
                "open the server's own address",
            )
    return None


def _authority(text: str) -> tuple[str, str] | None:
    """Return host and port of `host`, `host:port` or `[v6]:port`."""
    found = _AUTHORITY.fullmatch(text.strip().lower())
    return None if found is None else (host_name(found[1]), found[2] or "80")


def _is_address(host: str) -> bool:
    return _address(host.removeprefix("[").removesuffix("]")) is not None


def _is_loopback(peer: str) -> bool:
    address = _address(peer)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address is not None and address.is_loopback


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
