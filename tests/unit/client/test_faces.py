"""The three faces of the client say and take the same."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.client import client
from bookkeeper.client.faces import aio, blocking
from bookkeeper.errors import InvalidArgument
from bookkeeper.metadata.uri import parse_uri
from tests.support.fake_bookie import FakeCluster


@pytest.mark.parametrize("connect", [aio.BookKeeper.connect, blocking.connect, client.connect])
def test_the_uri_that_connect_shows_is_one_that_it_takes(connect: Any) -> None:
    (uri,) = re.findall(r"zk\S*://\S+/ledgers", inspect.getdoc(connect) or "")
    assert len(parse_uri(uri).servers) == 2


@pytest.mark.parametrize(
    "name", ["create", "create_advanced", "open", "open_without_recovery", "open_as_administrator"]
)
def test_a_ledger_is_made_and_opened_with_the_same_arguments_through_every_face(name: str) -> None:
    core = parameters(client.LedgerClient, name)
    assert parameters(aio.BookKeeper, name) == core
    assert parameters(blocking.BlockingBookKeeper, name) == core


def parameters(face: type, name: str) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(getattr(face, name))
    return [(found.name, found.kind, found.default) for found in signature.parameters.values()]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda core: core.open("x"), "ledger_id is 'x'"),
        (lambda core: core.open_without_recovery("x"), "ledger_id is 'x'"),
        (lambda core: core.open_as_administrator(None, recover=False), "ledger_id is None"),
        (lambda core: core.metadata(b"7"), "ledger_id is b'7'"),
        (lambda core: core.delete(7.0), "ledger_id is 7.0"),
        (lambda core: core.create(ledger_id="7"), "ledger_id is '7'"),
        (lambda core: core.create(ensemble="3"), "ensemble is '3'"),
        (lambda core: core.create_advanced(write_quorum="2"), "write_quorum is '2'"),
        (lambda core: core.create(ack_quorum=None), "ack_quorum is None"),
    ],
)
def test_a_number_that_is_none_is_named(call: Callable[[Any], Any], name: str) -> None:
    """The other two faces pass arguments and errors of the core on unchanged."""
    cluster = FakeCluster()
    with pytest.raises(InvalidArgument, match=f"^{name}, of type .*; it must be an int$"):
        cluster.wait(call(cluster.client()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda core: core.create(custom={"a": 3}), "custom['a'] is 3, of type int; it must be bytes"),
        (lambda core: core.create(custom={7: b"3"}), "custom has the key 7, of type int; keys must be str"),
        (lambda core: core.create_advanced(custom="a"), "custom is 'a', of type str; it must be a mapping"),
        (lambda core: core.create(digest="md5"), "digest is 'md5', of type str; it must be DigestType.CRC32, "),
        (lambda core: core.create(digest=""), "digest is '', of type str; it must be DigestType.CRC32, "),
        (lambda core: core.open(0, digest="md5"), "digest is 'md5', of type str; it must be DigestType.CRC32, "),
        (lambda core: core.open_without_recovery(0, digest=3), "digest is 3, of type int; it must be "),
        (lambda core: core.create(password="secret"), "password is of type str; it must be bytes"),
        (lambda core: core.open(0, "secret"), "password is of type str; it must be bytes"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named_with_what_is_allowed(call: Callable[[Any], Any], message: str) -> None:
    """The other two faces pass arguments and errors of the core on unchanged. A password is not shown."""
    cluster = FakeCluster()
    client = cluster.client()
    cluster.wait(client.create(ensemble=3))
    with pytest.raises(InvalidArgument, match=f"^{re.escape(message)}"):
        cluster.wait(call(client))
