"""The commented .conf file out of the tables: every key with its unit, default and meaning.

`python -m bookkeeper.config.render` prints it; conf/bk_server.conf is that output, and a test holds the two equal.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

from bookkeeper.config.client import ClientSettings
from bookkeeper.config.keys import Key, keys_of
from bookkeeper.config.security import LAST_GROUPS
from bookkeeper.config.server import ServerSettings

WIDTH = 118

HEADER = """\
# Settings of a bookie, and of the ledger clients that read the same file.
#
# Key names are Apache BookKeeper's; a file written for it is read as it is. Keys it has and this program does not need
# are listed once at start; unknown keys, and keys that turn on what this program lacks, are refused. Precedence:
# command line (-D key=value), environment (BK_<key>), this file, default. A line that starts with '#' is a comment;
# one that ends in '\\' goes on in the next.
#
# Each key below stands with its default. Remove the '#' to change it.
"""

# What nearly everybody sets stands without '#', as in Apache's file.
ACTIVE = frozenset({"bookiePort", "journalDirectories", "ledgerDirectories", "zkServers", "zkLedgersRootPath"})


def _comment(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _entry(key: Key) -> Iterator[str]:
    yield ""
    yield from _comment(key.meaning)
    default = key.default or "not set"
    yield from _comment(f"Unit: {key.kind.unit}. Default: {default}.{' Not a key of Apache.' if key.ours else ''}")
    if key.differs:
        yield from _comment(f"Differs from Apache: {key.differs}")
    yield f"{'' if key.name in ACTIVE else '#'}{key.name}={key.default}"


def _section(title: str, keys: list[Key]) -> Iterator[str]:
    for group in sorted(dict.fromkeys(key.group for key in keys), key=lambda group: group in LAST_GROUPS):
        yield ""
        yield f"# ---------- {title}: {group if group.isupper() else group[0].lower() + group[1:]}"
        for key in keys:
            if key.group == group:
                yield from _entry(key)


def render() -> str:
    """Return the text of conf/bk_server.conf. A key that bookies and clients share stands once."""
    server = keys_of(ServerSettings)
    client = [key for name, key in keys_of(ClientSettings).items() if name not in server]
    lines = [*_section("Bookie", list(server.values())), *_section("Client", client)]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
