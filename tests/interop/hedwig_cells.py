"""Which Hedwig client meets which hub, and the table of what was compared.

A cell: one release's client, with a connection for each subscription or one for all ("multiplexed"), at one kind of
hub. Every scenario of test_hedwig_client.py runs in every cell, so what the kinds of hubs do differently shows up as a
difference in a test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.support.apache_hedwig import CLIENT_VERSIONS, HUB_VERSIONS, OURS, HedwigClient, HubProcess

SIMPLE, MULTIPLEXED = "simple", "multiplexed"
HUB_KINDS = (OURS, *HUB_VERSIONS)


@dataclass(frozen=True, slots=True)
class Row:
    """A client. channels: SIMPLE or MULTIPLEXED."""

    version: str
    channels: str

    def __str__(self) -> str:
        return f"client {self.version}, {self.channels}"


ROWS = tuple(Row(version, channels) for version in CLIENT_VERSIONS for channels in (SIMPLE, MULTIPLEXED))
CELLS = tuple((row, kind) for kind in HUB_KINDS for row in ROWS)


def named(kind: str) -> str:
    """A kind of hub, as the table has it."""
    return kind if kind == OURS else f"Apache's {kind}"


@dataclass(slots=True)
class HedwigMatrix:
    """What was compared, by client and hub, and over takeovers; what began and did not end has failed."""

    messages: Counter[tuple[Row, str]] = field(default_factory=Counter)
    takeovers: dict[str, int] = field(default_factory=dict)
    under_way: Counter[tuple[Row, str] | str] = field(default_factory=Counter)

    def begin(self, what: tuple[Row, str] | str) -> None:
        """A test has what it needs and runs."""
        self.under_way[what] += 1

    def passed(self, what: tuple[Row, str] | str, count: int) -> None:
        """It compared so many messages, and all were right."""
        self.under_way[what] -= 1
        if isinstance(what, str):
            self.takeovers[what] = self.takeovers.get(what, 0) + count
        else:
            self.messages[what] += count

    def lines(self) -> list[str]:
        """The tables; nothing where nothing ran."""
        lines: list[str] = []
        if any(not isinstance(what, str) for what in self.under_way):
            columns = list(map(named, HUB_KINDS))
            width = max(len(str(row)) for row in ROWS)
            lines.append("   ".join([" " * width, *columns]))
            for row in ROWS:
                counts = [self._count((row, kind)) for kind in HUB_KINDS]
                cells = [each.ljust(len(name)) for each, name in zip(counts, columns, strict=True)]
                lines.append("   ".join([str(row).ljust(width), *cells]))
            lines.append("Messages that the row's client published and received at the hub of the column.")
        names = sorted(each for each in self.under_way if isinstance(each, str))
        return lines + [f"{name}: {self._count(name)} messages" for name in names]

    def _count(self, what: tuple[Row, str] | str) -> str:
        if self.under_way[what]:
            return "FAILED"
        count = self.takeovers.get(what, 0) if isinstance(what, str) else self.messages[what]
        return str(count) if count else "not run"


HEDWIG_MATRIX = pytest.StashKey[HedwigMatrix]()
"""Where a run keeps it, in `config.stash`."""


class Cell:
    """One cell in one test: a client program, a hub, and a topic that no other test has."""

    def __init__(self, row: Row, tool: HedwigClient, hub: HubProcess, number: int) -> None:
        self.row, self.tool, self.hub = row, tool, hub
        self.topic = f"topic-{number}"
        self.compared, self.passed = 0, False
        self._number = number
        self._opened: set[str] = set()

    def open(self, name: str, settings: Mapping[str, str] | None = None, *, hub: HubProcess | None = None) -> str:
        """A client of its own; the name to give to commands. settings: keys of its configuration."""
        whole = f"{name}-{self._number}"
        values = {
            "default_server_host": (hub or self.hub).server,
            "subscription_channel_sharing_enabled": "true" if self.row.channels == MULTIPLEXED else "false",
            "subscribe_reconnect_retry_wait_time": "200",
            **(settings or {}),
        }
        self.tool.run("open", whole, *(f"{key}={value}" for key, value in values.items()))
        self._opened.add(whole)
        return whole

    def shut(self, name: str) -> None:
        """End a client in order."""
        self._opened.remove(name)
        self.tool.run("shut", name)

    def close(self) -> None:
        """End all that are left."""
        for name in list(self._opened):
            self.shut(name)

    def done(self) -> None:
        """The test has come to its end."""
        self.passed = True

    def reads(self, name: str, subscriber: str, mode: str, *options: str) -> None:
        """Subscribe, and have what comes delivered."""
        self.tool.run("subscribe", name, self.topic, subscriber, mode, *options)
        self.tool.run("deliver", name, self.topic, subscriber)

    def received(self, name: str, subscriber: str, expected: list[str], topic: str | None = None) -> None:
        """Wait for as many messages, and compare all that came."""
        assert self.tool.run("received", name, topic or self.topic, subscriber, len(expected)) == expected
        self.compared += len(expected)

    def ids(self, *words: object) -> list[int]:
        """Of a command that publishes."""
        return [int(line) for line in self.tool.run(*words)]
