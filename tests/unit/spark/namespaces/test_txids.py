"""Which transactions are folded, and what is said where that cannot be."""

from __future__ import annotations

import pytest

from bookkeeper.errors import ConfigurationError, InvalidArgument
from journalmgr.spark.namespaces.options import given_options
from journalmgr.spark.namespaces.txids import BaseMisfit, Head, NoBeginning, Seen, check_base, txids_to_fold

JOURNAL = "bookkeeper://zk1/edits"
BASE = "/snapshots/1"


def seen(begins: int | None, ends: int, namespace_id: int = 7) -> Seen:
    return Seen(JOURNAL, namespace_id, begins, ends)


def head(txid: int, namespace_id: int = 7, **fields: int) -> Head:
    return Head(namespace_id, JOURNAL, txid, 3, 16400, **fields)


def test_a_whole_journal_is_folded_from_its_first_transaction_to_the_end_or_the_one_asked_for() -> None:
    assert txids_to_fold(seen(1, 50), None, "", None) == range(1, 51)
    assert txids_to_fold(seen(1, 50), None, "", 20) == range(1, 21)
    assert list(txids_to_fold(seen(None, 0), None, "", None)) == []


def test_a_base_is_gone_on_from_at_the_next_transaction() -> None:
    assert txids_to_fold(seen(11, 50), head(10), BASE, None) == range(11, 51)
    assert txids_to_fold(seen(5, 50), head(10), BASE, 30) == range(11, 31)
    assert list(txids_to_fold(seen(None, 10), head(10), BASE, None)) == []
    assert list(txids_to_fold(seen(11, 50), head(10), BASE, 10)) == []


def test_a_journal_without_its_beginning_is_no_namespace() -> None:
    with pytest.raises(
        NoBeginning, match=r"begins with txid 31: transactions 1 to 30 .*Give base: .* txid 30 or later"
    ):
        txids_to_fold(seen(31, 50), None, "", None)
    with pytest.raises(NoBeginning, match="has none of them any more: transactions 1 to 50"):
        txids_to_fold(seen(None, 50), None, "", None)


def test_a_base_that_the_journal_does_not_go_on_from_is_refused() -> None:
    with pytest.raises(BaseMisfit, match=r"of txid 10, and .* begins with txid 31: transactions 11 to 30 are missing"):
        txids_to_fold(seen(31, 50), head(10), BASE, None)
    with pytest.raises(BaseMisfit, match=r"/snapshots/1 is of txid 60, and .* ends at txid 50"):
        txids_to_fold(seen(None, 50), head(60), BASE, None)


def test_a_txid_that_cannot_be_reached_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"at_txid=51: .* ends at txid 50"):
        txids_to_fold(seen(1, 50), None, "", 51)
    with pytest.raises(InvalidArgument, match="at_txid=0: txids begin at 1"):
        txids_to_fold(seen(1, 50), None, "", 0)
    with pytest.raises(InvalidArgument, match="at_txid=9: base /snapshots/1 is of txid 10 already"):
        txids_to_fold(seen(11, 50), head(10), BASE, 9)


def test_a_base_of_another_namespace_or_format_is_refused() -> None:
    check_base(head(10), BASE, seen(11, 50))
    with pytest.raises(BaseMisfit, match=r"of namespace id 8 .* belongs to namespace id 7"):
        check_base(head(10, namespace_id=8), BASE, seen(11, 50))
    with pytest.raises(BaseMisfit, match="its format is 2, and 1 is read here"):
        check_base(head(10, format=2), BASE, seen(11, 50))


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("startingTxid", "give base"),
        ("STARTINGOFFSETS", "give base"),
        ("endingtxid", "give at_txid"),
        ("format", "records are always read raw"),
        ("failOnDataLoss", "makes another namespace"),
        ("uri", "named by the argument uri"),
    ],
)
def test_options_that_the_pipeline_sets_itself_are_refused_with_what_to_do(word: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {word}: .*{remedy}"):
        given_options(JOURNAL, {word: "x"})


def test_other_options_go_to_the_format() -> None:
    assert given_options(JOURNAL, {"passwd": "secret", "minPartitions": 4}) == {
        "passwd": "secret",
        "minPartitions": "4",
        "journal": JOURNAL,
    }
