"""What it takes to read and write a ledger's entries without its owner: digest and master key. Pure.

The metadata names digest type and password since 4.2. Of an older ledger they are the configured ones (digestType,
passwd), as in Apache's tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.model import LedgerId, LedgerMetadata
from bookkeeper.wire.digest import Digest, digest_of, master_key

if TYPE_CHECKING:
    from bookkeeper.config import ClientSettings


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """One ledger's keys. master_key: what its adds and fences show to bookies."""

    ledger_id: LedgerId
    digest: Digest
    master_key: bytes


def access_of(settings: ClientSettings, ledger_id: LedgerId, metadata: LedgerMetadata) -> LedgerAccess:
    """As the metadata says, else as the settings do."""
    password = settings.password if metadata.password is None else metadata.password
    return LedgerAccess(
        ledger_id, digest_of(metadata.digest_type or settings.digest_type, password), master_key(password)
    )
