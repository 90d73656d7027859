"""Which transactions of a journal are folded: from the first on, or on from a snapshot made earlier. Pure.

    nothing -- 1 ......................... at_txid, or the end
    base: snapshot of txid T ---- T+1 .... at_txid, or the end

A journal whose first transactions were purged does not tell what they made: a name node has them in an image, which is
not read here. Then a base is needed, and one that ends where the journal's transactions go on.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.said_as import OF_OPTIONS, Words
from journalmgr.errors import JournalError

FORMAT = 1
"""Of what a snapshot's directory holds."""


class NamespaceFailed(JournalError):
    """The namespace could not be made; why is in the text."""


class NoBeginning(NamespaceFailed):
    """The journal's first transactions are gone, and nothing says what they made. begins: the first txid it has."""

    def __init__(self, message: str, *, begins: int | None) -> None:
        super().__init__(message)
        self.begins = begins


class BaseMisfit(NamespaceFailed):
    """The base is no snapshot, or none of this journal, or not one that the journal goes on from."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a snapshot is of: its one row of the table `snapshot`.

    namespace_id: 0 for a journal that is so old that it does not say. inodes: rows of the table. last_inode_id: the
    greatest that was ever given. unknown: operations of unknown meaning that were passed over: with any, it is not the
    namespace for certain, nor is what is folded onto it.
    """

    namespace_id: int
    journal: str
    txid: int
    inodes: int
    last_inode_id: int
    unknown: int = 0
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Seen:
    """What a journal has. begins: the first txid of what was looked for that it has, None for none; ends: its last."""

    journal: str
    namespace_id: int
    begins: int | None
    ends: int


def check_base(base: Head, path: str, seen: Seen) -> None:
    """Raise BaseMisfit for the snapshot of another namespace, or of a layout of other software."""
    if base.format != FORMAT:
        raise BaseMisfit(f"base {path}: its format is {base.format}, and {FORMAT} is read here; make it anew")
    if base.namespace_id != seen.namespace_id:
        raise BaseMisfit(
            f"base {path} is of namespace id {base.namespace_id} ({base.journal}); {seen.journal} belongs to namespace "
            f"id {seen.namespace_id}: take a snapshot of this one"
        )


def txids_to_fold(seen: Seen, base: Head | None, path: str, at_txid: int | None, words: Words = OF_OPTIONS) -> range:
    """The transactions to fold, in order; none where the base is what was asked for.

    path: of the base, for messages. words: for errors, of who asks. Raises InvalidArgument, NoBeginning, BaseMisfit.
    """
    done, said = 0 if base is None else base.txid, f"{words.argument('at_txid')}={at_txid}"
    if base is not None and done > seen.ends:
        raise BaseMisfit(
            f"base {path} is of txid {done}, and {seen.journal} ends at txid {seen.ends}: it is not the journal that "
            "the base was made of, or has lost its end; take a base that is not beyond it"
        )
    if at_txid is not None and at_txid < 1:
        raise InvalidArgument(f"{said}: txids begin at 1")
    if at_txid is not None and at_txid > seen.ends:
        raise InvalidArgument(
            f"{said}: {seen.journal} ends at txid {seen.ends}, as far as it is confirmed; leave it out for the latest"
        )
    if at_txid is not None and at_txid < done:
        raise InvalidArgument(f"{said}: base {path} is of txid {done} already; take an earlier base, or none")
    last = seen.ends if at_txid is None else at_txid
    if last > done and (seen.begins is None or seen.begins > done + 1):
        raise _no_beginning(seen, base, path, words)
    return range(done + 1, last + 1)


def _no_beginning(seen: Seen, base: Head | None, path: str, words: Words) -> NamespaceFailed:
    has = "has none of them any more" if seen.begins is None else f"begins with txid {seen.begins}"
    last_gone = seen.ends if seen.begins is None else seen.begins - 1
    if base is None:
        return NoBeginning(
            f"{seen.journal} {has}: transactions 1 to {last_gone} were purged or are lost, and what they made is only "
            f"in an image of the name node, which is not read here. Give {words.argument('base')}: a snapshot that "
            f"this pipeline wrote ({words.argument('output')}) when the journal had them, of txid {last_gone} or later",
            begins=seen.begins,
        )
    return BaseMisfit(
        f"base {path} is of txid {base.txid}, and {seen.journal} {has}: transactions {base.txid + 1} to {last_gone} "
        f"are missing between them; take a snapshot of txid {last_gone} or later as base"
    )
