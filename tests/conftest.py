"""Options and fixtures every suite shares: the seed, the ZooKeeper, where Apache's releases are.

    --seed N|random        one integer behind every random choice of a run; printed in the header
    --zookeeper HOST:PORT  use this ZooKeeper instead of starting the embedded one
    --sim-seeds N          how many seeds a simulation campaign runs, counted up from --seed
    --apache-home DIR      where unpacked Apache releases are (interop); otherwise they are fetched or skipped

Nothing heavy is imported here: unit tests run without a reactor, a thread or a socket, and the embedded ZooKeeper is
started only when a test asks for the `zookeeper` fixture. Suites are marked by their directory, so that
`-m integration` works without a decorator on each test. What was skipped, and why, is in pytest's summary (`-ra`).
"""

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest

from tests.support.spark import OF_SPARK, SMALL_JAVA

SUITES = ("unit", "simulation", "integration", "interop", "benchmarks")
DEFAULT_SEED = 1
SIMULATED_SEEDS = 300
SEED_MAX = 2**32 - 1


class ZooKeeperServer(Protocol):
    """What tests need of a ZooKeeper, embedded or external."""

    @property
    def address(self) -> str:
        """host:port, as in a connect string."""


class ExternalZooKeeper:
    """A ZooKeeper that somebody else runs (`--zookeeper`)."""

    def __init__(self, address: str) -> None:
        self.address = address


def _seed(text: str) -> int:
    if text == "random":
        return random.SystemRandom().randint(0, SEED_MAX)
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pybookkeeper")
    group.addoption("--seed", type=_seed, default=DEFAULT_SEED, help="integer, or 'random' (default: %(default)s)")
    group.addoption("--zookeeper", metavar="HOST:PORT", help="use this ZooKeeper instead of the embedded one")
    group.addoption("--sim-seeds", type=int, default=SIMULATED_SEEDS, metavar="N", help="seeds (default: %(default)s)")
    group.addoption("--apache-home", type=Path, metavar="DIR", help="directory of unpacked Apache releases (interop)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let the one seed govern hypothesis too, unless it has one of its own. No example fails by the clock."""
    hypothesis.settings.register_profile("project", deadline=None)
    if getattr(config.option, "hypothesis_profile", None) is None:
        hypothesis.settings.load_profile("project")
    if getattr(config.option, "hypothesis_seed", "absent") is None:
        config.option.hypothesis_seed = str(config.getoption("--seed"))
    for variable in OF_SPARK:  # before anything starts Spark, and for all that tests start
        os.environ.setdefault(variable, SMALL_JAVA)


def pytest_report_header(config: pytest.Config) -> list[str]:
    zookeeper = config.getoption("--zookeeper") or "embedded, on demand"
    return [f"seed: {config.getoption('--seed')} (repeat with --seed)", f"zookeeper: {zookeeper}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by the suite its directory names."""
    tests = Path(__file__).parent
    for item in items:
        suite = item.path.relative_to(tests).parts[0] if item.path.is_relative_to(tests) else ""
        if suite in SUITES:
            item.add_marker("benchmark" if suite == "benchmarks" else suite)


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The run's seed; derive every random generator from it."""
    value: int = pytestconfig.getoption("--seed")
    return value


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A random generator of this test's own: same seed and test name, same numbers, whatever ran before."""
    return random.Random(f"{seed}/{request.node.nodeid}")


@pytest.fixture(scope="session")
def apache_home(pytestconfig: pytest.Config) -> Path | None:
    """Directory of unpacked Apache releases, or None when not given."""
    value: Path | None = pytestconfig.getoption("--apache-home")
    return value


@pytest.fixture(scope="session")
def zookeeper(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One real ZooKeeper for the whole run. A test that stops or restarts a ZooKeeper starts its own."""
    external = pytestconfig.getoption("--zookeeper")
    if external:
        yield ExternalZooKeeper(external)
        return
    from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper

    with EmbeddedZooKeeper(data_dir=tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


_root_numbers = itertools.count(1)


@pytest.fixture
def ledgers_root() -> str:
    """A ledgers root path no other test uses, directly below `/` (initialisation wants an existing parent)."""
    return f"/test-{os.getpid()}-{os.urandom(3).hex()}-{next(_root_numbers)}"
