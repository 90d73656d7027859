"""`ledger create`, `list`, `show`, `delete`, and how ledger metadata is shown everywhere."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.console.connection import connect, digest_type_of
from bookkeeper.console.ledger_options import Quorums, password_of, quorums_of
from bookkeeper.console.output import (
    EXIT_USAGE,
    CommandFailed,
    Progress,
    confirm,
    counted,
    end_partial,
    note,
    print_json,
    print_json_line,
    print_line,
)
from bookkeeper.errors import MetadataCorrupt, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecord, BadRecords
from bookkeeper.model import DigestType, LedgerMetadata
from bookkeeper.wire.digest import digest_of
from bookkeeper.wire.entry_size import entry_body_size_max

if TYPE_CHECKING:
    from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingWriteHandle
    from bookkeeper.config import ClientSettings


def _parse_custom(pairs: Sequence[str]) -> dict[str, bytes]:
    """`key=value` words as custom metadata."""
    custom: dict[str, bytes] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise CommandFailed(f"--custom {pair!r}: write it as KEY=VALUE", EXIT_USAGE)
        custom[key] = value.encode()
    return custom


@dataclass(frozen=True, slots=True)
class NewLedger:
    """A ledger as the options of `write` and `create` describe it. digest, password: None: the settings'."""

    quorums: Quorums
    digest: DigestType | None
    password: bytes | None
    custom: dict[str, bytes]
    ledger_id: int | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> NewLedger:
        """Read the options; nothing is asked of anybody yet. Raises CommandFailed for what can never work."""
        return cls(
            quorums_of(args.ensemble, args.write_quorum, args.ack_quorum),
            None if args.digest is None else digest_type_of(args.digest),
            password_of(args),
            _parse_custom(args.custom),
            args.ledger_id,
        )

    def entry_size_max(self, settings: ClientSettings) -> int:
        """The payload bytes that fit into a frame, as the write handle of this ledger will find."""
        password = settings.password if self.password is None else self.password
        digest = digest_of(self.digest or settings.digest_type, password)
        return entry_body_size_max(settings.frame_size_max) - digest.overhead

    def create(self, client: BlockingBookKeeper) -> BlockingWriteHandle:
        """Make it."""
        return client.create(
            ensemble=self.quorums.ensemble,
            write_quorum=self.quorums.write,
            ack_quorum=self.quorums.ack,
            digest=self.digest,
            password=self.password,
            custom=self.custom,
            ledger_id=self.ledger_id,
        )


def metadata_json(ledger_id: int, metadata: LedgerMetadata, *, secrets: bool = False) -> dict[str, object]:
    """Ledger metadata as plain values; the password only where `secrets`."""
    value: dict[str, object] = {
        "ledger_id": ledger_id,
        "state": metadata.state.name,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest_type": metadata.digest_type.name if metadata.digest_type else None,
        "last_entry_id": metadata.last_entry_id,
        "length": metadata.length,
        "ctime_ms": metadata.ctime_ms,
        "metadata_format_version": metadata.format_version,
        "custom": {key: item.decode("latin-1") for key, item in metadata.custom.items()},
        "fragments": [
            {"first_entry_id": fragment.first_entry_id, "ensemble": list(fragment.ensemble)}
            for fragment in metadata.fragments
        ],
    }
    if secrets:
        value["password"] = metadata.password.decode("latin-1") if metadata.password is not None else None
    return value


def ends_at(ledger_id: int, last_entry_id: int) -> str:
    """Where a ledger ends, in words."""
    return f"ledger {ledger_id} " + (f"ends at entry {last_entry_id}" if last_entry_id >= 0 else "has no entries")


def note_unconfirmed(ledger_id: int, report: str | None) -> None:
    """Name on standard error the entries that a read of an open ledger left out, and how to read them."""
    if report is not None:
        note(
            f"warning: {report}: `bookkeeper ledger tail {ledger_id}` follows its writer; if the writer is dead, "
            f"`bookkeeper ledger read {ledger_id} --recover` closes the ledger and reads all entries"
        )


def check_begin(ledger_id: int, first_entry_id: int, last_entry_id: int) -> None:
    """Raise CommandFailed for a first entry beyond the end; just behind the last one is where a reader goes on."""
    if first_entry_id > last_entry_id + 1:
        raise CommandFailed(f"there is no entry {first_entry_id}: {ends_at(ledger_id, last_entry_id)}")


