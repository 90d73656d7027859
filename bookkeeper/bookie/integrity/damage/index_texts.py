"""What is told of a damaged index file or page: what is wrong, and what an operator does about it. Pure.

The bookie rebuilds a damaged page where its content is certain (scrub/page_repair.py), and one copy of a header
out of the other. A file that is gone or has no good copy of its header never is: key and fence were in it, and only an
operator knows whether it comes back from elsewhere.
"""

from __future__ import annotations

from bookkeeper.bookie.integrity.checksums.index import is_damaged
from bookkeeper.bookie.storage.index.format import COPY_SIZE, PAGE_SIZE


def remedy(ledger_id: int) -> str:
    """What makes an index file anew, of a bookie that does not run."""
    return (
        "with the bookie stopped, `bookkeeper shell --conf FILE regenerate-interleaved-storage-index-file "
        f"-ledgerIds {ledger_id}` makes the index file anew"
    )


def page_fails(ledger_id: int, page: int, value: int) -> str:
    """value: the checksum that the page should have, or DAMAGED."""
    why = f"index page {page} of {PAGE_SIZE} bytes fails its checksum"
    if is_damaged(value):
        why = f"index page {page} failed its checksum before something was added to it"
    return f"{why}; the bookie makes the page anew where that is certain. Else, {remedy(ledger_id)}"


def copy_damaged(offset: int, field: str) -> str:
    """Of one copy of a header, the other being whole. offset: of the first byte that is wrong, in the file."""
    which = "first" if offset < COPY_SIZE else "second"
    return f"the {which} copy of the header is damaged: its {field} is not what the other copy has, which is whole"


def file_gone(ledger_id: int) -> str:
    """Of a file that must be there."""
    return f"the index file of ledger {ledger_id} is gone, but nobody deleted the ledger; {remedy(ledger_id)}"


def file_damaged(ledger_id: int, why: str) -> str:
    """Of the header, or of a file that was cut."""
    return f"{why}; {remedy(ledger_id)}"
