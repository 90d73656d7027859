"""The plan of the benchmark against Apache: which cells, which sides, in which order."""

import pytest

from tests.benchmarks.apache.plan import (
    APACHE,
    CROSSED,
    OURS,
    SIDES,
    NothingChosen,
    Plan,
    bytes_max,
    bytes_to_start,
    chosen_cells,
    default_cells,
    preparation_bytes,
    reserve_bytes,
    rotated,
    seconds_of,
    warm_ups,
)

WHOLE = Plan(default_cells(), 5, 4.0)
TABLE_MINUTES_MAX = 75


def test_every_size_window_and_version_is_written() -> None:
    names = {cell.name for cell in default_cells()}
    for size in (128, 1024, 10240):
        for outstanding in (1, 100, 1000, 5000):
            for version in (2, 3):
                assert f"write:{size}x{outstanding}:v{version}" in names


def test_names_are_unique_and_the_crossed_cells_exist() -> None:
    names = [cell.name for cell in default_cells()]
    assert len(names) == len(set(names))
    assert set(CROSSED) <= set(names)


def test_the_tuned_cluster_is_measured_with_few_outstanding_only() -> None:
    tuned = {cell.shape for cell in default_cells() for side in cell.sides if side.name == "tuned"}
    assert tuned == {"1", "100"}


def test_batch_reads_are_v2_on_two_bookies() -> None:
    batches = [cell for cell in default_cells() if cell.is_batch]
    assert batches
    assert {(cell.version, cell.replication) for cell in batches} == {(2, (2, 2, 2))}


def test_shapes_of_reads_are_ranges_and_their_sizes() -> None:
    ranges = {cell.shape: cell.ranges for cell in default_cells() if cell.kind == "read"}
    assert ranges == {
        "single": (1, 1),
        "1x100": (1, 100),
        "10x100": (10, 100),
        "batch-1x100": (1, 100),
        "batch-10x100": (10, 100),
    }


def test_globs_choose_cells_in_the_order_of_the_table() -> None:
    chosen = [cell.name for cell in chosen_cells("read:128:single:*, write:128x1000:v2")]
    assert chosen == ["write:128x1000:v2", "read:128:single:v2"]
    assert chosen_cells("") == default_cells()


def test_a_glob_without_a_cell_is_refused_with_the_names() -> None:
    with pytest.raises(NothingChosen, match=r"'write:129x1:v2'.*start:bookie"):
        chosen_cells("write:*,write:129x1:v2")


def test_only_the_clusters_that_are_needed_run() -> None:
    assert Plan(chosen_cells("write:*x1000:v2"), 1, 1.0).clusters == ("ours", "apache")
    assert WHOLE.clusters == ("ours", "apache", "tuned")


@pytest.mark.parametrize("count", range(1, len(SIDES) + 1))
def test_every_side_comes_first_before_any_does_so_again(count: int) -> None:
    orders = [rotated(SIDES[:count], by) for by in range(2 * count)]
    assert all(sorted(order, key=SIDES.index) == list(SIDES[:count]) for order in orders)
    assert {order[0] for order in orders[:count]} == set(SIDES[:count])


def test_two_sides_alternate_between_repetitions() -> None:
    cells = chosen_cells("write:10240x5000:v2")
    firsts = [each.sides[0] for each in Plan(cells, 4, 1.0).all_rounds()]
    assert sorted(side.name for side in firsts) == ["apache", "apache", "ours", "ours"]


def test_sizes_are_outermost_so_that_each_is_warmed_up_once() -> None:
    sizes = [each.cell.size for each in WHOLE.all_rounds()]
    assert sizes == sorted(sizes)
    assert len(sizes) == len(WHOLE.cells) * WHOLE.repetitions


@pytest.mark.parametrize("size", [128, 1024, 10240])
def test_every_side_that_writes_is_warmed_up_for_15_seconds(size: int) -> None:
    cells = [cell for cell in default_cells() if cell.size == size]
    found = warm_ups(cells)
    for side in (OURS, APACHE):
        assert sum(each.seconds for each in found if each.side is side and each.cell.kind == "write") == 15.0
    assert {each.cell.version for each in found if each.side is APACHE and each.cell.kind == "write"} == {2, 3}


def test_the_whole_table_fits_its_time() -> None:
    assert seconds_of(WHOLE, list(WHOLE.all_rounds())) < TABLE_MINUTES_MAX * 60


def test_what_is_done_already_takes_no_time() -> None:
    rounds = list(WHOLE.all_rounds())
    assert seconds_of(WHOLE, rounds[len(rounds) // 2 :]) < seconds_of(WHOLE, rounds)


def test_disk_space_grows_with_the_entries_and_reads_need_none() -> None:
    by_name = {each.cell.name: each for each in WHOLE.rounds(10240)}
    small = {each.cell.name: each for each in WHOLE.rounds(128)}
    assert bytes_max(by_name["write:10240x1000:v2"], 4.0) > bytes_max(small["write:128x5000:v2"], 4.0)
    assert bytes_max(by_name["read:10240:single:v2"], 4.0) == 0
    assert preparation_bytes(WHOLE, 10240) > preparation_bytes(WHOLE, 128) > preparation_bytes(WHOLE, 0)


def test_the_disk_must_hold_the_largest_step_and_not_the_whole_run() -> None:
    rounds = list(WHOLE.all_rounds())
    needed = bytes_to_start(WHOLE, rounds)
    assert needed == max(
        preparation_bytes(WHOLE, each.cell.size) + bytes_max(each, WHOLE.seconds) for each in WHOLE.rounds(10240)
    )
    assert needed < sum(bytes_max(each, WHOLE.seconds) for each in rounds)
    assert bytes_to_start(WHOLE, []) == 0


def test_a_share_of_a_large_disk_stays_free() -> None:
    assert reserve_bytes(1 << 40) > reserve_bytes(1 << 30) == reserve_bytes(1 << 31)
