"""Texts of other processes: JSON, and the strings of protobuf messages. Pure.

The libraries raise more than they promise: `json.loads` raises RecursionError for JSON that is nested too deep (a few
KiB of "["), and protobuf returns bytes, typed as str, for a string that is not UTF-8.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, and nothing else, for one that cannot be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def proto_text(value: str, errors: str = "strict") -> str:
    """Return a string of a protobuf message as text.

    errors: as of `bytes.decode`; "replace" is what Java does with bytes that are not UTF-8. Raises UnicodeDecodeError,
    as other releases of protobuf do where the string is taken out of the message.
    """
    found: object = value
    return found.decode("utf-8", errors) if isinstance(found, bytes) else value
