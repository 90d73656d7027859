"""Where a subscription begins that asks to begin elsewhere: the option hw.replay (hedwig/protocol/replay.py).

    replay_wanted ---> where_of: an id ---while nothing is trimmed---> at_id: clamped to what is kept ---> stored
                       (a time is looked up in the messages)

What is not kept any more cannot come again. Then the subscription begins at the oldest message that is, and the hub
logs how many are missing: refused, a reader of "the last week" would get nothing because an hour of it is gone. The
subscriber sees it by the first id that it gets. Thread: reactor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookkeeper.errors import RemoteProtocolError
from hedwig.errors import ServiceDown, UnexpectedCondition
from hedwig.model import FIRST_ID, LocalId, MessageId
from hedwig.protocol.options import Replay
from hedwig.protocol.publish_time import time_of
from hedwig.protocol.replay import at_time
from hedwig.wire.messages import PROPERTIES_MAX, stored_id
from hedwig.wire.view import MessageView

if TYPE_CHECKING:
    from hedwig.hub.topics.log import TopicLog
    from hedwig.hub.topics.reads import TopicReader

ATTEMPTS_MAX = 5


async def where_of(wanted: Replay, log: TopicLog, reader: TopicReader) -> LocalId:
    """The first message that is asked for, which need not be there (any more). Raises BookKeeperError."""
    if wanted.local_id is not None:
        return wanted.local_id
    if wanted.time_ms is None:
        return FIRST_ID
    for _ in range(ATTEMPTS_MAX):
        try:
            return await _at_time(wanted.time_ms, log, reader)
        except UnexpectedCondition:
            continue  # trimmed under our hands: what is left is looked at anew
    raise ServiceDown(f"the messages of topic {log.topic!r} cannot be looked through: they are being trimmed")


async def _at_time(time_ms: int, log: TopicLog, reader: TopicReader) -> LocalId:
    there = [each for each in await reader.facts() if not each.gone]
    plan = at_time(there, log.durable_id, time_ms)
    try:
        asked = next(plan)
        while True:
            asked = plan.send(await published_ms(asked, reader))
    except StopIteration as found:
        position: LocalId = found.value
        return position


async def published_ms(local_id: LocalId, reader: TopicReader) -> int | None:
    """When a message was published, if it says so. Raises UnexpectedCondition where it is not kept, BookKeeperError."""
    messages = await reader.read(local_id, 1)
    try:
        return time_of(MessageView(messages[0], PROPERTIES_MAX).properties) if messages else None
    except RemoteProtocolError:  # also for too many properties: such a message has no time
        return None


async def id_before(next_id: LocalId, log: TopicLog, reader: TopicReader) -> MessageId:
    """What is consumed where `next_id` comes next: with what was known of other regions then, as far as it is there."""
    local_id = LocalId(next_id - 1)
    if not log.last_id.remote or local_id < max(FIRST_ID, log.first_id):
        return MessageId(local_id)
    [message] = await reader.read(local_id, 1)
    return stored_id(message)
