"""Rows of the table `extents`: known, unknown, unreadable."""

from __future__ import annotations

from bookkeeper.model import BookieId, DigestType, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.spark.cluster.extents import EXTENTS, Reach, extent_row

NAMES = [column.name for column in EXTENTS.columns]


def row_of(reach: Reach) -> dict[str, object]:
    return dict(zip(NAMES, extent_row(7, reach), strict=True))


OPEN = LedgerMetadata(
    ensemble_size=1,
    write_quorum=1,
    ack_quorum=1,
    state=LedgerState.OPEN,
    fragments=(Fragment(EntryId(0), (BookieId("a:1"),)),),
    digest_type=DigestType.CRC32C,
    password=b"",
    custom={"owner": b"alice"},
)


def test_an_open_ledger_reaches_as_far_as_its_bookies_confirm() -> None:
    row = row_of(Reach(OPEN, 7, 80, None))
    assert (row["ledger_id"], row["state"], row["last_entry_id"], row["length"]) == (7, "OPEN", 7, 80)
    assert (row["owner"], row["write_quorum"], row["problem"]) == ("alice", 1, None)
    assert "custom" not in row


def test_a_ledger_whose_bookies_do_not_tell_is_unknown_with_the_reason_and_not_empty() -> None:
    row = row_of(Reach(OPEN, None, None, "nobody answers"))
    assert (row["state"], row["last_entry_id"], row["length"], row["problem"]) == ("OPEN", None, None, "nobody answers")


def test_metadata_that_cannot_be_read_leave_all_but_id_and_reason_unknown() -> None:
    row = row_of(Reach(None, None, None, "nonsense"))
    assert {name: value for name, value in row.items() if value is not None} == {"ledger_id": 7, "problem": "nonsense"}
