"""Token files.

    # for Prometheus
    read     6b1f0c5a9e2d4c77b3
    operate  0e93d1c2a84f45b6d0

A line is a role and a token of TOKEN_SIZE characters; # begins a comment line. Only its owner may write the file, and
only its owner and group may read it. A server reloads its file when the file changes. While the file is unusable, the
server accepts no token. Our own commands send a token of the file that the environment variable
BOOKKEEPER_HTTP_TOKEN_FILE names. For GET they send a `read` token if the file has one.
"""

from __future__ import annotations

import http
import os
import re

from bookkeeper.admin.access.rules import SAFE_METHODS, Role
from bookkeeper.errors import ConfigurationError
from bookkeeper.system.secret_files import exposure

ENVIRONMENT = "BOOKKEEPER_HTTP_TOKEN_FILE"

FILE_SIZE_MAX = 64 * 1024
TOKENS_MAX = 100
"""Each request is compared with every token."""

TOKEN_SIZE = "16 to 512 letters, digits and -._~+/="
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


def parse_tokens(text: str) -> dict[str, Role]:
    """Return token -> role, in the order of the file. Raises ValueError, which names the line but never a token."""
    found: dict[str, Role] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] not in ("read", "operate"):
            raise ValueError(f"line {number} is not `read TOKEN` or `operate TOKEN`")
        if _TOKEN.fullmatch(words[1]) is None:
            raise ValueError(f"line {number}: a token has {TOKEN_SIZE}; `openssl rand -hex 24` makes one")
        if words[1] in found:
            raise ValueError(f"line {number} repeats the token of an earlier line; remove one of them")
        found[words[1]] = Role(words[0])
    if not found:
        raise ValueError("it has no token; write lines `read TOKEN` or `operate TOKEN`")
    if len(found) > TOKENS_MAX:
        raise ValueError(f"it has {len(found)} tokens; at most {TOKENS_MAX} are allowed")
    return found


def read_tokens(path: str, key: str) -> dict[str, Role]:
    """Read a token file. key: the setting that names the file. Raises ConfigurationError."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{key}={path} cannot be read: {error.strerror}") from error
    if found := exposure(path, mode):
        raise ConfigurationError(f"{key}={path} {found}")
    if len(data) > FILE_SIZE_MAX:
        raise ConfigurationError(f"{key}={path} is larger than {FILE_SIZE_MAX} bytes")
    try:
        return parse_tokens(data.decode("ascii"))
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{key}={path} is not ASCII text (byte {error.start})") from None
    except ValueError as error:
        raise ConfigurationError(f"{key}={path}: {error}") from None


def check_token_file(path: str, key: str = "httpServerTokenFile") -> None:
    """Check a server's token file, before the server stores or registers anything. Raises ConfigurationError.

    path: "" if the server has no token file.
    """
    if path:
        read_tokens(path, key)


def authorization(method: str) -> dict[str, str]:
    """Return the header of our own requests, or {} if ENVIRONMENT is not set. Raises ValueError."""
    path = os.environ.get(ENVIRONMENT, "")
    if not path:
        return {}
    try:
        tokens = read_tokens(path, ENVIRONMENT)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    order = (Role.READ, Role.OPERATE) if method in SAFE_METHODS else (Role.OPERATE, Role.READ)
    token = min(tokens, key=lambda each: order.index(tokens[each]))
    return {"Authorization": f"Bearer {token}"}


def remedy(status: int) -> str:
    """Return the text to add to a message about a status, or ""."""
    if status != http.HTTPStatus.UNAUTHORIZED:
        return ""
    return f": the server requires a token; set {ENVIRONMENT} to the path of a file that contains one"
