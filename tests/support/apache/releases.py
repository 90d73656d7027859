"""The releases that the interop tests run, what each can do, and how its bookie is started.

4.18.0 is the newest that Maven Central holds completely (4.18.2 lacks most of its modules). 4.14.7 is the last line
before batch reads and limbo. 4.2.3 is the last line of the binary protocol alone, of Netty 3 and of text metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.metadata.uri import parse_uri
from bookkeeper.model import DigestType

MEMTABLE_BYTES_MAX = 32 << 20
"""More than any test writes to one genuine bookie at a time. A memtable that grows beyond it is flushed by a thread
that then rolls the entry log, beside another one that adds to it: the ledgers map comes to lie between the size of an
entry and its body, and the genuine bookie has lost that entry (apache/bookkeeper #3604).
"""

SESSION_TIMEOUT_MS = 20_000
"""Session timeout of bookies. A bookie that pauses for longer loses its registration; release 4.2.3 exits.

It also limits the time to connect.
"""

ALL_DIGESTS = (DigestType.CRC32, DigestType.MAC, DigestType.CRC32C, DigestType.DUMMY)


@dataclass(frozen=True, slots=True)
class Release:
    """What one release has.

    protocols: wire versions of its client and its bookie. metadata_version: the newest it reads, and writes.
    entry_size_max: the largest payload of an entry that both its client and its bookie take with any digest.
    """

    version: str
    protocols: tuple[int, ...]
    digests: tuple[DigestType, ...]
    metadata_version: int
    entry_size_max: int
    has_batch_read: bool
    has_long_poll: bool
    has_explicit_lac: bool
    has_deferred_sync: bool
    has_chosen_ids: bool
    has_custom_metadata: bool
    java_sources: tuple[str, ...]
    bookie_main: str
    serves: re.Pattern[bytes]
    """The line of the bookie's log after which it serves; it listens, and resets connections, before that."""

    def bookie_settings(self, directory: Path, uri: str, port: int) -> dict[str, str]:
        """The keys of a bookie on `directory`/journal and `directory`/ledgers, allowed on the loopback interface."""
        settings = {
            "bookiePort": str(port),
            "ledgerDirectories": str(directory / "ledgers"),
            "allowLoopback": "true",
            "zkTimeout": str(SESSION_TIMEOUT_MS),
            "journalPreAllocSizeMB": "1",
            "skipListSizeLimit": str(MEMTABLE_BYTES_MAX),
        }
        if self is not CLASSIC:
            return settings | {
                "metadataServiceUri": uri,
                "journalDirectories": str(directory / "journal"),
                "advertisedAddress": "127.0.0.1",
                "ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
            }
        service = parse_uri(uri)
        settings |= {
            "zkServers": service.connect_string,
            "zkLedgersRootPath": service.root,
            "journalDirectory": str(directory / "journal"),
        }
        if service.kind is not None:
            settings["ledgerManagerFactoryClass"] = service.kind.value
        return settings


# A frame of 4.2.3 has at most 0xFFFFF bytes; an add begins with header and master key, the entry's ids and digest.
_CLASSIC_FRAME_MAX = 0xFFFFF
_ADD_OVERHEAD_MAX = 4 + 20 + 32 + 20

_MODERN_SOURCES = ("LedgerTool.java", "LedgerExtras.java", "LedgerScenarios.java", "PasswordAuth.java")
_MODERN_MAIN = "org.apache.bookkeeper.server.Main"

CLASSIC = Release(
    version="4.2.3",
    protocols=(2,),
    digests=(DigestType.CRC32, DigestType.MAC),
    metadata_version=2,
    entry_size_max=_CLASSIC_FRAME_MAX - _ADD_OVERHEAD_MAX,
    has_batch_read=False,
    has_long_poll=False,
    has_explicit_lac=False,
    has_deferred_sync=False,
    has_chosen_ids=False,
    has_custom_metadata=False,
    java_sources=("LedgerTool.java",),
    bookie_main="org.apache.bookkeeper.proto.BookieServer",
    serves=re.compile(rb"Register shutdown hook successfully"),
)

MIDDLE = Release(
    version="4.14.7",
    protocols=(2, 3),
    digests=ALL_DIGESTS,
    metadata_version=3,
    entry_size_max=1 << 20,
    has_batch_read=False,
    has_long_poll=True,
    has_explicit_lac=True,
    has_deferred_sync=True,
    has_chosen_ids=True,
    has_custom_metadata=True,
    java_sources=_MODERN_SOURCES,
    bookie_main=_MODERN_MAIN,
    serves=re.compile(rb"Started component bookie-server"),
)

DEFAULT = Release(
    version="4.18.0",
    protocols=(2, 3),
    digests=ALL_DIGESTS,
    metadata_version=3,
    entry_size_max=1 << 20,
    has_batch_read=True,
    has_long_poll=True,
    has_explicit_lac=True,
    has_deferred_sync=True,
    has_chosen_ids=True,
    has_custom_metadata=True,
    java_sources=_MODERN_SOURCES,
    bookie_main=_MODERN_MAIN,
    serves=re.compile(rb"Started component \{component=bookie-server\}"),
)

RELEASES: Mapping[str, Release] = {release.version: release for release in (DEFAULT, MIDDLE, CLASSIC)}
