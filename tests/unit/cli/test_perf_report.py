"""The arithmetic of a measured cell, and that what is unknown is shown as unknown."""

import dataclasses
import json
from collections.abc import Callable

import pytest

from bookkeeper.cli.main import main
from bookkeeper.cli.perf.calibrate import Calibration
from bookkeeper.cli.perf.counters import BookieCounters
from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.cli.perf.measurement import Measurement
from bookkeeper.cli.perf.report import HEADER, Cell, print_cells, print_settings
from bookkeeper.cli.perf.worker import NewLedgers, Replication, Task
from bookkeeper.console.output import EXIT_USAGE

REPLICATION = Replication(3, 2, 2, "CRC32C")
TASK = Task(
    uri="zk://127.0.0.1/ledgers",
    outstanding=100,
    seconds=10.0,
    use_v2=True,
    new=NewLedgers(REPLICATION, entry_size=1000, count=1, warmup_entries=0),
)
READ = TASK.reading([3, 5, 8])
CALIBRATION = Calibration(
    echo_frames_per_s=200_000.0,
    fdatasync_p50_s=0.001,
    fdatasync_p99_s=0.002,
    append_records_per_s=300_000.0,
    interpreter="CPython",
)
BOOKIES = BookieCounters(cpu_s=2.0, syncs=1000.0, synced_records=400_000.0, reply_writes=4000.0, longest_turn_s=0.0123)


def cell_of(**changes: object) -> Cell:
    latencies = Latencies()
    latencies.add(0.005, 100)
    cell = Cell(
        job=TASK,
        clients=2,
        operations_per_s=50_000.0,
        latencies=latencies,
        client_cpu_us=3.0,
        client_writes_per_operation=0.01,
        all_operations=200_000,
        bookies=BOOKIES,
        calibration=CALIBRATION,
        ledger_ids=(7,),
        entry_size=1000.0,
        replications=(REPLICATION,),
    )
    return dataclasses.replace(cell, **changes)


def test_ratios_of_a_write() -> None:
    assert cell_of().ratios() == pytest.approx(
        {
            "copies_per_echo": 2 * 50_000 / 200_000,  # Qw copies travel per add
            "p50_per_fdatasync": pytest.approx(5.0, rel=0.01),
            "bookie_cpu_us": 10.0,
            "entries_per_sync": 400.0,
            "bookie_writes_per_operation": 0.02,
        }
    )


def test_a_read_moves_one_copy_and_syncs_nothing() -> None:
    ratios = cell_of(job=READ).ratios()
    assert ratios["copies_per_echo"] == 0.25
    assert ratios["entries_per_sync"] is None


def test_what_was_not_measured_is_unknown_and_not_zero() -> None:
    ratios = cell_of(bookies=None, calibration=None).ratios()
    assert set(ratios.values()) == {None}
    without_metrics = cell_of(bookies=BookieCounters(2.0, None, None, None)).ratios()
    assert without_metrics["bookie_cpu_us"] == 10.0
    assert without_metrics["entries_per_sync"] is None
    assert without_metrics["bookie_writes_per_operation"] is None


def test_megabytes_are_payload() -> None:
    assert cell_of().megabytes_per_s == 50.0


def test_the_table_has_a_row_a_cell_and_dashes_for_the_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    print_cells([cell_of(), cell_of(bookies=None, calibration=None)])
    header, known, unknown, *explanation = capsys.readouterr().out.splitlines()
    assert all(name in header for name in HEADER)
    assert "12.3" in known.split()
    assert known.split()[:6] == ["write", "1000", "200", "2", "50,000", "50.0"]
    assert unknown.split()[-2:] == ["-", "-"]
    explained = "\n".join(explanation)
    assert all(f"{name}:" in explained for name in ("v", "x echo", "p50/sync", "per sync", "bookie w/op", "turn"))


def test_nothing_is_explained_that_the_table_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    print_cells([cell_of(), cell_of(job=READ)])
    assert "batches" not in capsys.readouterr().out


def test_a_read_is_reported_by_what_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    other = Replication(2, 2, 1, "MAC")
    read = cell_of(job=READ, entry_size=41.6, replications=(other, REPLICATION))
    print_settings(read)
    print_cells([read])
    settings, _, _, row, *_ = capsys.readouterr().out.splitlines()
    assert settings == (
        "E=2 Qw=2 Qa=1 digest MAC and E=3 Qw=2 Qa=2 digest CRC32C, 2 client processes, 3 ledgers each, 10 s a cell"
    )
    assert row.split()[:2] == ["read", "42"]
    value = read.to_json()
    assert (value["entry_size"], value["write_quorum"], value["ensemble"], value["digest"]) == (41.6, 2, None, None)
    assert value["megabytes_per_s"] == pytest.approx(50_000 * 41.6 / 1e6)