def print_metadata(ledger_id: int, metadata: LedgerMetadata) -> None:
    """For people: a few lines."""
    closed = f", last entry {metadata.last_entry_id}, {metadata.length:,} bytes" if metadata.is_closed else ""
    print(f"ledger {ledger_id}: {metadata.state.name}{closed}")
    digest = metadata.digest_type.name if metadata.digest_type else "unknown"
    print(f"  E={metadata.ensemble_size} Qw={metadata.write_quorum} Qa={metadata.ack_quorum}, digest {digest}")
    if metadata.ctime_ms is not None:
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(metadata.ctime_ms / 1000))
        print(f"  created {made} UTC")
    for key, item in metadata.custom.items():
        print_line(f"  {key} = {item.decode('latin-1')}")
    for fragment in metadata.fragments:
        print_line(f"  from entry {fragment.first_entry_id}: {', '.join(fragment.ensemble)}")


def create(args: argparse.Namespace) -> int:
    """An empty, closed ledger, or with --open one that stays open for a recovering opener."""
    wanted = NewLedger.of(args)
    with connect(args) as client:
        ledger = wanted.create(client)
        if args.open:
            ledger.abort()
        else:
            ledger.close()
        if args.json:
            print_json(metadata_json(ledger.id, client.metadata(ledger.id)))
        else:
            print(ledger.id)
    return 0


def list_ledgers(args: argparse.Namespace) -> int:
    """Ledger ids, one a line, in id order; with --long their metadata."""
    progress = Progress("ledgers")
    strays, unreadable = BadRecords(), BadRecords()
    count = 0
    with connect(args) as client:
        for batch in client.ids(strays):
            for ledger_id in batch:
                count += 1
                if args.limit is not None and count > args.limit:
                    return end_listing(strays, unreadable, as_json=args.json)
                try:
                    metadata = client.metadata(ledger_id) if args.long else None
                except NoSuchLedger:
                    count -= 1  # deleted since it was listed
                except MetadataCorrupt as error:
                    print_unreadable(ledger_id, unreadable.add_unreadable(error), as_json=args.json)
                else:
                    print_listed(metadata, ledger_id, as_json=args.json)
            progress.update(count)
    progress.close()
    note(counted(count - unreadable.count, "ledger") + _unreadable_too(unreadable.count))
    return end_listing(strays, unreadable, as_json=args.json)


def _unreadable_too(count: int) -> str:
    if count == 0:
        return ""
    return f"; {count:,} more {'has' if count == 1 else 'have'} metadata that cannot be read"


def end_listing(strays: BadRecords, unreadable: BadRecords, *, as_json: bool) -> int:
    """Name the records that a list of ledgers passed over; return the exit code."""
    for record in strays.named:
        print_unreadable(None, record, as_json=as_json)
    return end_partial(strays, unreadable)


def print_unreadable(ledger_id: int | None, record: BadRecord, *, as_json: bool) -> None:
    """Print a JSON line for a ledger that cannot be read, or for a stray znode (None); nothing unless `as_json`."""
    if as_json:
        print_json_line({"ledger_id": ledger_id, "path": record.path, "unreadable": record.problem})


def print_listed(metadata: LedgerMetadata | None, ledger_id: int, *, as_json: bool) -> None:
    """One ledger of a list: its id, or its metadata; a JSON line with `as_json`."""
    if as_json:
        print_json_line(metadata_json(ledger_id, metadata) if metadata else {"ledger_id": ledger_id})
    elif metadata:
        print_metadata(ledger_id, metadata)
    else:
        print(ledger_id)


def show(args: argparse.Namespace) -> int:
    """The metadata of one ledger."""
    with connect(args) as client:
        metadata = client.metadata(args.ledger_id)
    if args.json:
        print_json(metadata_json(args.ledger_id, metadata, secrets=args.secrets))
    else:
        print_metadata(args.ledger_id, metadata)
    return 0


def delete(args: argparse.Namespace) -> int:
    """Delete ledgers from the metadata; bookies drop the entries when they next collect garbage."""
    with connect(args) as client:
        for ledger_id in args.ledger_ids:
            metadata = client.metadata(ledger_id)
            what = f"Delete ledger {ledger_id} ({metadata.state.name}, last entry {metadata.last_entry_id})?"
            if args.dry_run:
                note(f"would delete ledger {ledger_id}")
                continue
            confirm(what, force=args.force)
            client.delete(ledger_id)
            note(f"deleted ledger {ledger_id}")
    return 0
