"""The commented .conf file of hubs out of their table: every key with its unit, default and meaning.

`python -m hedwig.config.render` prints it; conf/hw_server.conf is that output, and a test holds the two equal.
"""

from __future__ import annotations

import sys

from bookkeeper.config.keys import Key, keys_of
from bookkeeper.config.render import Section, render_sections
from bookkeeper.config.security import LAST_GROUPS
from hedwig.config.hub import GROUPS, HubConfig

HEADER = """\
# Settings of a hub (`hedwig hub`).
#
# Key names are Apache Hedwig's, and Apache BookKeeper's for the ledger client inside; a hw_server.conf written for
# Apache's hubs is read as it is. Keys it has and this program does not need are listed once at start; unknown keys, and
# keys that turn on what this program lacks, are refused. Precedence: command line (-D key=value), environment
# (HW_<key>), this file, default. A line that starts with '#' is a comment; one that ends in '\\' goes on in the next.
#
# Each key below stands with its default. Remove the '#' to change it.
"""

# What stands without '#' in Apache's file too.
ACTIVE = frozenset({"zk_host", "zk_timeout", "server_port", "ssl_server_port", "ssl_enabled"})


def render() -> str:
    """Return the text of conf/hw_server.conf."""
    table = list(keys_of(HubConfig).values())

    def of_group(group: str) -> list[Key]:
        return [each for each in table if each.group == group]

    sections = [Section("", [each for group in GROUPS for each in of_group(group)])]
    sections.append(Section("Ledger client", [each for each in table if each.group not in GROUPS]))
    return render_sections(HEADER, sections, active=ACTIVE, last=LAST_GROUPS)


if __name__ == "__main__":
    sys.stdout.write(render())
