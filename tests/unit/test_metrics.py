"""Metrics: declared once, counted in cells, shown in Prometheus' text format under Apache's names."""

import re

import pytest

from bookkeeper.metrics import METRICS, RECENT_OBSERVATIONS_MAX, Kind, Metrics


def _samples(metrics: Metrics) -> dict[str, str]:
    lines = metrics.text().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_every_metric_has_a_valid_name_and_says_unit_and_meaning() -> None:
    for name, spec in METRICS.items():
        assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name)
        assert spec.help.endswith((".", ")."))
        assert "\n" not in spec.help
        assert "\\" not in spec.help


def test_counters_keep_the_bare_names_dashboards_know() -> None:
    metrics = Metrics()
    metrics.counter("bookie_WRITE_BYTES").add(1000)
    text = metrics.text().decode()
    assert "# TYPE bookie_WRITE_BYTES counter\nbookie_WRITE_BYTES 1000\n" in text


def test_cells_of_one_name_are_shown_as_their_sum() -> None:
    metrics = Metrics()
    first, second = metrics.counter("bookie_READ_BYTES"), metrics.counter("bookie_READ_BYTES")
    first.add(3)
    second.add(4)
    metrics.gauge("bookie_NUM_INDEX_PAGES").set(5)
    metrics.gauge("bookie_NUM_INDEX_PAGES", read=lambda: 6)
    samples = _samples(metrics)
    assert (samples["bookie_READ_BYTES"], samples["bookie_NUM_INDEX_PAGES"]) == ("7", "11")
    assert metrics.value("bookie_READ_BYTES") == 7


def test_a_summary_counts_every_entry_of_a_batch_observed_once() -> None:
    metrics = Metrics()
    adds = metrics.summary("bookkeeper_server_ADD_ENTRY_REQUEST")
    adds.observe(2.5, times=100)
    adds.observe(1.5, times=100)
    adds.observe_failure(9.0)
    samples = _samples(metrics)
    name = "bookkeeper_server_ADD_ENTRY_REQUEST"
    assert samples[f'{name}_count{{success="true"}}'] == "200"
    assert samples[f'{name}_sum{{success="true"}}'] == "400"
    assert samples[f'{name}_count{{success="false"}}'] == "1"
    assert samples[f'{name}{{success="true",quantile="0.5"}}'] == "1.5"
    assert samples[f'{name}{{success="true",quantile="1.0"}}'] == "2.5"
    assert metrics.value(name) == 201


def test_quantiles_are_of_the_last_observations_and_memory_is_bounded() -> None:
    metrics = Metrics()
    syncs = metrics.summary("bookie_journal_JOURNAL_SYNC")
    for _ in range(RECENT_OBSERVATIONS_MAX):
        syncs.observe(100.0, times=RECENT_OBSERVATIONS_MAX)
    for value in range(1, RECENT_OBSERVATIONS_MAX + 1):
        syncs.observe(float(value))
    assert len(syncs.recent) == RECENT_OBSERVATIONS_MAX
    samples = _samples(metrics)
    assert samples['bookie_journal_JOURNAL_SYNC{success="true",quantile="0.5"}'] == str(RECENT_OBSERVATIONS_MAX // 2)
    assert samples['bookie_journal_JOURNAL_SYNC{success="true",quantile="1.0"}'] == str(RECENT_OBSERVATIONS_MAX)


def test_quantiles_of_nothing_are_not_numbers() -> None:
    metrics = Metrics()
    metrics.summary("bookie_CHECKPOINT")
    assert _samples(metrics)['bookie_CHECKPOINT{success="true",quantile="0.99"}'] == "NaN"


def test_a_metric_nobody_counts_is_not_shown() -> None:
    samples = _samples(Metrics())
    assert "bookie_WRITE_BYTES" not in samples
    assert float(samples["process_cpu_seconds_total"]) > 0


@pytest.mark.parametrize("kind", list(Kind))
def test_an_undeclared_name_or_another_kind_is_refused(kind: Kind) -> None:
    metrics = Metrics()
    make = {Kind.COUNTER: metrics.counter, Kind.GAUGE: metrics.gauge, Kind.SUMMARY: metrics.summary}[kind]
    with pytest.raises(KeyError, match="bookie_NO_SUCH"):
        make("bookie_NO_SUCH")
    other = next(spec.name for spec in METRICS.values() if spec.kind is not kind)
    with pytest.raises(KeyError, match=other):
        make(other)
