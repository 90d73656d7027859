"""The plan of the benchmark of hubs and their peers, and what it does before anything is measured."""

from pathlib import Path

import pytest

from bookkeeper.cli.perf.calibrate import Calibration
from tests.benchmarks.apache.machine import code_id
from tests.benchmarks.apache.records import Record, Records
from tests.benchmarks.hubs import main as program
from tests.benchmarks.hubs.loads.load import BODY_SIZE, Load, body, parsed
from tests.benchmarks.hubs.main import main, settings
from tests.benchmarks.hubs.peers.peer import Peer, fetch
from tests.benchmarks.hubs.plan import (
    DEFAULT_CELLS,
    DEFAULT_SECONDS,
    GENUINE,
    LATENCY_GOALS,
    MANY_TOPICS,
    NATS,
    ONE_TOPIC,
    OURS,
    P50_GOALS,
    RATE_GOALS,
    REDIS,
    SIDES,
    Plan,
    Side,
    bytes_needed,
    cells_of,
    chosen_cells,
    repetitions_of,
    seconds_of,
    sides_of,
)
from tests.support.java_programs import Missing

WHOLE = Plan(DEFAULT_CELLS, 5, DEFAULT_SECONDS)
JAVA = Path(__file__).parents[2] / "benchmarks" / "hubs" / "java" / "HubLoad.java"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs are looked for and put here."""
    path = tmp_path / "cache"
    monkeypatch.setattr(program, "CACHE", path)
    return path


def test_the_cells_are_those_of_the_goals() -> None:
    names = [cell.name for cell in DEFAULT_CELLS]
    assert names == [
        "publish:1x1", "publish:1x100", "publish:1x1000", "publish:100x100", "publish:100x1000",
        "deliver:1x1", "deliver:1x100", "deliver:1x1000", "deliver:10x1000", "paced:12000",
        "drain:1", "drain:100", "acquire", "publish:10000x1000",
    ]  # fmt: skip
    goals = {name for of_peer in RATE_GOALS.values() for name in of_peer}
    assert (goals | P50_GOALS.keys() | LATENCY_GOALS.keys() | {MANY_TOPICS, ONE_TOPIC}) <= set(names)


def test_a_goal_is_held_where_both_are_measured() -> None:
    sides = {cell.name: cell.sides for cell in DEFAULT_CELLS}
    for peer, goals in RATE_GOALS.items():
        assert all({OURS, peer} <= set(sides[name]) for name in goals)
    assert all({OURS, GENUINE} <= set(sides[name]) for name in P50_GOALS)


def test_goals_of_the_peers() -> None:
    assert {name: goal.target for name, goal in RATE_GOALS[REDIS].items()} == {
        "publish:1x1": 0.75, "publish:1x100": 0.8, "publish:1x1000": 1.0, "deliver:1x1000": 0.9, "deliver:10x1000": 1.0,
    }  # fmt: skip
    assert {name: goal.target for name, goal in RATE_GOALS[NATS].items()} == {
        "publish:1x1": 1.5, "publish:1x100": 4.0, "publish:1x1000": 5.0, "deliver:1x1000": 4.0, "deliver:10x1000": 4.0,
    }  # fmt: skip
    assert RATE_GOALS[GENUINE]["publish:1x1000"].target == 6.0


def test_words_of_a_load_are_read_back() -> None:
    for cell in DEFAULT_CELLS:
        load = cell.load(2.5, "t7")
        assert parsed(load.words()) == load
    assert DEFAULT_CELLS[3].load(1.0, "a").names[:2] == ["a-0", "a-1"]
    with pytest.raises(ValueError, match="invalid literal"):
        parsed(["publish", "one", "1", "0", "0", "0", "1", "2", "t"])


def test_the_genuine_driver_takes_the_same_words_and_sizes() -> None:
    text = JAVA.read_text()
    words = Load("publish", 1, 2, 3, 4.0, 5, 6.0, 7.0, "t").words()
    positions = {"kind": 0, "outstanding": 2, "readers": 3, "perSecond": 4, "messages": 5, "warming": 6, "seconds": 7,
                 "tag": 8}  # fmt: skip
    for name, position in positions.items():
        [line] = [each for each in text.splitlines() if each.strip().startswith(f"{name} = ")]
        assert f"words[{position + 1}]" in line, line
    assert len(words) == 9
    assert f"BODY_SIZE = {BODY_SIZE};" in text
    assert len(body(1.0)) == BODY_SIZE


def test_each_side_begins_in_turn() -> None:
    rounds = [each for each in WHOLE.rounds() if each.cell.name == "publish:1x1"]
    assert {each.sides[0] for each in rounds} == set(SIDES)
    assert all(set(each.sides) == set(SIDES) for each in rounds)


def test_repetitions_are_groups_with_all_cells() -> None:
    groups = repetitions_of(list(WHOLE.rounds()))
    assert [[each.repetition for each in group] for group in groups] == [[n] * len(DEFAULT_CELLS) for n in range(5)]


def test_who_is_missing_is_not_measured() -> None:
    cells = cells_of({"redis", "kafka"})
    assert all(side.name not in ("redis", "kafka") for cell in cells for side in cell.sides)
    assert [cell.name for cell in cells] == [cell.name for cell in DEFAULT_CELLS]
    assert cells_of({side.name for side in SIDES}) == ()


def test_only_who_is_measured_is_started() -> None:
    assert sides_of(list(Plan(chosen_cells("publish:10000*"), 1, 1.0).rounds())) == (OURS, REDIS)
    assert sides_of(list(Plan(chosen_cells("acquire", ["nats"]), 1, 1.0).rounds())) == (OURS, GENUINE, REDIS)


def test_the_table_takes_less_than_an_hour_and_what_is_done_no_time() -> None:
    rounds = list(WHOLE.rounds())
    assert 30 * 60 < seconds_of(WHOLE, rounds) < 60 * 60
    assert seconds_of(WHOLE, rounds[20:]) < seconds_of(WHOLE, rounds)
    assert seconds_of(WHOLE, []) == 0


def test_disk_space_is_that_of_one_repetition() -> None:
    rounds = list(WHOLE.rounds())
    one = [each for each in rounds if each.repetition == 0]
    assert bytes_needed(WHOLE, []) == 0
    assert bytes_needed(WHOLE, one[:3]) < bytes_needed(WHOLE, one) == bytes_needed(WHOLE, rounds) < 64 << 30


# --- the command


class Present:
    """A peer that is here, and is not started."""

    durability = "synced by two"

    def serve(self, directory: Path) -> object:
        raise AssertionError(directory)


def absent() -> Peer:
    raise Missing("redis-server: there is no apt-get")


def test_peers_are_named_with_their_durability_and_the_missing_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    present = dict.fromkeys(SIDES, Present)
    monkeypatch.setattr(program, "FIND", {**present, REDIS: absent})
    peers, skipped = program.found(SIDES)
    assert [side.name for side in peers] == ["ours", "genuine", "nats", "kafka"]
    assert skipped == {"redis": "redis-server: there is no apt-get"}
    told = settings(WHOLE, peers)
    assert told["nats"] == "synced by two"
    assert "redis" not in told


def test_who_has_no_client_of_a_registry_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"^redis-server: there is no no-such-program$"):
        fetch("redis-server", ["no-such-program", "download"], tmp_path)


def test_the_calibration_is_told_in_words() -> None:
    found = Calibration(echo_frames_per_s=200_000.4, fdatasync_p50_s=8e-5, fdatasync_p99_s=0.004,
                        append_records_per_s=3e6, interpreter="any")  # fmt: skip
    assert program.calibration_text(found) == (
        "200,000 echoes/s, fdatasync p50 0.08 ms p99 4.00 ms, 3,000,000 records/s appended"
    )


def test_every_side_has_a_way_to_be_found() -> None:
    assert set(program.FIND) == set(SIDES)


def recorded(cache: Path, **more: object) -> list[Record]:
    records = Records(cache / "earlier.jsonl")
    plan = {"cells": "acquire", "repetitions": 2, "seconds": 1.0, "code": code_id(program.PACKAGES)}
    records.add({"kind": "run", "plan": plan, **more})
    return records.all


def test_a_run_is_resumed_as_it_was_planned(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(cache, skipped={"nats": "there is no go"})
    assert main(["plan", "--id", "earlier"]) == 0
    out = capsys.readouterr().out
    assert "1 cell, 2 repetitions, 2 rounds to do with 6 measurements" in out
    assert "  acquire: ours, genuine, redis\n" in out


def test_a_run_is_not_resumed_without_a_side_that_it_measured(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(cache, skipped={})
    present: dict[Side, object] = dict.fromkeys(SIDES, Present)
    monkeypatch.setattr(program, "FIND", {**present, REDIS: absent})
    assert main(["run", "--id", "earlier"]) == 1
    assert "run earlier measured redis, which is not to be had now" in capsys.readouterr().err


def test_a_new_run_has_seconds_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 0
    assert "14 cells, 5 repetitions, 70 rounds" in capsys.readouterr().out


def test_unknown_cells_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--cells", "write:*"]) == 1
    assert "bench-hubs: no cell is named 'write:*'; the cells: publish:1x1" in capsys.readouterr().err
