"""Settings that cannot work, roots that cannot be, and what an error below means for whoever uses the journal."""

from __future__ import annotations

import pytest

from bookkeeper.errors import (
    AccessDenied,
    ClientClosed,
    EntryUnreadable,
    InvalidArgument,
    LedgerClosed,
    LedgerFencedOff,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    WrongPassword,
)
from journalmgr.errors import (
    JournalClosed,
    JournalError,
    JournalUnavailable,
    SegmentUnreadable,
    StreamFailed,
    TxIdSeen,
    WriterReplaced,
)
from journalmgr.ledger.connecting import check_root
from journalmgr.ledger.outcome import told, translated, write_failure
from journalmgr.ledger.settings import ENTRY_SIZE_MAX, LedgerJournalSettings, entry_size_max
from journalmgr.ledger.upgrade import BeforeUpgrade, parse_before_upgrade
from journalmgr.model import NamespaceInfo, TxId


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ensemble": 1}, "ensemble-size 1, quorum-size 2"),
        ({"ack_quorum": 3}, "ack.quorum-size 3"),
        ({"ack_quorum": 0}, "ack.quorum-size 0"),
        ({"output_buffer_size": -1}, "output-buffer-size -1"),
        ({"output_buffer_size": 1 << 20}, "output-buffer-size 1048576"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        LedgerJournalSettings(**settings)


def test_the_ack_quorum_is_the_write_quorum_unless_given() -> None:
    assert LedgerJournalSettings(ensemble=4, write_quorum=4).acknowledgements == 4
    assert LedgerJournalSettings(ensemble=4, write_quorum=4, ack_quorum=3).acknowledgements == 3


def test_an_entry_fits_the_frames_of_the_client_and_of_a_genuine_bookie() -> None:
    """A 4.2.3 bookie takes frames of 0xFFFFF bytes: header 4, master key 20, ids, LAC and length 32, MAC 20."""
    assert entry_size_max(5 << 20) + 4 + 20 + 32 + 20 <= 0xFFFFF
    assert entry_size_max(5 << 20) == ENTRY_SIZE_MAX
    assert entry_size_max(100_000) < 100_000


@pytest.mark.parametrize("root", ["", "journal", "/", "//a", "/a/", "/a//b", "/a/../b", "/zookeeper"])
def test_what_cannot_be_a_journals_znode_is_refused(root: str) -> None:
    with pytest.raises(InvalidArgument, match="/hdfsjournal"):
        check_root(root)


def test_a_root_may_have_several_levels() -> None:
    check_root("/hdfs/nn1/journal")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MetadataUnavailable("x"), JournalUnavailable),
        (MetadataOutcomeUnknown("x"), JournalUnavailable),
        (NotEnoughBookies("x"), JournalUnavailable),
        (EntryUnreadable("x"), JournalUnavailable),
        (NoSuchLedger("x"), SegmentUnreadable),
        (WrongPassword("x"), SegmentUnreadable),
        (ClientClosed("x"), JournalClosed),
        (AccessDenied("x"), JournalError),
    ],
)
def test_an_error_below_is_told_as_what_it_means(error: Exception, expected: type[JournalError]) -> None:
    with pytest.raises(JournalError, match=r"^doing this: x") as raised, told("doing this"):
        raise error
    assert type(raised.value) is expected
    assert raised.value.__cause__ is error


def test_an_error_of_the_journal_stays_as_it_is() -> None:
    error = TxIdSeen("seen")
    assert translated("doing this", error) is error


@pytest.mark.parametrize("error", [LedgerFencedOff("x"), LedgerClosed("x")])
def test_who_was_fenced_is_replaced(error: Exception) -> None:
    assert type(write_failure("a stream", error)) is WriterReplaced  # type: ignore[arg-type]


def test_any_other_failure_names_its_code() -> None:
    failed = write_failure("a stream", NotEnoughBookies("too few"))
    assert type(failed) is StreamFailed
    assert "Failed to write to bookkeeper; Error is (-6) too few" in str(failed)


def test_the_state_before_an_upgrade_comes_back() -> None:
    state = BeforeUpgrade(TxId(9), NamespaceInfo(7, "CID", "BP", ctime=3))
    assert parse_before_upgrade(state.format(), "/u") == state


@pytest.mark.parametrize(
    "data", [b"", b"lastTxId: \n", b"lastTxId: x\n", b"txId: 9\n", b"lastTxId: 9\n", b"lastTxId: 9\n-1"]
)
def test_a_damaged_state_is_told(data: bytes) -> None:
    with pytest.raises(SegmentUnreadable, match="/u"):
        parse_before_upgrade(data, "/u")
