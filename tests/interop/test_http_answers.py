"""The answers of our HTTP paths beside those of Apache's own services, on one cluster."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from bookkeeper.client.faces.blocking import connect as connect_client
from bookkeeper.config import ClientSettings
from bookkeeper.console.reactor import with_store
from bookkeeper.embedded.cluster import LocalCluster, free_port
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, LedgerId
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache
from tests.support.apache_admin import ApacheHttp

PASSWORD = b"http"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies, each with an HTTP server."""
    with LocalCluster(3, directory=tmp_path_factory.mktemp("http"), settings=SESSION_TIMEOUT) as cluster:
        bookie = cluster.bookies[0]
        assert bookie.stop() == 0
        bookie.settings |= {
            "httpServerEnabled": "true",
            "httpServerPort": str(free_port()),
            "httpServerLedgerContentEnabled": "true",
        }
        bookie.start()
        yield cluster


@pytest.fixture(scope="module")
def apaches(apache: Apache, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheHttp]:
    with ApacheHttp(apache, tmp_path_factory.mktemp("apache-http"), cluster.uri) as services:
        yield services


class Ours:
    """The HTTP server of the first bookie."""

    def __init__(self, port: int) -> None:
        self._port = port

    def answer(self, path: str, method: str = "GET", body: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, f"/api/v1/{path}", body or None)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture
def ours(cluster: LocalCluster) -> Ours:
    return Ours(int(cluster.bookies[0].settings["httpServerPort"]))


@pytest.fixture(scope="module")
def ledger_ids(cluster: LocalCluster) -> list[int]:
    """A closed one, an empty one, an open one."""
    with connect_client(cluster.uri, ClientSettings(read_timeout_base_s=REQUEST_TIMEOUT_S)) as client:
        with client.create(password=PASSWORD, custom={"who": b"me"}) as closed:
            closed.append_many([b"entry-%d" % number for number in range(20)] + [b"\xff"])
        with client.create(password=PASSWORD) as empty:
            pass
        opened = client.create(password=PASSWORD)
        opened.append(b"a")
        opened.append(b"b")
        opened.abort()
    return [closed.id, empty.id, opened.id]


def as_json(answer: tuple[int, str]) -> tuple[int, Any]:
    return answer[0], json.loads(answer[1])


def without_passwords(listed: dict[str, Any]) -> dict[str, Any]:
    """Apache shows them, in Base64; ours does not."""
    return {name: {key: value for key, value in each.items() if key != "password"} for name, each in listed.items()}


def test_ledger_metadata_has_the_same_members(apaches: ApacheHttp, ours: Ours, ledger_ids: list[int]) -> None:
    for ledger_id in ledger_ids:
        status, theirs = as_json(apaches.answer("GET_LEDGER_META", ledger_id=ledger_id))
        assert (status, without_passwords(theirs)) == as_json(ours.answer(f"ledger/metadata?ledger_id={ledger_id}"))


def test_ledgers_are_listed_alike(apaches: ApacheHttp, ours: Ours, ledger_ids: list[int]) -> None:
    assert as_json(apaches.answer("LIST_LEDGER")) == as_json(ours.answer("ledger/list"))
    status, theirs = as_json(apaches.answer("LIST_LEDGER", print_metadata="true", decode_meta="true"))
    assert (status, without_passwords(theirs)) == as_json(ours.answer("ledger/list?print_metadata=true"))


def test_entries_are_read_alike(apaches: ApacheHttp, ours: Ours, ledger_ids: list[int]) -> None:
    closed = ledger_ids[0]
    for query in ({}, {"start_entry_id": 3, "end_entry_id": 5}, {"page": 1, "end_entry_id": 20}):
        theirs = as_json(apaches.answer("READ_LEDGER_ENTRY", ledger_id=closed, **query))
        words = "".join(f"&{name}={value}" for name, value in query.items())
        assert theirs == as_json(ours.answer(f"ledger/read?ledger_id={closed}{words}"))


def test_the_cluster_is_described_alike(apaches: ApacheHttp, ours: Ours) -> None:
    assert as_json(apaches.answer("LIST_BOOKIES", type="rw")) == as_json(ours.answer("bookie/list_bookies?type=rw"))
    assert as_json(apaches.answer("LIST_BOOKIES", type="ro")) == as_json(ours.answer("bookie/list_bookies?type=ro"))
    assert as_json(apaches.answer("CLUSTER_INFO")) == as_json(ours.answer("bookie/cluster_info"))
    status, theirs = as_json(apaches.answer("LIST_BOOKIE_INFO"))
    told, own = as_json(ours.answer("bookie/list_bookie_info"))
    assert (status, set(theirs)) == (told, set(own))


def test_auto_recovery_is_switched_and_described_alike(
    cluster: LocalCluster, apaches: ApacheHttp, ours: Ours, ledger_ids: list[int]
) -> None:
    for enabled in ("false", "true"):
        switched = as_json(apaches.answer("AUTORECOVERY_STATUS", "PUT", enabled=enabled))
        assert switched == as_json(ours.answer("autorecovery/status"))
        assert as_json(ours.answer(f"autorecovery/status?enabled={enabled}", "PUT")) == switched
    assert apaches.answer("LIST_UNDER_REPLICATED_LEDGER")[0] == 404
    assert ours.answer("autorecovery/list_under_replicated_ledger")[0] == 404

    async def marked(store: MetadataStore) -> None:
        await store.underreplication.mark(LedgerId(ledger_ids[0]), [BookieId("a:1")], now_ms=1)
        await store.underreplication.mark(LedgerId(ledger_ids[1]), [BookieId("b:1")], now_ms=1)

    with_store(ClientSettings(metadata_service_uri=cluster.uri), marked)
    for query in ({}, {"missingreplica": "a:1"}, {"excludingmissingreplica": "a:1"}, {"printmissingreplica": "true"}):
        theirs = apaches.answer("LIST_UNDER_REPLICATED_LEDGER", **query)
        words = "&".join(f"{name}={value}" for name, value in query.items())
        assert as_json(theirs) == as_json(ours.answer(f"autorecovery/list_under_replicated_ledger?{words}"))
    for setting in (apaches.answer("LOST_BOOKIE_RECOVERY_DELAY", "PUT", '{"delay_seconds": 7}'),
                    ours.answer("autorecovery/lost_bookie_recovery_delay", "PUT", '{"delay_seconds": 7}')):  # fmt: skip
        assert setting == (200, "Success set lostBookieRecoveryDelay to 7")
        assert apaches.answer("LOST_BOOKIE_RECOVERY_DELAY") == ours.answer("autorecovery/lost_bookie_recovery_delay")


def test_a_ledger_is_deleted_alike(apaches: ApacheHttp, ours: Ours, ledger_ids: list[int]) -> None:
    first, second, _ = ledger_ids
    theirs = apaches.answer("DELETE_LEDGER", "DELETE", ledger_id=first)
    own = ours.answer(f"ledger/delete?ledger_id={second}", "DELETE")
    assert as_json(theirs) == (200, f"Deleted ledger: {first}")
    assert as_json(own) == (200, f"Deleted ledger: {second}")
