"""The three faces of the client say and take the same."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from bookkeeper.client import aio, blocking, client
from bookkeeper.metadata.uri import parse_uri


@pytest.mark.parametrize("connect", [aio.BookKeeper.connect, blocking.connect, client.connect])
def test_the_uri_that_connect_shows_is_one_that_it_takes(connect: Any) -> None:
    (uri,) = re.findall(r"zk\S*://\S+/ledgers", inspect.getdoc(connect) or "")
    assert len(parse_uri(uri).servers) == 2