def test_json_round_trips_and_names_its_calibration() -> None:
    value = json.loads(json.dumps(cell_of().to_json()))
    assert value["outstanding"] == 200
    assert value["calibration"]["echo_frames_per_s"] == 200_000.0
    assert set(value["latency_ms"]) == {"p50", "p95", "p99", "p99.9", "max"}
    assert value["entries_per_sync"] == 400.0
    assert value["bookie_longest_turn_ms"] == pytest.approx(12.3)


def test_counters_between_two_moments() -> None:
    later = BookieCounters(cpu_s=3.5, syncs=1100.0, synced_records=None, reply_writes=4001.0)
    assert later.since(BOOKIES) == BookieCounters(1.5, 100.0, None, 1.0)


def test_reading_a_task_s_ledgers_names_how_many() -> None:
    assert (TASK.kind, TASK.ledger_count) == ("write", 1)
    assert (READ.kind, READ.ledger_ids, READ.ledger_count, READ.outstanding) == ("read", (3, 5, 8), 3, 100)


@pytest.mark.parametrize("task", [TASK, dataclasses.replace(READ, password="secret", defines={"zkTimeout": "900"})])
def test_a_task_survives_the_command_line(task: Task) -> None:
    assert Task.from_json(task.to_json()) == task


def test_the_first_quarter_of_a_run_is_not_counted(advance: Callable[[float], None]) -> None:
    measurement = Measurement(8.0)
    writes = iter([10, 25])
    measurement.start(lambda: next(writes))
    measurement.add(1000, 100.0, 101.9, payload_size=1000)
    advance(2.0)
    measurement.add(50, 101.0, 102.0, payload_size=50)
    advance(4.0)
    measurement.add(100, 105.5, 106.0, payload_size=700)
    result = measurement.stop()
    # Counted from the first acknowledgement after the quarter, which only starts the clock.
    assert result["operations"] == 100
    assert result["payload_size"] == 700
    assert result["seconds"] == 4.0
    assert result["all_operations"] == 1150
    assert result["writes"] == 15
    assert Latencies.merged([result["latencies"]]).percentile(50) == pytest.approx(0.5, rel=0.011)


@pytest.mark.parametrize(
    "words",
    [
        ["write", "-throttle", "0"],
        ["write", "-ledgers", "0"],
        ["read", "-ledger", "1", "-ledgers", "2"],
        ["write", "-useV2", "perhaps"],
        ["read"],
        ["bench", "--versions", "2,4"],
        ["bench", "--windows", "0"],
        ["bench", "--bookies", "2"],
        ["bench", "--sizes", "128,9000000"],
        ["bench", "-o", "journalMaxSizeMb=5"],
        ["write", "-time", "0"],
        ["write", "-time", "-1"],
        ["read", "-ledger", "1", "-time", "nan"],
        ["write", "-entrysize", "9000000"],
        ["write", "-entrysize", "-1"],
        ["write", "-quorum", "4"],
        ["write", "-ensemble", "1", "-quorum", "2"],
        ["write", "-ackQuorum", "3"],
        ["write", "-warmupMessages", "-1"],
        ["read", "-ledger", "-7"],
        *(["read", "-ledger", "1", option, "2"] for option in ("-entrysize", "-ensemble", "-quorum", "-ackQuorum")),
        ["read", "-ledger", "1", "-warmupMessages", "2"],
        ["read", "-ledger", "1", "--digest", "mac"],
    ],
)
def test_what_cannot_be_measured_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perf", *words]) == EXIT_USAGE
    assert capsys.readouterr().out == ""


def test_what_was_read_in_batches_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures of batch reads and of reads entry by entry are not to be taken for each other."""
    batched, mixed, plain = (cell_of(job=READ, batched_operations=count) for count in (200_000, 50_000, 0))
    print_cells([batched, mixed, plain])
    _, *rows = capsys.readouterr().out.splitlines()
    assert sum(row.startswith("batches: ") for row in rows) == 1
    assert rows[0].startswith("read, batches 100% ")
    assert rows[1].startswith("read, batches 25% ")
    assert rows[2].startswith("read ")
    assert "batches" not in rows[2]
    assert [cell.to_json()["batched_share"] for cell in (batched, mixed, plain)] == [1.0, 0.25, 0.0]
