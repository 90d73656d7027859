"""Metrics: declared once, counted in cells, shown in Prometheus' text format under Apache's names."""

import ast
import math
import re
from pathlib import Path

import pytest

from bookkeeper import metrics as declarations
from bookkeeper.metrics import METRICS, RECENT_OBSERVATIONS_MAX, Kind, Metrics, MetricSpec
from tests.support import prometheus_text


def _samples(metrics: Metrics) -> dict[str, str]:
    lines = metrics.text().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_every_metric_has_a_valid_name_and_says_unit_and_meaning() -> None:
    for name, spec in METRICS.items():
        assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name)
        assert spec.help.endswith((".", ")."))
        assert "\n" not in spec.help
        assert "\\" not in spec.help


def test_no_metric_is_declared_twice() -> None:
    table = (*declarations.PROCESS_METRICS, declarations.PROCESS_METRICS[0])
    with pytest.raises(ValueError, match=r"declared twice: \['process_cpu_seconds_total'\]"):
        Metrics(table)
    Metrics()  # nor in the table of bookies


def test_a_metric_of_times_or_sizes_says_its_unit() -> None:
    """A summary is a distribution of something: its meaning begins with what is counted or measured."""
    units = re.compile(r"(Milliseconds|Bytes|Records|Entries|Ledgers|Fragments|Bookies)\b")
    unclear = [name for name, spec in METRICS.items() if spec.kind is Kind.SUMMARY and not units.match(spec.help)]
    sizes = [name for name, spec in METRICS.items() if name.endswith("BYTES") and "ytes" not in spec.help]
    assert unclear + sizes == []


