"""What somebody can do whose journal is damaged: said behind the error of every command that reads one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.console.output import CommandFailed


def remedy(journal: str) -> str:
    """In terms of the command line."""
    named = shlex.quote(journal)
    return (
        "what to do: take the segment from another copy of the journal, if there is one; "
        f"`journalmgr verify {named}` tells all that is wrong, and `journalmgr dump {named} --resync` exports what can "
        "still be read"
    )


def remedy_of_file(path: str) -> str:
    """The same for one file of edits."""
    return (
        "what to do: take the file from another copy of the journal, if there is one; "
        f"`journalmgr dump {shlex.quote(path)} --resync` exports what can still be read"
    )


@contextmanager
def telling(what_to_do: str) -> Iterator[None]:
    """Within, an error about damage ends the command with what to do about it."""
    from journalmgr.errors import EditsError, SegmentUnreadable, TransactionTooLarge

    try:
        yield
    except TransactionTooLarge:
        raise
    except (EditsError, SegmentUnreadable) as error:
        raise CommandFailed(f"{error}\n{what_to_do}") from error
