"""The state before an upgrade of the metadata server, kept beside the journal until there is no way back.

ROOT/upgrade: a line `lastTxId: N`, then the payload of ROOT/version as it was.

Differs from Apache: its journal manager refuses all of this, so a cluster with its edits there cannot be upgraded or
rolled back in place (journalmgr/FORMATS.md 2.9, 3.11).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists
from journalmgr.errors import JournalError, NotFormatted, SegmentUnreadable, WriterReplaced
from journalmgr.model import NamespaceInfo, TxId
from journalmgr.segment import parse_version, print_version

if TYPE_CHECKING:
    from journalmgr.ledger.znodes import JournalZnodes

_FIRST_LINE = b"lastTxId: "
_TXID = re.compile(rb"[0-9]{1,19}")


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
    if not line.startswith(_FIRST_LINE) or _TXID.fullmatch(number) is None:
        raise SegmentUnreadable(f"{path}: {data[:80]!r} does not begin with the last txid before the upgrade")
    namespace = parse_version(version, path).namespace
    if namespace is None:
        raise SegmentUnreadable(f"{path}: names no namespace")
    return BeforeUpgrade(TxId(int(number)), namespace)


class Upgrades:
    """The state that one journal remembers, and its version."""

    def __init__(self, znodes: JournalZnodes, description: str) -> None:
        self._znodes, self._description = znodes, description

    async def remember(self, namespace: NamespaceInfo) -> None:
        """Keep the present state; repeating it is fine as long as nothing has changed."""
        seen = await self._znodes.read_max_txid()
        state = BeforeUpgrade(seen.txid, namespace)
        try:
            await self._znodes.create(self._znodes.upgrade_path, state.format())
        except NodeExists as error:
            if await self.remembered() != state:
                raise JournalError(
                    f"{self._description} has an upgrade that was neither finalised nor rolled back; do that first"
                ) from error
        except NodeAbsent as error:
            raise NotFormatted(f"{self._description} vanished meanwhile: it is being formatted") from error

    async def remembered(self) -> BeforeUpgrade:
        """The state that is kept."""
        found = await self._znodes.read(self._znodes.upgrade_path)
        if found is None:
            raise JournalError(f"{self._description} remembers no state before an upgrade; begin with pre_upgrade")
        return parse_before_upgrade(found[0], self._znodes.upgrade_path)

    async def forget(self) -> None:
        """There is no way back any more. Harmless when repeated."""
        await self._znodes.delete_if_present(self._znodes.upgrade_path)

    async def write_version(self, namespace: NamespaceInfo) -> None:
        """Bind the journal to this layout version and ctime."""
        path = self._znodes.version_path
        found = await self._znodes.read(path)
        if found is None:
            raise NotFormatted(f"{self._description}: Environment not initialized. Have you forgotten to format?")
        if parse_version(found[0], path).namespace == namespace:
            return
        try:
            await self._znodes.write(path, print_version(namespace), found[1])
        except (NodeChanged, NodeAbsent) as error:
            raise WriterReplaced(f"{self._description}: another server changes {path} too: {error}") from error
