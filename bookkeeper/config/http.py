"""Keys of HTTP servers that bookies and hubs share. Each function declares one field of a table."""

from __future__ import annotations

import re

from bookkeeper.config.keys import Kind, boolean, key, text

HTTP = "HTTP"

_HOST_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")


def host_names() -> Kind[tuple[str, ...]]:
    """Return the kind of a list of host names, separated by commas."""

    def parse(value: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in value.split(",")) if value else ()
        wrong = next((name for name in names if _HOST_NAME.fullmatch(name) is None), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is not a host name (names without a port, separated by commas)")
        return names

    return Kind("host names, comma-separated", parse)


def allowed_hosts_key(name: str = "httpServerAllowedHosts", group: str = HTTP) -> tuple[str, ...]:
    """Declare the host names that requests may use for the server."""
    return key(
        name,
        host_names(),
        "",
        group,
        "Host names that requests may use, in addition to localhost, IP addresses, this machine's name and the "
        "advertised address. Protects against DNS rebinding. No effect with a token file.",
        ours=True,
    )


def token_file_key(name: str = "httpServerTokenFile", group: str = HTTP) -> str:
    """Declare the token file."""
    return key(
        name,
        text("file"),
        "",
        group,
        "File of tokens that HTTP requests need: one `read TOKEN` or `operate TOKEN` per line, mode 0600, reloaded "
        "when it changes. Not set: every client may read, and only requests over loopback may change anything.",
        ours=True,
    )


def ledger_content_key() -> bool:
    """Declare the switch for reading and deleting ledgers over HTTP."""
    return key(
        "httpServerLedgerContentEnabled",
        boolean(),
        "false",
        HTTP,
        "Enable ledger/read and ledger/delete over HTTP. They do not check a ledger's password.",
        ours=True,
    )
