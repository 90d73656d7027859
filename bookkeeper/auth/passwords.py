"""Salted, slow hashes of passwords, and the lines they stand in.

    alice:$scrypt$16384$8$1$<salt>$<hash>        salt and hash in base64

The three numbers are scrypt's cost: a check takes 128 * first * second bytes and some 50 ms. What a file may ask for is
bounded, so that no line can take all memory. Names have no colon, no white space and at most 255 bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass

COST_N, COST_R, COST_P = 16384, 8, 1
N_MAX, R_MAX, P_MAX = 1 << 17, 16, 4
SALT_SIZE = 16
HASH_SIZE = 32
PASSWORD_SIZE_MAX = 1024
_USER = re.compile(r"[^\s:\x00#][^\s:\x00]{0,254}")


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """What is known of a password."""

    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        """True for the password; takes the same time whatever is wrong with another one."""
        return hmac.compare_digest(_scrypt(password, self.salt, self.n, self.r, self.p), self.digest)

    def __str__(self) -> str:
        salt, digest = (base64.b64encode(part).decode() for part in (self.salt, self.digest))
        return f"$scrypt${self.n}${self.r}${self.p}${salt}${digest}"


def _scrypt(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    memory = 128 * r * (n + p + 2) + (1 << 20)
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=memory, dklen=HASH_SIZE)


def hash_password(password: bytes, *, n: int = COST_N) -> PasswordHash:
    """A new hash, with a salt of its own."""
    if not 0 < len(password) <= PASSWORD_SIZE_MAX:
        raise ValueError(f"a password has 1..{PASSWORD_SIZE_MAX} bytes")
    salt = os.urandom(SALT_SIZE)
    return PasswordHash(n, COST_R, COST_P, salt, _scrypt(password, salt, n, COST_R, COST_P))


def check_user(name: str) -> str:
    """Return a user's name if it can stand in a file. Raises ValueError."""
    if _USER.fullmatch(name) is None:
        raise ValueError("a user's name has 1..255 characters, without white space and ':', and does not begin with #")
    return name


def parse_users(text: str) -> dict[str, PasswordHash]:
    """User -> hash out of a file's text; empty lines and those that begin with # are skipped.

    Raises ValueError that names the line, and none of its contents.
    """
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        try:
            check_user(name)
            hashed = _parse_hash(rest)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if name in users:
            raise ValueError(f"line {number}: a second line of this user")
        users[name] = hashed
    return users


def _parse_hash(text: str) -> PasswordHash:
    wanted = "not user:$scrypt$n$r$p$salt$hash; make it with: bookkeeper auth line USER"
    parts = text.split("$")
    if len(parts) != 7 or parts[:2] != ["", "scrypt"]:
        raise ValueError(wanted)
    try:
        n, r, p = (int(part) for part in parts[2:5])
        salt, digest = (base64.b64decode(part, validate=True) for part in parts[5:])
    except (ValueError, binascii.Error):
        raise ValueError(wanted) from None
    if not (2 <= n <= N_MAX and n & (n - 1) == 0 and 1 <= r <= R_MAX and 1 <= p <= P_MAX):
        raise ValueError(f"cost out of bounds (n: a power of two up to {N_MAX}, r up to {R_MAX}, p up to {P_MAX})")
    if len(salt) < 8 or len(digest) != HASH_SIZE:
        raise ValueError(wanted)
    return PasswordHash(n, r, p, salt, digest)
