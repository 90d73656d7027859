"""The latency histogram against a plain sorted list."""

import json
import random

import pytest

from bookkeeper.cli.perf.latency import BUCKET_RATIO, PERCENTILES, Latencies


def exact_percentile(samples: list[tuple[float, int]], percent: float) -> float:
    """The smallest latency that `percent` of the weight does not exceed."""
    total = sum(weight for _, weight in samples)
    seen = 0
    for seconds, weight in sorted(samples):
        seen += weight
        if seen >= total * percent / 100.0:
            return seconds
    raise AssertionError("no samples")


def histogram_of(samples: list[tuple[float, int]]) -> Latencies:
    latencies = Latencies()
    for seconds, weight in samples:
        latencies.add(seconds, weight)
    return latencies


def samples_of(rng: random.Random, count: int) -> list[tuple[float, int]]:
    return [(10 ** rng.uniform(-6, 1), rng.choice([1, 1, 2, 100])) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 10, 1000])
def test_percentiles_are_exact_to_one_bucket(rng: random.Random, count: int) -> None:
    for _ in range(20):
        samples = samples_of(rng, count)
        latencies = histogram_of(samples)
        for percent in PERCENTILES:
            exact = exact_percentile(samples, percent)
            assert exact <= latencies.percentile(percent) * (1 + 1e-9)
            assert latencies.percentile(percent) <= exact * BUCKET_RATIO * (1 + 1e-9)


def test_no_percentile_exceeds_the_greatest_sample(rng: random.Random) -> None:
    samples = samples_of(rng, 100)
    latencies = histogram_of(samples)
    assert latencies.percentile(100.0) == latencies.max_s == max(seconds for seconds, _ in samples)


def test_without_samples_everything_is_zero() -> None:
    assert Latencies().percentile(99.0) == 0.0
    assert Latencies.merged([]).count == 0


def test_a_sample_below_the_resolution_counts(rng: random.Random) -> None:
    assert histogram_of([(0.0, 5)]).count == 5


def test_merging_parts_is_adding_all_samples_to_one(rng: random.Random) -> None:
    parts = [samples_of(rng, 50) for _ in range(4)]
    through_json = [json.loads(json.dumps(histogram_of(part).to_json())) for part in parts]
    assert Latencies.merged(through_json) == histogram_of([sample for part in parts for sample in part])


def test_memory_is_bounded_whatever_the_latencies(rng: random.Random) -> None:
    latencies = histogram_of(samples_of(rng, 20_000))
    # 100 ns to 10 s at 1 % a bucket: ln(1e8) / ln(1.01).
    assert len(latencies.buckets) <= 1852
