"""Our hub closes idle connections of genuine Hedwig clients: they publish again, and subscriptions stay attached."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bookkeeper.embedded.cluster import LocalCluster
from hedwig.model import Status, Topic
from tests.interop.hedwig_cells import ROWS, Cell, Row
from tests.support.apache_hedwig import OURS, HedwigClient, HubProcess, hub_of
from tests.support.apache_hedwig.client import numbered
from tests.support.hub_wire import RawHubClient

SIZE = 1000


@pytest.fixture(scope="module")
def impatient(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub that closes a connection after three to six seconds of silence; clients do not pause for so long."""
    settings = {"idle_connection_timeout_secs": "3", "first_request_timeout_secs": "3"}
    hub = hub_of(OURS, tmp_path_factory.mktemp("impatient"), cluster.uri, "/hedwig-impatient", settings)
    hub.start()
    yield hub
    hub.kill()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_genuine_client_publishes_and_receives_after_long_silence(
    impatient: HubProcess, hedwig_clients: Callable[[str], HedwigClient], row: Row
) -> None:
    cell = Cell(row, hedwig_clients(row.version), impatient, 900 + ROWS.index(row))
    client = cell.open("a")
    try:
        cell.reads(client, "reader", "CREATE")
        assert cell.ids("publish", client, cell.topic, 1, 0, 2, SIZE) == [1, 2]
        cell.received(client, "reader", numbered(1, range(2), SIZE))
        for _ in range(2):  # the hub closes all earlier silent connections before these
            with RawHubClient(impatient.port) as other:
                assert other.publish(Topic(b"other"), b"x").status is Status.SUCCESS
                assert other.socket.recv(1) == b""
        assert cell.ids("publish", client, cell.topic, 1, 2, 2, SIZE) == [3, 4]
        cell.received(client, "reader", numbered(1, range(4), SIZE))
    finally:
        cell.close()
