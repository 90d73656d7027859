"""What other packages add to `bookkeeper why`, found by entry point.

    [project.entry-points."bookkeeper.why.subjects"]
    topic = "hedwig.cli.why_topic"                     a module, see Subject

    [project.entry-points."bookkeeper.why.owners"]
    topic = "hedwig.admin.listed_ledgers:owner_of"     see FindOwner

The name of a subject is the word that follows `why`. Whoever writes ledgers may say which ones, for `why ledger`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bookkeeper.cli.why.explanation import Explanation
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.tree import Tree
    from bookkeeper.model import LedgerId

SUBJECTS = "bookkeeper.why.subjects"
OWNERS = "bookkeeper.why.owners"


class Subject(Protocol):
    """A module. The first line of its docstring is the summary; what it imports at the top is imported for any subject.

    EXAMPLE: words behind `bookkeeper`. CONF: whose conf file --conf takes.
    """

    EXAMPLE: str
    CONF: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add options beside --uri, --conf, -D, --json and -v."""

    def explain(self, args: argparse.Namespace) -> Explanation:
        """Answer."""


class FindOwner(Protocol):
    """Returns sentences about what a ledger belongs to, if anything is known of it. Fails with BookKeeperError.

    It looks at a bounded number of records, and says where that was not enough.
    """

    async def __call__(self, client: LedgerClient, tree: Tree, ledger_id: LedgerId, /) -> Sequence[str]:
        """Look."""


def subjects() -> Mapping[str, str]:
    """All that are installed: name -> module."""
    return {each.name: each.value for each in sorted(entry_points(group=SUBJECTS), key=lambda each: each.name)}


def subject(module: str) -> Subject:
    """Load one."""
    found: Subject = import_module(module)
    return found


def summary(module: str) -> str:
    """Return what it explains, in a few words."""
    text = (import_module(module).__doc__ or "").strip().partition("\n")[0]
    return text.rpartition(": ")[2].rstrip(".")


def owners() -> list[tuple[str, FindOwner]]:
    """All that are installed, with their names."""
    return [(each.name, each.load()) for each in entry_points(group=OWNERS)]
