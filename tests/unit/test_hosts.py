"""Hosts that the system reads as numbers."""

from __future__ import annotations

import pytest

from bookkeeper.system.hosts import check_no_number, read_as_number


@pytest.mark.parametrize(
    ("host", "number"),
    [
        ("12345", "0.0.48.57"),
        ("10.1", "10.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("10.0.0.1", None),
        ("fd00::5", None),
        ("123456789012", None),  # too large for an address, so it is looked up as a name
        ("host1", None),
        ("1a", None),
    ],
)
def test_what_the_system_reads_as_a_number(host: str, number: str | None) -> None:
    assert read_as_number(host) == number


def test_a_number_is_refused_with_the_address_that_it_means() -> None:
    assert [check_no_number(host) for host in ("host1", "10.0.0.1", "[::1]")] == ["host1", "10.0.0.1", "[::1]"]
    with pytest.raises(ValueError, match=r"'2001' is a number.* the address 0\.0\.7\.209; write a name or an address"):
        check_no_number("2001")
