"""`ledger write`, `read`, `tail`: streams to ledgers and back."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bookkeeper.cli.connection import client_settings, connect
from bookkeeper.cli.creation import password_of
from bookkeeper.cli.ledger.inspect import NewLedger
from bookkeeper.cli.ledger.lines import chunks_of, formatter_of, read_length_prefixed, read_lines
from bookkeeper.cli.output import EXIT_USAGE, CommandFailed, Progress, counted, entries, note, print_json

if TYPE_CHECKING:
    from bookkeeper.client.reader import Entry

ENTRY_OVERHEAD_MAX = 128
"""Bytes of frame, key, header and the largest digest that an entry needs besides its payload."""

APPEND_BYTES_MAX = 1024 * 1024
"""Payload bytes handed to the client at once."""


def write(args: argparse.Namespace) -> int:
    """Standard input -> one new ledger, closed at the end. Prints its id, or with --json what was written."""
    settings = client_settings(args)
    entry_size_max = settings.frame_size_max - ENTRY_OVERHEAD_MAX
    source = read_length_prefixed if args.length_prefixed else read_lines
    progress = Progress("entries written")
    written = size = 0
    wanted = NewLedger.of(args)
    with connect(args) as client:
        ledger = wanted.create(client)
        try:
            with ledger:
                if sys.stdin.isatty():
                    note(f"Ledger {ledger.id}: one entry per line, Ctrl-D ends.")
                for batch in source(chunks_of(sys.stdin.fileno()), entry_size_max):
                    for piece in _bounded(batch):
                        ledger.append_many(piece)
                        written += len(piece)
                        size += sum(map(len, piece))
                        progress.update(written)
        except BaseException:
            progress.close()
            note(f"Ledger {ledger.id} holds the first {written} entries; the rest was not acknowledged.")
            raise
    progress.close()
    if args.json:
        print_json({"ledger_id": ledger.id, "entries": written, "length": size})
    else:
        print(ledger.id)
        note(f"{entries(written)}, {counted(size, 'byte')}")
    return 0


def _bounded(batch: list[bytes]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    size = 0
    for entry in batch:
        if piece and size + len(entry) > APPEND_BYTES_MAX:
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += len(entry)
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
            first = _first_entry(args.offset, handle.last_add_confirmed)
            last = handle.last_add_confirmed
            if args.last is not None:
                last = min(last, args.last)
            if args.count is not None:
                last = min(last, first + args.count - 1)
            total = max(0, last - first + 1)
            printed = _print(args, handle.batches(first, last) if total else (), total)
    note(f"{entries(printed)} of ledger {args.ledger_id}")
    return 0


def tail(args: argparse.Namespace) -> int:
    """Follow a ledger until it is closed, --count entries were printed, or (-e) its end is reached."""
    password = password_of(args)
    with connect(args) as client, client.open_without_recovery(args.ledger_id, password=password) as handle:
        first = _first_entry(args.offset, handle.last_add_confirmed)
        if args.exit_at_end:
            last = handle.last_add_confirmed
            batches: Iterable[list[Entry]] = handle.batches(first, last) if last >= first else ()
        else:
            batches = handle.tail(first)
        _print(args, batches, None)
    return 0


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