def texts_of(source: str) -> set[str]:
    """All string constants of a module, but for the table of metrics itself."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not ast.unparse(node).startswith("_TABLE = ")]
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def named_in(texts: set[str]) -> set[str]:
    """The metrics a module names, whole or as a prefix that ends with "_" and a rest."""
    heads = {text for text in texts if text.endswith("_")}
    return {
        name
        for name in METRICS
        if name in texts or any(name.startswith(head) and name.removeprefix(head) in texts for head in heads)
    }


def test_every_metric_is_counted_by_some_module() -> None:
    """A name in the table that nobody asks a cell for is a promise to dashboards that is never kept."""
    package = Path(declarations.__file__).parent
    used: set[str] = set()
    for path in package.rglob("*.py"):
        used |= named_in(texts_of(path.read_text()))
    assert set(METRICS) - used == set()


def test_a_metric_is_found_in_a_module_whole_and_in_parts_but_not_in_the_table() -> None:
    assert named_in(texts_of("cell('bookie_WRITE_BYTES')")) == {"bookie_WRITE_BYTES"}
    parts = "name = 'bookie_journal_JOURNAL_'\ncell(name + 'SYNC')"
    assert named_in(texts_of(parts)) == {"bookie_journal_JOURNAL_SYNC"}
    assert named_in(texts_of("_TABLE = ('bookie_WRITE_BYTES',)\n'bookie_WRITE'\n'BYTES'")) == set()


def test_counters_keep_the_bare_names_dashboards_know() -> None:
    metrics = Metrics()
    metrics.counter("bookie_WRITE_BYTES").add(1000)
    text = metrics.text().decode()
    assert "# TYPE bookie_WRITE_BYTES counter\nbookie_WRITE_BYTES 1000\n" in text


def test_cells_of_one_name_are_shown_as_their_sum() -> None:
    metrics = Metrics()
    first, second = metrics.counter("bookkeeper_server_REPLY_BYTES"), metrics.counter("bookkeeper_server_REPLY_BYTES")
    first.add(3)
    second.add(4)
    metrics.gauge("bookkeeper_server_CONNECTIONS").set(5)
    metrics.gauge("bookkeeper_server_CONNECTIONS", read=lambda: 6)
    samples = _samples(metrics)
    assert (samples["bookkeeper_server_REPLY_BYTES"], samples["bookkeeper_server_CONNECTIONS"]) == ("7", "11")
    assert metrics.value("bookkeeper_server_REPLY_BYTES") == 7


def test_a_counter_that_is_kept_elsewhere_is_read_when_it_is_shown() -> None:
    metrics, kept = Metrics(), [3.0]
    metrics.counter("bookie_COLD_READS", lambda: kept[0])
    metrics.counter("bookie_COLD_READS").add(10)
    kept[0] = 4.0
    assert _samples(metrics)["bookie_COLD_READS"] == "14"
    assert metrics.value("bookie_COLD_READS") == 14


def test_a_summary_counts_every_entry_of_a_batch_observed_once() -> None:
    metrics = Metrics()
    adds = metrics.summary("bookie_BOOKIE_ADD_ENTRY")
    adds.observe(2.5, times=100)
    adds.observe(1.5, times=100)
    adds.observe_failure(9.0)
    samples = _samples(metrics)
    name = "bookie_BOOKIE_ADD_ENTRY"
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
    metrics.summary("bookie_BOOKIE_READ_ENTRY")
    assert _samples(metrics)['bookie_BOOKIE_READ_ENTRY{success="true",quantile="0.99"}'] == "NaN"


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


def test_the_text_of_every_metric_is_what_a_strict_reader_takes() -> None:
    metrics = Metrics()
    for name, spec in METRICS.items():
        if spec.kind is Kind.SUMMARY:
            metrics.summary(name).observe(1.5, times=3)
        else:
            (metrics.counter if spec.kind is Kind.COUNTER else metrics.gauge)(name, lambda: 1e21)
    families = prometheus_text.parse(metrics.text().decode())
    assert {name: families[name].help for name in METRICS} == {name: spec.help for name, spec in METRICS.items()}
    assert {name: families[name].type for name in METRICS} == {name: spec.kind.value for name, spec in METRICS.items()}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# HELP a A.\n# TYPE a gauge\na 1", "does not end"),
        ("a 1\n", "no TYPE before it"),
        ("# HELP a A.\na 1\n", "no TYPE before it"),
        ("# HELP a A.\n# TYPE b gauge\nb 1\n", "not behind its HELP"),
        ("# HELP a A.\n# TYPE a gauge\n", "no sample"),
        ("# HELP a A.\n# TYPE a gauge\na 1\na 1\n", "twice"),
        ("# HELP a A.\n# TYPE a gauge\na 1\n# HELP a A.\n# TYPE a gauge\na 1\n", "comes twice"),
        ("# HELP a A.\n# TYPE a gauge\na one\n", "no number"),
        ("# HELP a A.\n# TYPE a gauge\nb 1\n", "no sample of a"),
        ("# HELP a A.\n# TYPE a gauge\na{x=1} 1\n", "neither"),
        ('# HELP a A.\n# TYPE a gauge\na{x="1",x="2"} 1\n', "twice"),
        ('# HELP a A.\n# TYPE a summary\na{quantile="0.5"} 1\na_sum 1\n', "no _sum or no _count"),
        ("# HELP a A.\n# TYPE a summary\na 1\na_sum 1\na_count 1\n", "quantile"),
        ("# HELP a A.\n# TYPE a counter\na -1\n", "below 0"),
    ],
)
def test_the_strict_reader_refuses_what_a_scraper_would(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        prometheus_text.parse(text)


def test_a_gauge_whose_value_is_not_known_is_not_shown() -> None:
    metrics = Metrics()
    known = metrics.gauge("bookie_ledger_num_dirs")
    known.set(math.nan)
    assert "bookie_ledger_num_dirs" not in _samples(metrics)
    known.set(0)
    assert _samples(metrics)["bookie_ledger_num_dirs"] == "0"


def test_a_name_out_of_the_settings_is_declared_once() -> None:
    metrics = Metrics()
    metrics.declare(MetricSpec("bookie_ledger_dir__l_usage", Kind.GAUGE, "Percent."))
    metrics.gauge("bookie_ledger_dir__l_usage").set(12.5)
    assert _samples(metrics)["bookie_ledger_dir__l_usage"] == "12.5"
    for name in ("bookie_ledger_dir__l_usage", "bookie_ledger_num_dirs"):
        with pytest.raises(ValueError, match=f"declared twice: {name}"):
            metrics.declare(MetricSpec(name, Kind.GAUGE, "Percent."))
    Metrics().declare(MetricSpec("bookie_ledger_dir__l_usage", Kind.GAUGE, "Percent."))  # of another bookie
