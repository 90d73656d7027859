"""Ledger metadata as bytes, versions 1, 2 and 3. Pure. Source: bookkeeper/wire/FORMATS.md 5.1 to 5.3.

    "BookieMetadataFormatVersion" TAB version LF, then
      1  text: write quorum, ensemble size, length, one line per fragment, the end of the ledger
      2  protobuf text of LedgerMetadataFormat
      3  varint length + binary LedgerMetadataFormat

What can be read obeys every rule of `model.LedgerMetadata`; nothing is put right while reading (I-01, I-18).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from bookkeeper.errors import InvalidMetadata, MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.textproto import parse_text, print_text, require_complete
from bookkeeper.model import BookieId, DigestType, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.wire.proto.DataFormats_pb2 import LedgerMetadataFormat

HEADER = b"BookieMetadataFormatVersion\t"
VERSION_MAX = 3
_VERSION_DIGITS_MAX = 10
_INT64_DIGITS = re.compile(r"-?\d{1,19}", re.ASCII)
_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
_VARINT_SIZE_MAX = 5  # of a length, a 32-bit number

_DIGEST_NAMES = {
    DigestType.CRC32: "CRC32",
    DigestType.MAC: "HMAC",
    DigestType.CRC32C: "CRC32C",
    DigestType.DUMMY: "DUMMY",
}

# Version 1 says how the ledger ends in a line of its own.
_END_KEY_WORD = "CLOSED"
_IN_RECOVERY_MARK = -102


def parse_ledger(data: bytes, path: str) -> LedgerMetadata:
    """Read the record stored at `path`. Raises MetadataCorrupt and MetadataTooNew, which name the path."""
    end = data.find(b"\n", len(HEADER), len(HEADER) + _VERSION_DIGITS_MAX + 1)
    if not data.startswith(HEADER) or end < 0:
        what = "empty" if not data else f"it begins with {data[:40]!r}"
        raise MetadataCorrupt(
            f"{path}: not ledger metadata: {what}; something else wrote there. To restore a dump: "
            "bookkeeper shell ledgermetadata -l ID -restorefromfile FILE -update"
        )
    digits = data[len(HEADER) : end]
    if not digits.isdigit():
        raise MetadataCorrupt(f"{path}: {digits!r} is not a metadata format version")
    version, content = int(digits), data[end + 1 :]
    try:
        if version == 1:
            return _parse_lines(content)
        if version == 2:
            return _from_message(parse_text(content, LedgerMetadataFormat(), path), version)
        if version == 3:
            return _from_message(_parse_delimited(content, path), version)
    except InvalidMetadata as error:
        raise MetadataCorrupt(f"{path}: {error}") from error
    if version == 0:
        raise MetadataCorrupt(f"{path}: metadata format version 0 does not exist")
    raise MetadataTooNew(
        f"{path}: metadata format version {version}; this release reads up to {VERSION_MAX}; "
        "use a newer release of this program"
    )


def format_ledger(metadata: LedgerMetadata) -> bytes:
    """The record's bytes, in the metadata's own format version.

    Version 1 has no ack quorum, digest, password, creation time or custom metadata, version 2 no creator token; what a
    version cannot say is left out (see `check_representable`).
    """
    header = HEADER + b"%d\n" % metadata.format_version
    if metadata.format_version == 1:
        return header + _format_lines(metadata)
    message = _to_message(metadata)
    if metadata.format_version == 2:
        return header + print_text(message)
    content = message.SerializeToString()
    return header + _varint(len(content)) + content


def check_representable(metadata: LedgerMetadata) -> None:
    """Raise InvalidMetadata where the format version would lose something that readers' safety or users depend on.

    A lost ack quorum is not harmless: recovery would take Qa for Qw and could drop acknowledged entries.
    """
    sizes = {"ensemble size": metadata.ensemble_size, "write quorum": metadata.write_quorum}
    for name, size in sizes.items():
        if size > _INT32_MAX:
            raise InvalidMetadata(f"{name} {size} is above {_INT32_MAX}")
    for fragment in metadata.fragments:
        for bookie_id in fragment.ensemble:
            if not bookie_id or any(character in bookie_id for character in "\t\n\r"):
                raise InvalidMetadata(f"{bookie_id!r} is not a bookie id")
    if metadata.format_version > 1:
        return
    if metadata.ack_quorum != metadata.write_quorum:
        raise InvalidMetadata(
            f"metadata format version 1 cannot hold an ack quorum ({metadata.ack_quorum}) other than the write quorum "
            f"({metadata.write_quorum}); use version 2 or 3, or equal quorums"
        )
    if metadata.custom:
        raise InvalidMetadata("metadata format version 1 cannot hold custom metadata; use version 2 or 3")


# --- versions 2 and 3 -----------------------------------------------------------------------------------------------


def _to_message(metadata: LedgerMetadata) -> LedgerMetadataFormat:
    closed = metadata.is_closed
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length if closed else 0,
        lastEntryId=metadata.last_entry_id if closed else -1,
        state=metadata.state.name,
        ackQuorumSize=metadata.ack_quorum,
        digestType=None if metadata.digest_type is None else _DIGEST_NAMES[metadata.digest_type],
        password=metadata.password,
        ctime=metadata.ctime_ms,
    )
    for fragment in metadata.fragments:
        message.segment.add(ensembleMember=fragment.ensemble, firstEntryId=fragment.first_entry_id)
    for key, value in metadata.custom.items():
        message.customMetadata.add(key=key, value=value)
    if metadata.creator_token is not None and metadata.format_version >= 3:
        message.cToken = metadata.creator_token
    return message


def _from_message(message: LedgerMetadataFormat, version: int) -> LedgerMetadata:
    state = LedgerState(message.state)
    closed = state is LedgerState.CLOSED
    if closed and not message.HasField("lastEntryId"):
        raise InvalidMetadata("a CLOSED ledger without its last entry id")
    has_password = message.HasField("password")
    digest = message.digestType if message.HasField("digestType") else LedgerMetadataFormat.CRC32
    return LedgerMetadata(
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        ack_quorum=message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
        fragments=tuple(_fragment(segment.firstEntryId, segment.ensembleMember) for segment in message.segment),
        state=state,
        last_entry_id=EntryId(message.lastEntryId) if closed else None,
        length=message.length if closed else None,
        digest_type=DigestType(digest) if has_password else None,
        password=message.password if has_password else None,
        custom={entry.key: entry.value for entry in message.customMetadata},
        ctime_ms=message.ctime if message.HasField("ctime") else None,
        creator_token=message.cToken if message.HasField("cToken") else None,
        format_version=version,
    )


_UNKNOWN_SIZE_MAX = 4096
"""Bytes of unknown fields, at most, for an error to name the first field: a look at 2,000 fields takes 2 ms."""


def _parse_delimited(content: bytes, path: str) -> LedgerMetadataFormat:
    size, start = _read_varint(content, path)
    if len(content) != start + size:
        raise MetadataCorrupt(f"{path}: {len(content) - start} bytes of metadata where its length says {size}")
    message = LedgerMetadataFormat()
    try:
        message.ParseFromString(content[start:])
    except DecodeError as error:
        raise MetadataCorrupt(f"{path}: not a protobuf LedgerMetadataFormat: {error}") from error
    # The runtime puts fields and enum values that it does not know aside. A digest type or a state of a later release
    # would then look like a missing one, and a rewrite would drop the rest.
    size = len(message.SerializePartialToString())
    message.DiscardUnknownFields()
    unknown_size = size - len(message.SerializePartialToString())
    if unknown_size > _UNKNOWN_SIZE_MAX:
        raise MetadataTooNew(f"{path}: written by a later release: {unknown_size} bytes of unknown fields")
    if unknown_size:
        [unknown, *_] = _unknown_fields(LedgerMetadataFormat.FromString(content[start:]))
        raise MetadataTooNew(f"{path}: written by a later release: {unknown}")
    require_complete(message, path)
    return message


def _unknown_fields(message: LedgerMetadataFormat) -> list[str]:
    found: list[str] = []
    for part in (message, *message.segment, *message.customMetadata):
        for unknown in UnknownFieldSet(part):  # type: ignore[attr-defined]
            number = unknown.field_number
            known = part.DESCRIPTOR.fields_by_number.get(number)
            name = "unknown field" if known is None else f"unknown value {unknown.data!r} of {known.name}, field"
            found.append(f"{name} {number} of {part.DESCRIPTOR.name}")
    return found


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(content: bytes, path: str) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(content[:_VARINT_SIZE_MAX]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, index + 1
    raise MetadataCorrupt(f"{path}: the length of the metadata is cut off or too large")


def _fragment(first_entry_id: int, ensemble: Sequence[str]) -> Fragment:
    if "" in ensemble:
        raise InvalidMetadata(f"fragment at entry {first_entry_id} names a bookie without an id")
    return Fragment(EntryId(first_entry_id), tuple(BookieId(bookie_id) for bookie_id in ensemble))


# --- version 1 ------------------------------------------------------------------------------------------------------


def _format_lines(metadata: LedgerMetadata) -> bytes:
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(metadata.length or 0)]
    lines += ["\t".join([str(fragment.first_entry_id), *fragment.ensemble]) for fragment in metadata.fragments]
    # The last line has no LF: of an open ledger that is an empty one.
    if metadata.state is LedgerState.OPEN:
        lines.append("")
    else:
        end = metadata.last_entry_id if metadata.is_closed else _IN_RECOVERY_MARK
        lines.append(f"{end}\t{_END_KEY_WORD}")
    return "\n".join(lines).encode("utf-8")


def _parse_lines(content: bytes) -> LedgerMetadata:
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidMetadata(f"version 1 metadata is not text: {error}") from error
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 3:
        raise InvalidMetadata(
            f"version 1 metadata has {len(lines)} line(s); quorum, ensemble size and length are three"
        )
    write_quorum, ensemble_size, length = (_number(line) for line in lines[:3])
    end: int | None = None
    fragments: list[Fragment] = []
    for line in lines[3:]:
        if end is not None:
            raise InvalidMetadata(f"{line[:100]!r} follows the end of the ledger")
        first, *words = line.split("\t")
        if words == [_END_KEY_WORD]:
            end = _number(first)
        else:
            fragments.append(_fragment(_number(first), words))
    metadata = LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum,
        fragments=tuple(fragments),
        digest_type=None,
        password=None,
        format_version=1,
    )
    if end is None:
        return metadata
    if end == _IN_RECOVERY_MARK:
        return dataclasses.replace(metadata, state=LedgerState.IN_RECOVERY)
    return metadata.closed(EntryId(end), length)


def _number(text: str) -> int:
    if _INT64_DIGITS.fullmatch(text) is None or abs(int(text)) > _INT64_MAX:
        raise InvalidMetadata(f"{text[:100]!r} is not a number")
    return int(text)
