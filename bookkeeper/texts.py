"""Texts from other processes: JSON, and strings of protobuf messages. Pure.

The libraries do not do what they document. `json.loads` raises RecursionError for deeply nested JSON (a few KiB of
"["). protobuf returns bytes, typed as str, for a string that is not UTF-8.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, and no other error, if the text is unreadable."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def proto_text(value: str, errors: str = "strict") -> str:
    """Return a string of a protobuf message as text.

    errors: as for `bytes.decode`; "replace" is Java's treatment of bytes that are not UTF-8. Raises UnicodeDecodeError,
    as other releases of protobuf do when the string is read from the message.
    """
    found: object = value
    return found.decode("utf-8", errors) if isinstance(found, bytes) else value
