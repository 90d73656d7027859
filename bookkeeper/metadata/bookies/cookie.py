"""A bookie's cookie: who it is and which directories are its own. Pure. Source: bookkeeper/bookie/FORMATS.md 3.1, 3.2.

The same bytes are in the metadata store and in the VERSION file of every directory (I-70).

    5                                     layout version: 3 plain lines, 4 and 5 protobuf text
    bookieHost: "10.0.0.1:3181"
    journalDir: "/j"                      several joined with commas
    ledgerDirs: "2\\t/a\\t/b"               their number, then each after a TAB
    instanceId: "..."                     the cluster's
    indexDirs: "2\\t/a\\t/b"                since layout version 5
"""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.errors import InvalidMetadata, MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.textproto import parse_text, print_text
from bookkeeper.model import BookieId
from bookkeeper.wire.proto.DataFormats_pb2 import CookieFormat

LAYOUT_VERSION = 5
LAYOUT_VERSION_MIN = 3
_PLAIN_LAYOUT_VERSION = 3
_VERSION_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class Cookie:
    """One bookie's identity.

    instance_id: None in cookies older than the cluster's. index_dirs: None where the cookie does not name them; they
    are the ledger directories then.
    """

    bookie_id: BookieId
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    instance_id: str | None = None
    index_dirs: tuple[str, ...] | None = None
    layout_version: int = LAYOUT_VERSION

    def __post_init__(self) -> None:
        if not LAYOUT_VERSION_MIN <= self.layout_version <= LAYOUT_VERSION:
            raise InvalidMetadata(
                f"cookie layout version {self.layout_version} is not in {LAYOUT_VERSION_MIN}..{LAYOUT_VERSION}"
            )
        if any("," in path for path in self.journal_dirs):
            raise InvalidMetadata(f"a journal directory must not have a comma in its name: {self.journal_dirs}")
        for path in (*self.journal_dirs, *self.ledger_dirs, *(self.index_dirs or ())):
            if not path or "\t" in path or "\n" in path:
                raise InvalidMetadata(f"a directory must have a name without TAB and LF: {path!r}")

    def format(self) -> bytes:
        """The cookie's bytes. Layout version 3 has neither instance id nor index directories."""
        journal_dirs = ",".join(self.journal_dirs)
        ledger_dirs = _join(self.ledger_dirs)
        if self.layout_version == _PLAIN_LAYOUT_VERSION:
            return f"3\n{self.bookie_id}\n{journal_dirs}\n{ledger_dirs}\n".encode()
        message = CookieFormat(bookieHost=self.bookie_id, journalDir=journal_dirs, ledgerDirs=ledger_dirs)
        if self.instance_id is not None:
            message.instanceId = self.instance_id
        if self.index_dirs is not None:
            message.indexDirs = _join(self.index_dirs)
        return b"%d\n" % self.layout_version + print_text(message)


def parse_cookie(data: bytes, path: str) -> Cookie:
    """Read the cookie stored at `path` (of a znode or a file). Raises MetadataCorrupt and MetadataTooNew."""
    first, separator, content = data.partition(b"\n")
    digits = first.strip()
    if not separator or not digits.isdigit() or len(digits) > _VERSION_DIGITS_MAX:
        raise MetadataCorrupt(f"{path}: not a cookie: it begins with {data[:40]!r}")
    version = int(digits)
    if version > LAYOUT_VERSION:
        raise MetadataTooNew(f"{path}: cookie layout version {version}; this release reads up to {LAYOUT_VERSION}")
    if version < LAYOUT_VERSION_MIN:
        raise MetadataCorrupt(
            f"{path}: cookie layout version {version} is older than {LAYOUT_VERSION_MIN}, the oldest read"
        )
    try:
        if version == _PLAIN_LAYOUT_VERSION:
            return _parse_plain(content, path)
        message = parse_text(content, CookieFormat(), path)
        return Cookie(
            BookieId(message.bookieHost),
            _journal_dirs(message.journalDir),
            _split(message.ledgerDirs, path),
            message.instanceId if message.HasField("instanceId") else None,
            _split(message.indexDirs, path) if message.HasField("indexDirs") else None,
            version,
        )
    except InvalidMetadata as error:
        raise MetadataCorrupt(f"{path}: {error}") from error


def _parse_plain(content: bytes, path: str) -> Cookie:
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise MetadataCorrupt(f"{path}: the cookie is not text: {error}") from error
    if len(lines) < 3:
        raise MetadataCorrupt(f"{path}: a cookie of layout version 3 has 4 lines, this one {len(lines) + 1}")
    bookie_id, journal_dirs, ledger_dirs = lines[:3]
    return Cookie(
        BookieId(bookie_id),
        _journal_dirs(journal_dirs),
        _split(ledger_dirs, path),
        layout_version=_PLAIN_LAYOUT_VERSION,
    )


def _journal_dirs(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _join(paths: tuple[str, ...]) -> str:
    return "\t".join([str(len(paths)), *paths])


def _split(text: str, path: str) -> tuple[str, ...]:
    count, *paths = text.split("\t")
    if not (count.isascii() and count.isdigit() and len(count) <= _VERSION_DIGITS_MAX and int(count) == len(paths)):
        raise MetadataCorrupt(f"{path}: {text[:200]!r} is not a number of directories and that many after TABs")
    return tuple(paths)
