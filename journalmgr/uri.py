"""URIs of journals: SCHEME://AUTHORITY/PATH, as dfs.namenode.edits.dir has them. Pure.

bookkeeper://zk1:2181;zk2:2181/journal     the authority is taken as it stands, with its `;` (journalmgr/FORMATS.md 1.1)
file:///var/lib/edits                      an empty authority
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bookkeeper.errors import InvalidArgument

# Possessive: an authority that gives characters back to the path would take time that is quadratic in the length.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*+):(?://([^/?#]*+))?+([^?#]*+)")
_ESCAPED = re.compile(r"%(?:([0-9A-Fa-f]{2})|)")


@dataclass(frozen=True, slots=True)
class JournalUri:
    """scheme: lower case. authority: raw. path: with its escapes resolved, beginning with "/"."""

    scheme: str
    authority: str
    path: str
    text: str

    @property
    def servers(self) -> list[str]:
        """The hosts of an authority that lists several; both `;` and `,` separate them."""
        return [server for server in re.split("[;,]", self.authority) if server]

    def __str__(self) -> str:
        return self.text


def parse_uri(text: str) -> JournalUri:
    """Take a journal's URI apart. Raises InvalidArgument."""
    found = _URI.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(
            f"{text!r} is no URI of a journal: want SCHEME://AUTHORITY/PATH without query or fragment, as "
            "bookkeeper://zk1:2181;zk2:2181/journal or file:///var/lib/edits"
        )
    scheme, authority, path = found[1].lower(), found[2] or "", _unescaped(found[3], text)
    if not path.startswith("/"):
        raise InvalidArgument(f"{text!r}: the path {path!r} must begin with a slash")
    return JournalUri(scheme, authority, path, text.strip())


def _unescaped(path: str, text: str) -> str:
    data = bytearray()
    position = 0
    for found in _ESCAPED.finditer(path):
        if found[1] is None:
            raise InvalidArgument(f"{text!r}: % is not followed by two hexadecimal digits; write %25 for a %")
        data += path[position : found.start()].encode()
        data.append(int(found[1], 16))
        position = found.end()
    data += path[position:].encode()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{text!r}: its escapes are no UTF-8") from error
