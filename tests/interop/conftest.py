"""What the interop tests share: genuine releases, their clients in one Java process each, our cluster, the matrix."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import dying_with_parent, free_port
from journalmgr.cli.main import main
from journalmgr.namenode.fs_client import FileSystemClient
from tests.conftest import ZooKeeperServer
from tests.interop.ground import KINDS, SESSION_TIMEOUT, Ground, ground_of
from tests.interop.hedwig_cells import HEDWIG_MATRIX, HedwigMatrix
from tests.interop.matrix import MATRIX, Matrix
from tests.support.apache import DEFAULT, RELEASES, Apache, ApacheClient, find_apache
from tests.support.apache_hedwig import CLIENT_VERSIONS, HUB_VERSIONS, HedwigClient, HubProcess, find_hedwig, hub_of
from tests.support.hadoop import HadoopTool, find_hadoop
from tests.support.webhdfs_clients import find_webhdfs_clients

__all__ = ["SESSION_TIMEOUT"]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MATRIX] = Matrix()
    config.stash[HEDWIG_MATRIX] = HedwigMatrix()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch what is missing before the first test: the time that a test may take is not for downloads."""
    here = Path(__file__).parent
    items = [item for item in session.items if item.path.is_relative_to(here)]
    if session.config.option.collectonly:
        return
    if any(_is_beside_hadoop(item) for item in items):
        with suppress(pytest.skip.Exception):
            find_hadoop()
    if any(_is_beside_hedwig(item) for item in items):
        with suppress(pytest.skip.Exception):
            _find_all_of_hedwig()
    if any(_is_beside_webhdfs(item) for item in items):
        with suppress(pytest.skip.Exception):
            find_webhdfs_clients()
    if all(_is_beside_hadoop(item) or _is_beside_hedwig(item) or _is_beside_webhdfs(item) for item in items):
        return
    for version in RELEASES:
        with suppress(pytest.skip.Exception):
            find_apache(session.config.getoption("--apache-home"), version)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test if its programs are missing: the default release, Hadoop, Hedwig or the WebHDFS clients.

    Tests that are skipped here share one line of the summary.
    """
    if _is_beside_hadoop(item):
        find_hadoop()
    elif _is_beside_hedwig(item):
        _find_all_of_hedwig()
    elif _is_beside_webhdfs(item):
        find_webhdfs_clients()
    else:
        find_apache(item.config.getoption("--apache-home"))


def _is_beside_hadoop(item: pytest.Item) -> bool:
    return item.path.name.startswith("test_hadoop_")


def _is_beside_hedwig(item: pytest.Item) -> bool:
    return item.path.name.startswith("test_hedwig_")


def _is_beside_webhdfs(item: pytest.Item) -> bool:
    return item.path.name.startswith("test_webhdfs_")


def _find_all_of_hedwig() -> None:
    for version in CLIENT_VERSIONS:
        find_hedwig("client", version)
    for version in HUB_VERSIONS:
        find_hedwig("server", version)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Which client wrote how much on which bookies."""
    matrix = config.stash[MATRIX]
    if matrix.cells:
        terminalreporter.section("interop matrix")
        terminalreporter.write("\n".join(matrix.lines()) + "\n")
    hedwig = config.stash[HEDWIG_MATRIX].lines()
    if hedwig:
        terminalreporter.section("hedwig matrix")
        terminalreporter.write("\n".join(hedwig) + "\n")


@pytest.fixture(scope="session")
def apache(apache_home: Path | None) -> Apache:
    """The default release."""
    return find_apache(apache_home)


@pytest.fixture(scope="session")
def started_clients() -> dict[str, ApacheClient]:
    """Java processes of `apache_clients`, by version."""
    return {}


@pytest.fixture(scope="module", autouse=True)
def forgotten_clients(started_clients: dict[str, ApacheClient]) -> Iterator[None]:
    """Close the clients that a module made in those processes.

    A client with a metadata server that has ended makes a new session, with two threads, at each attempt to connect.
    """
    yield
    for client in started_clients.values():
        client.run("forget")


@pytest.fixture(scope="session")
def apache_clients(
    apache_home: Path | None, tmp_path_factory: pytest.TempPathFactory, started_clients: dict[str, ApacheClient]
) -> Iterator[Callable[[str], ApacheClient]]:
    """The client of a release, by version: one Java process for the whole run, started at first need."""
    clients = started_clients
    directory = tmp_path_factory.mktemp("apache")
    with ExitStack() as stack:

        def client_of(version: str) -> ApacheClient:
            if version not in clients:
                client = ApacheClient(find_apache(apache_home, version), directory / f"client-{version}.log")
                clients[version] = stack.enter_context(client)
            return clients[version]

        yield client_of


