"""`ledger write`, `read`, `tail`: streams to ledgers and back."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bookkeeper.cli.ledger.inspect import NewLedger, check_begin, ends_at, note_unconfirmed
from bookkeeper.cli.ledger.lines import chunks_of, formatter_of, read_length_prefixed, read_lines
from bookkeeper.cli.ledger.listener import watching_listener
from bookkeeper.console.connection import client_settings, connect
from bookkeeper.console.ledger_options import password_of
from bookkeeper.console.output import (
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    counted,
    entries,
    note,
    print_json,
)
from bookkeeper.console.subcommands import check_range
from bookkeeper.console.supervision import stopping_on_signals
from bookkeeper.errors import BookKeeperError, LedgerClosed

if TYPE_CHECKING:
    from bookkeeper.client.faces.blocking import BlockingReadHandle, BlockingWriteHandle
    from bookkeeper.client.read.read_handle import Entry

APPEND_BYTES_MAX = 1024 * 1024
"""Payload bytes handed to the client at once."""


def write(args: argparse.Namespace) -> int:
    """Standard input -> one new ledger, closed at the end or at the first signal.

    The ledger's id is told as soon as the ledger exists, so that others can follow it: on standard output, or, with
    --json, on standard error, as standard output then has one document about what was written.
    """
    wanted = NewLedger.of(args)
    entry_size_max = wanted.entry_size_max(client_settings(args))
    read_entries = read_length_prefixed if args.length_prefixed else read_lines
    batches = read_entries(chunks_of(sys.stdin.fileno()), entry_size_max)
    with stopping_on_signals(EXIT_INTERRUPTED), connect(args) as client:
        # Input whose beginning is of no use leaves no ledger behind. Who types wants to see the ledger first.
        first = [] if sys.stdin.isatty() else next(batches, [])
        ledger = wanted.create(client)
        written, size = _write_all_batches(ledger, itertools.chain([first], batches), as_json=args.json)
    if args.json:
        print_json({"ledger_id": ledger.id, "entries": written, "length": size})
    else:
        note(f"{entries(written)}, {counted(size, 'byte')}")
    return 0


def _tell_id(ledger_id: int, *, as_json: bool) -> None:
    if as_json:
        note(f"ledger {ledger_id}")
    else:
        print(ledger_id, flush=True)
    if sys.stdin.isatty():
        note(f"Ledger {ledger_id}: one entry per line, Ctrl-D ends.")


def _write_all_batches(
    ledger: BlockingWriteHandle, batches: Iterable[list[bytes]], *, as_json: bool
) -> tuple[int, int]:
    """Tell the id, append all, close the ledger; number of entries and of bytes.

    Whatever ends it early, say what there is now.
    """
    progress = Progress("entries written")
    written = size = 0
    try:
        with ledger:
            _tell_id(ledger.id, as_json=as_json)  # here: who cannot be told must not leave it open
            for batch in batches:
                for piece in _bounded(batch):
                    ledger.append_many(piece)
                    written += len(piece)
                    size += sum(map(len, piece))
                    progress.update(written)
    except BaseException:
        progress.close()
        note(_state(ledger))
        raise
    progress.close()
    return written, size


def _state(ledger: BlockingWriteHandle) -> str:
    metadata = ledger.metadata
    if metadata.is_closed and metadata.last_entry_id is not None:
        return (
            f"Ledger {ledger.id} is closed. It holds {entries(metadata.last_entry_id + 1)}; no more was acknowledged."
        )
    return (
        f"Ledger {ledger.id} could not be closed. It holds {entries(ledger.last_add_confirmed + 1)} or more; "
        f"`bookkeeper ledger read {ledger.id} --recover` closes it."
    )


def _bounded(batch: list[bytes]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    size = 0
    for entry in batch:
        if piece and size + len(entry) > APPEND_BYTES_MAX:
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += len(entry)
    if piece:
        yield piece


def read(args: argparse.Namespace) -> int:
    """Entries of a ledger -> standard output. Never fences unless --recover."""
    password = password_of(args)
    with connect(args) as client:
        if args.recover:
            handle = client.open(args.ledger_id, password=password)
        else:
            handle = client.open_without_recovery(args.ledger_id, password=password)
        with handle:
            end = last = handle.last_add_confirmed
            first = _first_entry(args.offset, end)
            check_begin(args.ledger_id, first, end)
            if args.last is not None:
                check_range(first, args.last, f"-o {args.offset} --last {args.last}")
                last = min(last, args.last)
            if args.count is not None:
                last = min(last, first + args.count - 1)
            total = max(0, last - first + 1)
            printed = _print(args, _told_how_far(args, handle.batches(first, last), first) if total else (), total)
            unconfirmed = handle.report_unconfirmed(end) if last == end else None
    if args.last is not None and args.last > end:
        note(f"{ends_at(args.ledger_id, end)}, before --last {args.last}")
    note(f"{entries(printed)} of ledger {args.ledger_id}")
    note_unconfirmed(args.ledger_id, unconfirmed)
    return 0


def _told_how_far(args: argparse.Namespace, batches: Iterable[list[Entry]], first: int) -> Iterator[list[Entry]]:
    """The same; where it fails, say before which entry the output ends: all before it was printed."""
    following = first
    try:
        for batch in batches:
            yield batch
            following = batch[-1].entry_id + 1
    except BookKeeperError:
        printed = f"entries {first}..{following - 1} were printed" if following > first else "nothing was printed"
        note(f"The output stops before entry {following} of ledger {args.ledger_id}: {printed}")
        raise


def tail(args: argparse.Namespace) -> int:
    """Follow a ledger until it is closed, --count entries were printed, or (-e) its end is reached."""
    password = password_of(args)
    with connect(args) as client, client.open_without_recovery(args.ledger_id, password=password) as handle:
        first = _first_entry(args.offset, handle.last_add_confirmed)
        if args.exit_at_end or handle.closed:
            check_begin(args.ledger_id, first, handle.last_add_confirmed)
        last = handle.last_add_confirmed
        if args.exit_at_end:
            batches: Iterable[list[Entry]] = handle.batches(first, last) if last >= first else ()
        else:
            batches = handle.tail(first)
        _print_while_read(args, batches, handle)
        if args.exit_at_end:
            note_unconfirmed(args.ledger_id, handle.report_unconfirmed(last))
    return 0


def _print_while_read(args: argparse.Namespace, batches: Iterable[list[Entry]], handle: BlockingReadHandle) -> None:
    """Raises BrokenPipeError when nobody reads the output any more, though the next entry may never come."""
    with watching_listener(sys.stdout.fileno(), handle.close) as listener:
        try:
            _print(args, batches, None)
        except LedgerClosed as error:  # what the waiting ends with when its handle is closed
            if not listener.gone:
                raise
            raise BrokenPipeError from error


def _first_entry(offset: str, last_add_confirmed: int) -> int:
    """beginning | end | -N (the last N) | an entry id."""
    if offset == "beginning":
        return 0
    if offset == "end":
        return last_add_confirmed + 1
    try:
        number = int(offset)
    except ValueError:
        raise CommandFailed(f"-o {offset!r}: use beginning, end, -N or an entry id", EXIT_USAGE) from None
    return max(0, last_add_confirmed + 1 + number) if number < 0 else number


def _print(args: argparse.Namespace, batches: Iterable[list[Entry]], total: int | None) -> int:
    form = formatter_of(text_format=args.format, json_lines=args.json, length_prefixed=args.length_prefixed)
    out, ledger_id, printed = sys.stdout.fileno(), args.ledger_id, 0
    progress = Progress("entries read", total) if not os.isatty(out) else None
    for batch in batches:
        wanted = batch if args.count is None else batch[: args.count - printed]
        _write_all(out, b"".join([form(ledger_id, entry.entry_id, entry.payload) for entry in wanted]))
        printed += len(wanted)
        if progress is not None:
            progress.update(printed)
        if args.count is not None and printed >= args.count:
            break
    if progress is not None:
        progress.close()
    return printed


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
