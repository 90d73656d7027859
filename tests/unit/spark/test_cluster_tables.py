"""Tables of the format bookkeeper.cluster: ids cut into shares, rows out of metadata, which tables there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ConfigurationError
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.model import (
    BookieId,
    BookieServiceInfo,
    DigestType,
    Endpoint,
    EntryId,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Versioned,
)
from bookkeeper.spark import cluster
from bookkeeper.spark.cluster import catalogue, entry_logs, held_ledgers
from bookkeeper.spark.cluster.bookies import COOKIES, cookie_row, http_of
from bookkeeper.spark.cluster.catalogue import OWN, cluster_help, table_called, tables
from bookkeeper.spark.cluster.entry_logs import ENTRY_LOGS, NAMES_ALONE, NOT_SWEPT, ask_logs, log_rows, name_rows
from bookkeeper.spark.cluster.held_ledgers import ask_ledgers
from bookkeeper.spark.cluster.http_bookies import TIMEOUT_S
from bookkeeper.spark.cluster.id_runs import IdRuns, ids_of
from bookkeeper.spark.cluster.ledgers import FRAGMENTS, LEDGERS, fragment_rows, ledger_rows, owner_of
from bookkeeper.spark.cluster.table import TIME_MAX_MS, ClusterTable, Row

B1, B2, B3 = (BookieId(f"b{number}:3181") for number in (1, 2, 3))


def named(table: ClusterTable, row: Row) -> dict[str, object]:
    return dict(zip((column.name for column in table.columns), row, strict=True))


# --- ids


@given(st.sets(st.integers(0, 200) | st.integers(2**62, 2**62 + 50)), st.integers(1, 40), st.integers(1, 40))
def test_every_id_is_in_one_share_in_order_and_no_share_is_too_large(ids: set[int], most: int, least: int) -> None:
    runs = IdRuns()
    ordered = sorted(ids)
    runs.add(ordered[: len(ordered) // 2])
    runs.add(ordered[len(ordered) // 2 :])
    shares = [list(ids_of(share)) for share in runs.shares(most, least)]
    assert [each for share in shares for each in share] == ordered
    assert runs.count == len(ordered)
    assert all(0 < len(share) <= most for share in shares)
    size = max(1, min(most, -(-len(ordered) // least)))
    assert len(shares) == -(-len(ordered) // size)


def test_a_million_consecutive_ids_are_one_run() -> None:
    runs = IdRuns()
    runs.add(range(1_000_000))
    [share] = runs.shares(1_000_000)
    assert list(share) == [0, 999_999]


def test_ids_that_do_not_ascend_are_refused() -> None:
    runs = IdRuns()
    with pytest.raises(ValueError, match="5 comes after 5"):
        runs.add([5, 5])


# --- ledgers


def ledger(**changes: object) -> LedgerMetadata:
    values: dict[str, object] = {
        "ensemble_size": 2,
        "write_quorum": 2,
        "ack_quorum": 1,
        "fragments": (Fragment(EntryId(0), (B1, B2)), Fragment(EntryId(10), (B1, B3))),
        "password": b"secret",
        **changes,
    }
    return LedgerMetadata(**values)  # type: ignore[arg-type]


def closed(last: int, **changes: object) -> LedgerMetadata:
    return ledger(state=LedgerState.CLOSED, last_entry_id=EntryId(last), length=7, **changes)


def test_a_closed_ledger_has_an_end_and_an_open_one_none() -> None:
    [row] = ledger_rows(3, closed(14, ctime_ms=1000, custom={"application": b"pulsar", "component": b"\xff"}))
    found = named(LEDGERS, row)
    assert (found["ledger_id"], found["state"], found["last_entry_id"], found["length"]) == (3, "CLOSED", 14, 7)
    assert (found["fragments"], found["digest_type"], found["created"]) == (2, "CRC32C", 1000)
    assert (found["application"], found["component"]) == ("pulsar", None)  # no text; custom has the bytes
    assert found["custom"] == [("application", b"pulsar"), ("component", b"\xff")]
    [row] = ledger_rows(4, ledger())
    found = named(LEDGERS, row)
    assert (found["state"], found["last_entry_id"], found["length"]) == ("OPEN", None, None)


def test_no_row_has_the_password() -> None:
    for metadata in (ledger(), closed(3)):
        for row in [*ledger_rows(1, metadata), *fragment_rows(1, metadata)]:
            assert "secret" not in repr(row)


def test_a_time_that_no_calendar_has_is_unknown() -> None:
    [row] = ledger_rows(1, ledger(ctime_ms=TIME_MAX_MS + 1))
    assert named(LEDGERS, row)["created"] is None


def test_a_ledger_older_than_digests_says_so() -> None:
    [row] = ledger_rows(1, ledger(digest_type=None, password=None, format_version=1))
    assert named(LEDGERS, row)["digest_type"] is None
    [row] = ledger_rows(1, ledger(digest_type=DigestType.MAC))
    assert named(LEDGERS, row)["digest_type"] == "MAC"


def test_the_owner_is_whom_custom_metadata_names_first() -> None:
    assert owner_of({}) is None
    assert owner_of({"pulsar/managed-ledger": b"t/n/persistent/x"}) == "t/n/persistent/x"
    assert owner_of({"spark.job": b"j", "owner": b"me"}) == "me"
    assert owner_of({"owner": b"\xff"}) is None


@pytest.mark.parametrize(
    ("metadata", "ends"),
    [
        (ledger(), [(0, 9, 10), (10, None, None)]),
        (closed(14), [(0, 9, 10), (10, 14, 5)]),
        (closed(9), [(0, 9, 10), (10, 9, 0)]),
        (closed(-1, fragments=(Fragment(EntryId(0), (B1, B2)),)), [(0, -1, 0)]),
    ],
    ids=["open", "closed", "closed before its last fragment", "closed and empty"],
)
def test_fragments_end_where_the_next_begins(
    metadata: LedgerMetadata, ends: list[tuple[int, int | None, int | None]]
) -> None:
    found = [named(FRAGMENTS, row) for row in fragment_rows(5, metadata)]
    assert [(each["first_entry_id"], each["last_entry_id"], each["entries"]) for each in found] == ends
    assert [each["index"] for each in found] == list(range(len(ends)))
    assert found[0]["bookies"] == [B1, B2]


# --- bookies


def test_a_cookie_that_cannot_be_read_is_a_row_with_its_reason() -> None:
    found = named(COOKIES, cookie_row(B1, Versioned(b"nonsense", 4)))
    assert (found["bookie"], found["version"], found["instance_id"]) == (B1, 4, None)
    assert "not a cookie" in str(found["problem"])


def test_index_directories_are_the_ledger_directories_where_a_cookie_names_none() -> None:
    cookie = Cookie(B1, ("/j",), ("/a", "/b"), "instance")
    found = named(COOKIES, cookie_row(B1, Versioned(cookie.format(), 0)))
    assert found["index_directories"] == ["/a", "/b"]
    assert found["problem"] is None


def test_http_is_where_the_registration_says() -> None:
    rpc = Endpoint("bookie", "h", 3181, "bookie-rpc")
    assert http_of(None) is None
    assert http_of(BookieServiceInfo((rpc,))) is None
    assert http_of(BookieServiceInfo((rpc, Endpoint("httpserver", "h", 8080, "http")))) == ("h", 8080)


# --- entry logs


def told_log(**changes: object) -> dict[str, object]:
    log = {"id": 3, "size": 10, "recordBytes": 8, "liveBytes": 2, "liveLedgers": 1, "written": False, "leftAlone": ""}
    return {"swept": 7, "entryLogs": [{**log, **changes}]}


def test_a_log_that_was_not_swept_has_a_size_and_nothing_else() -> None:
    [row] = log_rows("b", told_log(recordBytes=None, liveBytes=None, liveLedgers=None))
    found = named(ENTRY_LOGS, row)
    assert (found["log_id"], found["size_bytes"], found["live_bytes"], found["live_ratio"]) == (3, 10, None, None)
    assert (found["as_of"], found["problem"]) == (None, NOT_SWEPT)


def test_a_log_without_records_has_nothing_live() -> None:
    [row] = log_rows("b", told_log(recordBytes=0, liveBytes=0))
    assert (named(ENTRY_LOGS, row)["live_ratio"], named(ENTRY_LOGS, row)["problem"]) == (0.0, None)


def test_a_bookie_that_tells_names_has_rows_without_sizes() -> None:
    found = [named(ENTRY_LOGS, row) for row in name_rows("b", {"entrylog files": "a.log\t0.log\tlastId\t"})]
    assert [(each["log_id"], each["size_bytes"], each["problem"]) for each in found] == [
        (0, None, NAMES_ALONE),
        (10, None, NAMES_ALONE),
    ]


@pytest.mark.parametrize("answer", [None, [], {"entryLogs": [{}]}, {"swept": 1}, 5, {"swept": 1, "entryLogs": 3}])
def test_an_answer_of_another_shape_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="another shape"):
        log_rows("b", answer)
    with pytest.raises(ValueError, match="another shape"):
        name_rows("b", answer)


@pytest.mark.parametrize(("module", "ask"), [(entry_logs, ask_logs), (held_ledgers, ask_ledgers)])
def test_a_bookie_may_answer_after_its_collectors_current_work(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, ask: Callable[..., Iterator[list[Row]]]
) -> None:
    limits_s: list[float | None] = []
    monkeypatch.setattr(module, "get_json", lambda *_, timeout_s=None, **__: limits_s.append(timeout_s))
    assert list(ask("b:1", ("h", 1)))
    assert set(limits_s) == {TIMEOUT_S}


# --- which tables there are


def test_a_table_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigurationError, match=r"no table 'bokies'; did you mean bookies\? There are bookies, .*fragments"
    ):
        table_called("bokies")
    with pytest.raises(ConfigurationError, match=r"no table 'qqqqqq'; there are bookies, "):
        table_called("qqqqqq")
    with pytest.raises(ConfigurationError, match=r"option table of format bookkeeper.cluster is missing"):
        table_called(None)
    assert table_called(" Ledgers ") is LEDGERS


def points(monkeypatch: pytest.MonkeyPatch, **named_points: str) -> None:
    found = [EntryPoint(name, value, catalogue.GROUP) for name, value in named_points.items()]
    monkeypatch.setattr(catalogue, "entry_points", lambda group: found if group == catalogue.GROUP else [])


def test_a_package_adds_a_table_and_cannot_replace_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = "bookkeeper.spark.cluster.ledgers:"
    points(monkeypatch, bookies=f"{here}LEDGERS", extra=f"{here}LEDGERS", gone="no.such.module:TABLE")
    assert table_called("bookies").name == "bookies"
    with pytest.raises(ConfigurationError, match=r"extra of bookkeeper.spark.tables .* is no table of that name"):
        table_called("extra")
    with pytest.raises(ConfigurationError, match=r"table gone \(no.such.module:TABLE\) cannot be had"):
        table_called("gone")


def test_help_tells_each_table_and_each_column(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch)
    overview = cluster_help()
    for table in tables():
        assert f"  {table.name} " in overview
        told = cluster_help(table.name)
        assert all(f"  {column.name} " in told and column.meaning in told for column in table.columns)
    assert "minPartitions" in cluster_help("ledgers")


def test_the_package_lists_the_columns_of_each_table_as_they_are() -> None:
    listed = " ".join(str(cluster.__doc__).split())
    for table in OWN:
        assert f"{table.name} {', '.join(column.name for column in table.columns)}" in listed