@pytest.fixture(scope="session")
def apache_client(apache: Apache, apache_clients: Callable[[str], ApacheClient]) -> ApacheClient:
    """The client of the default release."""
    return apache_clients(DEFAULT.version)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies of ours; tests only add ledgers."""
    with LocalCluster(3, directory=tmp_path_factory.mktemp("cluster"), settings=SESSION_TIMEOUT) as local:
        yield local


@pytest.fixture(scope="session")
def grounds(
    apache: Apache, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Ground]]:
    """Bookies of a kind. Not a parametrized fixture: pytest would start them anew for each file of tests."""
    grounds: dict[str, Ground] = {}
    with ExitStack() as running:

        def ground(kind: str) -> Ground:
            if kind not in grounds:
                directory = tmp_path_factory.mktemp("ground")
                grounds[kind] = ground_of(kind, apache, zookeeper.address, directory, running)
            return grounds[kind]

        yield ground


@pytest.fixture(params=KINDS, ids=lambda kind: kind.replace(" ", "-").replace("'", ""))
def ground(request: pytest.FixtureRequest, grounds: Callable[[str], Ground]) -> Ground:
    """Our bookies, and then genuine ones."""
    return grounds(request.param)


@pytest.fixture(scope="module")
def name_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a name node on a journal in files; yield its address."""
    directory, address = tmp_path_factory.mktemp("names"), f"127.0.0.1:{free_port()}"
    journal = f"file://{directory}/edits"
    assert main(["format", journal]) == 0
    words = ["namenode", journal, "--images", f"{directory}/images", "--http", address]
    with (directory / "log").open("wb") as log:
        command = dying_with_parent([sys.executable, "-m", "journalmgr.cli.main", *words])
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with FileSystemClient([address], wait_s=60.0) as files:
            files.mkdirs("/ready")
        yield address
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopTool]:
    """Genuine Hadoop: one Java process for the whole run, started at first need."""
    with HadoopTool(find_hadoop(), tmp_path_factory.mktemp("hadoop") / "hadoop.log") as tool:
        yield tool


@pytest.fixture
def name_directory(hadoop: HadoopTool, tmp_path: Path) -> Iterator[Path]:
    """Formatted by Hadoop; a NameNode that runs on it is stopped at the end."""
    hadoop.format(tmp_path / "name")
    yield tmp_path / "name"
    hadoop.stop()


@pytest.fixture(scope="session")
def hedwig_matrix(pytestconfig: pytest.Config) -> HedwigMatrix:
    """The table at the end of the run."""
    return pytestconfig.stash[HEDWIG_MATRIX]


@pytest.fixture(scope="session")
def hedwig_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], HedwigClient]]:
    """Hedwig's client of a release: one Java process for the whole run, started at first need."""
    clients: dict[str, HedwigClient] = {}
    directory = tmp_path_factory.mktemp("hedwig")
    with ExitStack() as stack:

        def client_of(version: str) -> HedwigClient:
            if version not in clients:
                client = HedwigClient(find_hedwig("client", version), directory / f"client-{version}.log")
                clients[version] = stack.enter_context(client)
            return clients[version]

        yield client_of


@pytest.fixture(scope="package")
def hedwig_hubs(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], HubProcess]]:
    """A hub of a kind, alone with its topics, on our bookies; started at first need. Nobody kills these."""
    hubs: dict[str, HubProcess] = {}
    directory = tmp_path_factory.mktemp("hubs")
    with ExitStack() as stack:

        def hub(kind: str) -> HubProcess:
            if kind not in hubs:
                hubs[kind] = hub_of(kind, directory, cluster.uri, f"/hedwig-{len(hubs)}")
                stack.callback(hubs[kind].kill)
                hubs[kind].start()
            return hubs[kind]

        yield hub


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A genuine client at a genuine hub is the control, and now and then loses itself: it has a second try, told."""
    parameters = getattr(getattr(item, "callspec", None), "id", "")
    if not isinstance(item, pytest.Function) or not re.search(r"-at-\d", parameters):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        sys.stderr.write(f"\n{item.name}: genuine on genuine failed, and is tried once more\n")
        item._initrequest()  # noqa: SLF001 - nothing public sets a test up anew
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
