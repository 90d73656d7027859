"""The client of a process that Spark forked: what it lets be heard of its metadata store."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.logger import LogEvent, Logger, formatEvent

from bookkeeper.config import ClientSettings
from bookkeeper.metadata.store import StoreState
from bookkeeper.spark import process_client

SETTINGS = ClientSettings()

WARNING = """
import logging
from twisted.logger import Logger, LogLevel
import bookkeeper.metadata.session
from bookkeeper.spark import process_client
process_client.show_warnings()
logging.getLogger("kazoo.client").warning("Connection dropped: socket connection broken")
logging.getLogger("kazoo.client").error("Session has expired")
Logger(namespace="bookkeeper.spark.ledgers.extents").warn("ledger 7 is left out")
"""


class FakeClient:
    """A client whose store is in `state`."""

    def __init__(self) -> None:
        self.store = SimpleNamespace(state=StoreState.CONNECTED, description="ZooKeeper at zk1:2181/ledgers")

    def run(self, start: Any) -> Any:
        return start(SimpleNamespace(store=self.store)).result


def test_what_we_warn_of_is_heard_and_what_libraries_say_of_a_zookeeper_that_stopped_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", WARNING], capture_output=True, text=True, check=True)
    [line] = done.stderr.splitlines()
    assert "ledger 7 is left out" in line


def test_an_outage_of_the_metadata_store_is_told_once_to_who_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    client, heard = FakeClient(), list[LogEvent]()
    monkeypatch.setattr(process_client, "_clients", OrderedDict())
    monkeypatch.setattr(process_client, "_cut_off", set())
    monkeypatch.setattr(process_client, "show_warnings", lambda: None)
    monkeypatch.setattr(process_client, "connect", lambda *_: client)
    monkeypatch.setattr(process_client, "log", Logger(observer=cast(Any, heard.append)))

    def use(state: StoreState, times: int = 2) -> int:
        client.store.state = state
        for _ in range(times):
            assert process_client.client_of(SETTINGS) is cast(Any, client)
        return len(heard)

    assert use(StoreState.CONNECTED) == 0
    assert use(StoreState.SUSPENDED) == use(StoreState.LOST) == 1
    assert formatEvent(heard[0]) == "ZooKeeper at zk1:2181/ledgers cannot be reached; waiting for it"
    assert use(StoreState.CONNECTED) == 1
    assert use(StoreState.LOST) == 2
