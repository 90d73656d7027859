"""Subjects and searches for owners that other packages add to `bookkeeper why`, by entry point.

    [project.entry-points."bookkeeper.why.subjects"]
    topic = "hedwig.cli.why_topic"                     a module, see Subject

    [project.entry-points."bookkeeper.why.owners"]
    topic = "hedwig.admin.listed_ledgers:owner_of"     see FindOwner

The name of a subject is the word after `why`. `why ledger` asks the searches which package a ledger belongs to.
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
    """A module with a subject of `why`. The first line of its docstring is the summary.

    Its top-level imports are loaded for any subject. EXAMPLE: arguments after `bookkeeper`. CONF: help text of --conf.
    """

    EXAMPLE: str
    CONF: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add options beside --uri, --conf, -D, --json and -v."""

    def explain(self, args: argparse.Namespace) -> Explanation:
        """Return the answer."""


class FindOwner(Protocol):
    """A search for the owner of a ledger. Returns sentences, none without an owner. Raises BookKeeperError.

    The search reads a bounded number of records, and returns a sentence if that was not enough.
    """

    async def __call__(self, client: LedgerClient, tree: Tree, ledger_id: LedgerId, /) -> Sequence[str]:
        """Search."""


def subjects() -> Mapping[str, str]:
    """Return the installed subjects, name to module."""
    return {each.name: each.value for each in sorted(entry_points(group=SUBJECTS), key=lambda each: each.name)}


def subject(module: str) -> Subject:
    """Load the module of a subject."""
    found: Subject = import_module(module)
    return found


def summary(module: str) -> str:
    """Return the summary of a subject, from the first line of its docstring."""
    text = (import_module(module).__doc__ or "").strip().partition("\n")[0]
    return text.rpartition(": ")[2].rstrip(".")


def owners() -> list[tuple[str, FindOwner]]:
    """Return the installed searches, with their names."""
    return [(each.name, each.load()) for each in entry_points(group=OWNERS)]
