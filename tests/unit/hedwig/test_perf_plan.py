"""Names of the measurements of `hedwig perf`."""

import pytest

from bookkeeper.errors import InvalidArgument
from hedwig.perf.meter import Meter, bodies, handed_over
from hedwig.perf.plan import Cell, cells, parse_cell
from hedwig.perf.run import Figures


def test_every_measurement_is_found_by_its_name() -> None:
    usual = cells([1, 100], [1, 10], [1, 1000])
    assert len(set(usual)) == len(usual)
    assert [parse_cell(each.name) for each in usual] == usual
    assert parse_cell("deliver:5x2x30") == Cell("deliver", topics=5, outstanding=30, subscribers=2)


@pytest.mark.parametrize("text", ["", "publish", "publish:1", "publish:0x1", "publish:ax1", "acquire:3", "read:1x1"])
def test_what_names_no_measurement_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(InvalidArgument, match="publish:TOPICSxOUTSTANDING"):
        parse_cell(text)


def test_figures_show_the_longest_turn_of_hubs_and_bookies() -> None:
    figures = Figures(Cell("publish", 1, 1), 10, 1.0, None, hub_turn_s=0.0123, bookie_turn_s=0.004)
    shown = figures.to_json()
    assert (shown["hub_turn_ms"], shown["bookie_turn_ms"]) == (12.3, 4.0)


def test_only_what_is_done_between_start_and_end_counts() -> None:
    meter = Meter(10.0, 20.0)
    meter.done(9.0, 9.9)
    meter.done(9.5, 10.0, 2)
    meter.done(19.0, 20.0)
    assert (meter.count, meter.latencies.count) == (2, 2)
    assert meter.latencies.percentile(50) == pytest.approx(0.5, rel=0.02)
    assert meter.tick(19.9)
    assert not meter.tick(20.0)


def test_a_body_has_the_size_and_tells_when_it_was_handed_over() -> None:
    body = bodies(1024)(123.5)
    assert len(body) == 1024
    assert handed_over(body) == 123.5
    assert len(bodies(8)(1.0)) == 8
