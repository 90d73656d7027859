"""Which addresses servers listen on and advertise."""

from __future__ import annotations

import errno
import socket

import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.system.addresses import THIS_MACHINE, PortReservation, listen_host, own_address
from tests.support.machines import MadeMachine

LOOPBACK = {"lo": ["127.0.0.1", "::1"]}


@pytest.mark.parametrize(
    ("known", "address"),
    [
        (["10.0.0.1"], "10.0.0.1"),
        (["fd00::5", "10.0.0.1"], "10.0.0.1"),
        (["fd00::5"], "fd00::5"),
        (["fe80::5%eth0", "fd00::5"], "fd00::5"),
    ],
)
def test_the_own_name_gives_ipv4_first(known: list[str], address: str) -> None:
    assert own_address(None, MadeMachine(known={"host1": known})) == address


def test_a_name_without_address_is_refused_with_the_keys_that_help() -> None:
    with pytest.raises(ConfigurationError, match=r"'host1' has no address .*; set advertisedAddress or listeningInter"):
        own_address(None, MadeMachine())


def test_an_unanswered_look_up_does_not_turn_ipv4_into_ipv6() -> None:
    """The id of a bookie would change if the name server is unavailable for a moment."""
    machine = MadeMachine(known={"host1": ["fd00::5"]}, failure=socket.EAI_AGAIN)
    with pytest.raises(ConfigurationError, match="look-up failed"):
        own_address(None, machine)
    assert machine.looked_up == ["host1"]


def test_a_host_named_by_digits_is_refused() -> None:
    machine = MadeMachine("12345", {"12345": ["0.0.48.57"]})
    with pytest.raises(ConfigurationError, match=r"'12345' is a number.*0\.0\.48\.57; set advertisedAddress or"):
        own_address(None, machine)
    assert not machine.looked_up


def test_an_interface_gives_its_first_address() -> None:
    machine = MadeMachine(interfaces={**LOOPBACK, "eth0": ["10.0.0.1", "fd00::5"], "eth1": ["fd00::6"], "eth2": []})
    assert own_address("eth0", machine) == "10.0.0.1"
    assert own_address("eth1", machine) == "fd00::6"
    assert own_address("fd00::7", machine) == "fd00::7"
    assert not machine.looked_up
    with pytest.raises(ConfigurationError, match="eth2: this interface has no address; set one of lo, eth0, eth1"):
        own_address("eth2", machine)
    with pytest.raises(ConfigurationError, match="eth3: this interface does not exist"):
        own_address("eth3", machine)


@pytest.mark.parametrize(
    ("advertised", "interfaces", "host"),
    [
        ("10.0.0.1", {**LOOPBACK, "eth0": ["10.0.0.1", "fd00::5"]}, ""),
        ("fd00::5", {**LOOPBACK, "eth0": ["10.0.0.1", "fd00::5"]}, "::"),
        ("b1.example", {**LOOPBACK, "eth0": ["10.0.0.1", "fd00::5"]}, ""),
        ("b1.example", {**LOOPBACK, "eth0": ["fd00::5"]}, "::"),
        ("b1.example", LOOPBACK, ""),
        ("b1.example", {"lo": ["::1"]}, "::"),
        ("b1.example", {}, ""),
    ],
)
def test_only_a_host_without_ipv4_listens_on_ipv6(advertised: str, interfaces: dict[str, list[str]], host: str) -> None:
    assert listen_host(None, advertised, MadeMachine(interfaces=interfaces)) == host


def test_this_machine_reports_its_loopback_interface() -> None:
    assert "lo" in THIS_MACHINE.interfaces()
    assert own_address("lo") == "127.0.0.1"
    assert "127.0.0.1" in THIS_MACHINE.addresses()


def test_a_port_on_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"cannot listen on 192\.0\.2\.1:0: .*Check listeningInterface"
    ) as caught:
        PortReservation("192.0.2.1", 0)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EADDRNOTAVAIL
