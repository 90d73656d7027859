"""Which requests HTTP servers answer at all; without sockets."""

from __future__ import annotations

import pytest

from bookkeeper.admin.http.access import LENGTH_DIGITS_MAX, length_refusal


@pytest.mark.parametrize(
    "line", [b"Content-Length: 12", b"content-length:" + b"9" * LENGTH_DIGITS_MAX, b"X: " + b"9" * 99]
)
def test_a_length_with_few_digits_is_taken(line: bytes) -> None:
    assert length_refusal(line) == ""


@pytest.mark.parametrize("line", [b"Content-Length: " + b"9" * 20, b"CONTENT-LENGTH:" + b"0" * 5000])
def test_a_length_with_many_digits_is_refused(line: bytes) -> None:
    assert "Content-Length has" in length_refusal(line)
