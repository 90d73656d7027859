"""The state before an upgrade of the metadata server, kept beside the journal until there is no way back. Pure.

ROOT/upgrade: a line `lastTxId: N`, then the payload of ROOT/version as it was.

Differs from Apache: its journal manager refuses all of this, so a cluster with its edits there cannot be upgraded or
rolled back in place (journal-manager.md 3.11).
"""

from __future__ import annotations

from dataclasses import dataclass

from journalmgr.errors import SegmentUnreadable
from journalmgr.model import NamespaceInfo, TxId
from journalmgr.segment import parse_version, print_version

_FIRST_LINE = b"lastTxId: "


@dataclass(frozen=True, slots=True)
class BeforeUpgrade:
    """Where the journal ended, and what it was bound to."""

    last_txid: TxId
    namespace: NamespaceInfo

    def format(self) -> bytes:
        """The znode's data."""
        return b"%s%d\n%s" % (_FIRST_LINE, self.last_txid, print_version(self.namespace))


def parse_before_upgrade(data: bytes, path: str) -> BeforeUpgrade:
    """What `format` made. Raises SegmentUnreadable naming `path`."""
    line, _, version = data.partition(b"\n")
    number = line.removeprefix(_FIRST_LINE)
    if not line.startswith(_FIRST_LINE) or not number.isdigit():
        raise SegmentUnreadable(f"{path}: {data[:80]!r} does not begin with the last txid before the upgrade")
    namespace = parse_version(version, path).namespace
    if namespace is None:
        raise SegmentUnreadable(f"{path}: names no namespace")
    return BeforeUpgrade(TxId(int(number)), namespace)
