"""Which requests an HTTP server answers at all. Pure; one rule for bookie, auto-recovery, hub and name node.

A length of a body is refused by its digits: `int` of CPython raises ValueError beyond 4300 of them, and twisted.web
does not catch it.
"""

from __future__ import annotations

LENGTH_DIGITS_MAX = 19
"""Digits of Content-Length, leading zeros included: as many as 2**63 has."""


def length_refusal(header_line: bytes) -> str:
    """Return why a line of a request's header cannot be taken, or "": a Content-Length with too many digits."""
    name, _, value = header_line.partition(b":")
    digits = len(value.strip())
    if name.strip().lower() != b"content-length" or digits <= LENGTH_DIGITS_MAX:
        return ""
    return f"Content-Length has {digits} digits; it may have {LENGTH_DIGITS_MAX}"
