"""The curl line of a request, with the headers that the rules of our HTTP servers require. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bookkeeper.admin.access.rules import REQUEST_HEADER, SAFE_METHODS, Role
from bookkeeper.system.addresses import is_loopback

if TYPE_CHECKING:
    from bookkeeper.config import ServerSettings

_REACHED_AT = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard address -> address that reaches the server from its own machine."""

PLACEHOLDER = "TOKEN_FILE"
"""Path of the token file in examples, if none is set."""


def curl_line(method: str, url: str, body: str = "", *, token_file: str = "") -> str:
    """Return the command that sends a request.

    token_file: the server's token file, or "" if it has none. The command reads a token for the method from the file,
    so the list of processes shows the token only while the command runs.
    """
    words = ["curl", "-X", method]
    if token_file:
        role = Role.READ if method in SAFE_METHODS else Role.OPERATE
        token = f"$(awk '/^ *{role.value}/{{print $2; exit}}' {shlex.quote(token_file)})"
        words += ["-H", f'"Authorization: Bearer {token}"']
    if method == "POST":  # curl sends the body as a form does
        words += ["-H", f"'{REQUEST_HEADER}: 1'"]
    if body:
        words += ["-d", f"'{body}'"]
    return " ".join([*words, url])


def order_line(settings: ServerSettings, method: str, path: str, body: str = "") -> str:
    """Return the command that sends an order to a bookie or to auto-recovery on its own machine.

    Settings that the server needs in order to answer stand before the command.
    """
    host = _REACHED_AT.get(settings.http_server_host, settings.http_server_host)
    token_file = settings.http_server_token_file
    needed = [] if settings.http_server_enabled else ["httpServerEnabled=true"]
    if not token_file and not is_loopback(host):  # without tokens only loopback requests may change anything
        token_file = PLACEHOLDER
        needed.append(f"httpServerTokenFile={token_file}")
    shown = f"[{host}]" if ":" in host else host
    command = curl_line(method, f"http://{shown}:{settings.http_server_port}{path}", body, token_file=token_file)
    return f"with {' and '.join(needed)}: {command}" if needed else command
