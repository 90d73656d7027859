"""Where a subscription begins again: what `seek` and `start` take, and the option it becomes. Pure.

    5, MessageId, a message     with that message, or the oldest that is kept if it is not; 1 is the oldest. Where there
                                is no such message yet, with the next one that is published, whatever its id
    datetime                    with what was published then or later; with a time zone

Needs a hub of this project: Apache's stores the option, and would go on where it is; it is noticed, and told.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from bookkeeper.errors import InvalidArgument
from hedwig.client.faces.values import id_of, shown
from hedwig.model import FIRST_ID, MessageId
from hedwig.wire.receiving import Received

Start: TypeAlias = int | MessageId | Received | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def replay_option(start: Start) -> bytes:
    """A wish that differs from all before: a hub grants each once. Raises InvalidArgument."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidArgument(f"{start} has no time zone: give it one, such as datetime.UTC")
        wanted = f"time:{max(0, (start - _EPOCH) // timedelta(milliseconds=1))}"
    elif isinstance(start, int | Received | MessageId):
        wanted = f"id:{max(FIRST_ID, id_of(start, 'start', low=0).local)}"  # 0 as 1: before all
    else:
        raise InvalidArgument(
            f"start is {shown(start)}, and must be a message, a MessageId, an id as an int, or a datetime with a time "
            "zone"
        )
    return f"{wanted};{secrets.token_hex(6)}".encode()
