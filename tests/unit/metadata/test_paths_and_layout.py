"""Ledger paths and LAYOUT as Apache writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidMetadata, LayoutMismatch, MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.cluster.layout import Layout, LayoutKind, parse_layout
from bookkeeper.metadata.ledgers.paths import (
    LEDGER_ID_LIMITS,
    is_any_parent_name,
    is_parent_name,
    is_special_name,
    ledger_id_of,
    ledger_path,
)

FLAT, HIERARCHICAL = LayoutKind.FLAT, LayoutKind.HIERARCHICAL
LONG, LEGACY = LayoutKind.LONG_HIERARCHICAL, LayoutKind.LEGACY_HIERARCHICAL

# bookkeeper/wire/FORMATS.md 4.4.
PATHS = [
    (0, "/L0000000000", "/00/0000/L0000", "/000/0000/0000/0000/L0000"),
    (1, "/L0000000001", "/00/0000/L0001", "/000/0000/0000/0000/L0001"),
    (12345, "/L0000012345", "/00/0001/L2345", "/000/0000/0000/0001/L2345"),
    (2147483646, "/L2147483646", "/21/4748/L3646", "/000/0000/0021/4748/L3646"),
    (2147483647, "/L2147483647", "/000/0000/0021/4748/L3647", "/000/0000/0021/4748/L3647"),
    (4294967296, "/L4294967296", "/000/0000/0042/9496/L7296", "/000/0000/0042/9496/L7296"),
    (9223372036854775807, None, "/922/3372/0368/5477/L5807", "/922/3372/0368/5477/L5807"),
]


@pytest.mark.parametrize(("ledger_id", "flat", "hierarchical", "long"), PATHS)
def test_paths_are_apaches(ledger_id: int, flat: str | None, hierarchical: str, long: str) -> None:
    for kind, path in ((FLAT, flat), (HIERARCHICAL, hierarchical), (LONG, long)):
        if path is not None:
            assert ledger_path(kind, ledger_id) == path
            assert ledger_id_of(kind, path) == ledger_id


@given(st.sampled_from(LayoutKind), st.integers(0, 2**63 - 1))
def test_a_path_leads_back_to_its_id(kind: LayoutKind, ledger_id: int) -> None:
    ledger_id %= LEDGER_ID_LIMITS[kind] + 1
    path = ledger_path(kind, ledger_id)
    assert ledger_id_of(kind, path) == ledger_id
    assert is_parent_name(kind, path.split("/")[1])


@pytest.mark.parametrize(("kind", "ledger_id"), [(FLAT, -1), (HIERARCHICAL, 2**63), (LEGACY, 10**10), (LONG, -5)])
def test_an_id_without_a_place_is_refused(kind: LayoutKind, ledger_id: int) -> None:
    with pytest.raises(InvalidMetadata, match=str(ledger_id)):
        ledger_path(kind, ledger_id)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (HIERARCHICAL, "/00/0000/0001"),
        (HIERARCHICAL, "/21/4748/L3647"),  # 2147483647 has the long path
        (HIERARCHICAL, "/000/0000/0000/0000/L0001"),
        (HIERARCHICAL, "/00/00000/L001"),
        (HIERARCHICAL, "/99/9999/L9999999999999"),
        (LONG, "/999/9999/9999/9999/L9999"),
        (FLAT, "/L00000000001"),
        (FLAT, "/L٣٣٣٣٣٣٣٣٣٣"),
        (FLAT, ""),
        (FLAT, "/"),
    ],
)
def test_a_path_that_apache_would_not_make_is_refused(kind: LayoutKind, path: str) -> None:
    with pytest.raises(InvalidMetadata):
        ledger_id_of(kind, path)


def test_special_names_are_never_ledgers() -> None:
    for name in (
        "available",
        "cookies",
        "LAYOUT",
        "INSTANCEID",
        "underreplication",
        "idgen",
        "idgen-long",
        "ID-0000000007",
    ):
        assert is_special_name(name)
        assert not is_any_parent_name(name)
    assert is_special_name("disableHealthCheck")
    assert not is_special_name("L0000000001")


def test_layout_is_apaches_to_the_byte() -> None:
    data = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert Layout(HIERARCHICAL).format() == data
    for kind in LayoutKind:
        assert parse_layout(Layout(kind).format(), "/ledgers/LAYOUT") == Layout(kind)


@pytest.mark.parametrize(("name", "kind"), [(b"flat", FLAT), (b"hierarchical", HIERARCHICAL)])
def test_layout_format_1_names_the_type(name: bytes, kind: LayoutKind) -> None:
    assert parse_layout(b"1\n" + name + b":1", "/ledgers/LAYOUT").kind is kind


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", MetadataCorrupt),
        (b"2", MetadataCorrupt),
        (b"2\nx", MetadataCorrupt),
        (b"2\na:b:c", MetadataCorrupt),
        (b"two\nx:1", MetadataCorrupt),
        (b"0\nflat:1", MetadataCorrupt),
        (b"\xff\nflat:1", MetadataCorrupt),
        (b"3\nflat:1", MetadataTooNew),
        (b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1", LayoutMismatch),
        (b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:2", LayoutMismatch),
        (b"2\nflat:1", LayoutMismatch),
    ],
)
def test_a_wrong_layout_is_refused_and_the_error_names_its_place(data: bytes, expected: type[Exception]) -> None:
    with pytest.raises(expected, match="/ledgers/LAYOUT") as raised:
        parse_layout(data, "/ledgers/LAYOUT")
    assert type(raised.value) is expected
