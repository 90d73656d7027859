"""Machines with a name, name service and interfaces that a test chooses."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from bookkeeper.system.addresses import Machine


class MadeMachine(Machine):
    """A machine named `name`. known: addresses by host name; interfaces: addresses by interface, IPv4 first.

    failure: the getaddrinfo error of every look-up. looked_up: the names that were looked up.
    """

    def __init__(
        self,
        name: str = "host1",
        known: Mapping[str, Sequence[str]] = {},
        interfaces: Mapping[str, Sequence[str]] = {},
        failure: int | None = None,
    ) -> None:
        self._name, self._known, self._interfaces, self._failure = name, known, interfaces, failure
        self.looked_up: list[str] = []

    @property
    def name(self) -> str:
        return self._name

    def look_up(self, name: str, family: socket.AddressFamily) -> list[str]:
        self.looked_up.append(name)
        if self._failure is not None:
            raise socket.gaierror(self._failure, "look-up failed")
        found = [each for each in self._known.get(name, ()) if (":" in each) == (family is socket.AF_INET6)]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    def interfaces(self) -> list[str]:
        return list(self._interfaces)

    def addresses_of(self, interface: str) -> list[str]:
        return list(self._interfaces.get(interface, ()))
