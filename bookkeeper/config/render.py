"""The commented .conf file out of the tables: every key with its unit, default and meaning.

`Section`s of any tables make one; other packages render theirs. Here: conf/bk_server.conf.

`python -m bookkeeper.config.render` prints it; conf/bk_server.conf is that output, and a test holds the two equal.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bookkeeper.config.client import ClientSettings
from bookkeeper.config.keys import Key, keys_of
from bookkeeper.config.replication import AUTO_RECOVERY
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


@dataclass(frozen=True, slots=True)
class Section:
    """The keys of one table. title: before the group of each part; "" for a file of one table."""

    title: str
    keys: Sequence[Key]


def render_sections(
    header: str,
    sections: Sequence[Section],
    *,
    active: Collection[str],
    owner: str = "Apache",
    last: Sequence[str] = (),
) -> str:
    """Return the text of a file. active: keys that stand without '#'. owner: whose the keys are that are not ours.

    last: groups that come behind the others.
    """
    lines: list[str] = []
    for section in sections:
        groups = dict.fromkeys(key.group for key in section.keys)
        for group in sorted(groups, key=lambda group: group in last):
            lines += ["", f"# ---------- {_heading(section.title, group)}"]
            for key in section.keys:
                if key.group == group:
                    lines += _entry(key, active, owner)
    return header + "\n".join(lines) + "\n"


def _heading(title: str, group: str) -> str:
    if not title:
        return group
    return f"{title}: {group if group.isupper() else group[0].lower() + group[1:]}"


def _entry(key: Key, active: Collection[str], owner: str) -> Iterator[str]:
    yield ""
    yield from _comment(key.meaning)
    default = key.default or "not set"
    yield from _comment(f"Unit: {key.kind.unit}. Default: {default}.{f' Not a key of {owner}.' if key.ours else ''}")
    if key.differs:
        yield from _comment(f"Differs from Apache: {key.differs}")
    yield f"{'' if key.name in active else '#'}{key.name}={key.default}"


def render() -> str:
    """Return the text of conf/bk_server.conf. A key that bookies and clients share stands once."""
    server = keys_of(ServerSettings)
    client = [key for name, key in keys_of(ClientSettings).items() if name not in server]
    sections = [Section("Bookie", list(server.values())), Section("Client", client)]
    return render_sections(HEADER, sections, active=ACTIVE, last=(*LAST_GROUPS, AUTO_RECOVERY))


if __name__ == "__main__":
    sys.stdout.write(render())
