"""The curl line of a request, with the headers that the rules of our HTTP servers ask for. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bookkeeper.addresses import is_loopback
from bookkeeper.admin.access.rules import REQUEST_HEADER, SAFE_METHODS, Role

if TYPE_CHECKING:
    from bookkeeper.config import ServerSettings

_REACHED_AT = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Address that stands for all -> one that reaches the server from its machine."""

PLACEHOLDER = "TOKEN_FILE"
"""Stands for the file of tokens where none is set."""


def curl_line(method: str, url: str, body: str = "", *, token_file: str = "") -> str:
    """Return the command that sends a request.

    token_file: the server's file of tokens, or "" if it has none; the command reads a token for the method from it, so
    that no token is in the list of processes longer than the command runs.
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
    """Return the command that orders something of a bookie or of auto-recovery on its own machine.

    Settings without which the server would not answer it stand before the command.
    """
    host = _REACHED_AT.get(settings.http_server_host, settings.http_server_host)
    token_file = settings.http_server_token_file
    needed = [] if settings.http_server_enabled else ["httpServerEnabled=true"]
    if not token_file and not is_loopback(host):  # without tokens only requests over loopback change anything
        token_file = PLACEHOLDER
        needed.append(f"httpServerTokenFile={token_file}")
    shown = f"[{host}]" if ":" in host else host
    command = curl_line(method, f"http://{shown}:{settings.http_server_port}{path}", body, token_file=token_file)
    return f"with {' and '.join(needed)}: {command}" if needed else command
