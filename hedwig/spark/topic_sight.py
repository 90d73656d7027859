"""What is kept of topics now, for planners that ask once or again and again, without fencing.

The list of a topic's ledgers is read at each look. While the last ledger is being written, it ends with the last
confirmed message. The hub confirms a message with the next one, within its `explicitLacInterval`, or by ending the
ledger. That ledger is opened once and kept open. The last look of a query that ends also asks the hub, if bookies hold
more than is confirmed (`hedwig.admin.topic_ends`).

A topic that somebody has deleted by hand and made anew under its name begins with message 1 again. That is noticed
while a reader is at work (a message is in another ledger than before), and by who comes back to a position that is
beyond its end; not where it has grown beyond that position meanwhile, or where its newest ledger is gone, so that
nobody knows its end.

Bounds: HANDLES_MAX ledgers kept open; SIZES_MAX sizes of ended ones remembered. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from twisted.logger import Logger

from bookkeeper.client.parallel import in_parallel
from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.errors import EntryMissing, NoSuchEntry, NoSuchLedger, ReadBeyondEnd, RemoteProtocolError
from bookkeeper.model import LedgerMetadata
from bookkeeper.spark.said_as import LOSS_BORNE, OF_OPTIONS, Words
from hedwig.admin.region import Region
from hedwig.admin.topic_ends import TopicEnds, end_of_topic
from hedwig.model import FIRST_ID, LedgerRange
from hedwig.protocol.publish_time import time_of
from hedwig.spark.topic_absence import check_topic
from hedwig.spark.topic_options import topic_of
from hedwig.spark.topic_parts import Kept, check_chain, check_same
from hedwig.wire.view import MessageView

log = Logger()

AT_ONCE = 64
"""Topics, or ledgers, asked about at a time."""

HANDLES_MAX = 1_000
SIZES_MAX = 10_000

NO_IDS: Mapping[str, int] = MappingProxyType({})


class Facts(NamedTuple):
    """Of one ledger: entries 0..end, `length` bytes of payload."""

    metadata: LedgerMetadata
    end: int
    length: int

    @property
    def mean_size(self) -> float:
        """Bytes of an entry, on average; 0.0 where there is none."""
        return self.length / (self.end + 1) if self.end >= 0 else 0.0


class TopicSight:
    """The sight that one reader has of its topics.

    fail_on_data_loss: a ledger that is listed and gone is an error. acknowledged: of some topics, one past the last
    message that is known to be stored, whatever the bookies were told. words: for errors, of who asks. ends: returns
    a TopicEnds for the last look; None: only bookies are asked.
    """

    def __init__(
        self,
        region: Region,
        *,
        fail_on_data_loss: bool,
        acknowledged: Mapping[str, int] = NO_IDS,
        words: Words = OF_OPTIONS,
        ends: Callable[[], TopicEnds] | None = None,
    ) -> None:
        self.region, self.words = region, words
        self._fail_on_data_loss, self._acknowledged = fail_on_data_loss, acknowledged
        self._ends = ends
        self._known: dict[str, tuple[int, int]] = {}  # of a topic the last ledger, and its end from the hub
        self._open: dict[int, ReadHandle] = {}
        self._ended: dict[int, Facts] = {}
        self._newest: dict[str, tuple[int, int]] = {}  # of a topic the last message that was seen, and its ledger
        self._lost: dict[str, int] = {}  # of a topic the newest ledger, which is gone; told

    async def see(self, topics: Iterable[str], *, is_last: bool = False) -> dict[str, Kept]:
        """What is kept of each. Raises InvalidArgument for one that there is not; BookKeeperError.

        is_last: nothing behind the ends will be read, so hubs are asked for them too.
        """
        found: dict[str, Kept] = {}
        ends = self._ends() if is_last and self._ends is not None else None

        async def look(topic: str) -> None:
            kept = found[topic] = await self._see_one(topic, ends)
            if kept.ranges and kept.end > (kept.ranges[-1].first or FIRST_ID):
                self._newest[topic] = kept.end - 1, kept.ranges[-1].ledger_id

        await self.region.check()  # what was written before is seen: behind a checkpoint nothing may be missing
        try:
            await in_parallel((look(topic) for topic in topics), AT_ONCE)
        finally:
            if ends is not None:
                ends.close()
        written = {kept.ranges[-1].ledger_id for kept in found.values() if kept.ranges and not kept.final}
        for done in self._open.keys() - written:
            await self._let_go(done)
        return found

    async def _see_one(self, topic: str, ends: TopicEnds | None) -> Kept:
        ranges = tuple(await self.region.ranges(topic_of(topic)))
        if not ranges:
            await check_topic(self.region, topic, self.words)
        if topic in self._newest:
            check_same(topic, ranges, *self._newest[topic])
        if not ranges:
            return Kept(topic, (), FIRST_ID, final=False)
        check_chain(topic, ranges)
        last = ranges[-1]
        if last.last is not None:
            return Kept(topic, ranges, last.last.local + 1, final=True)
        base = last.first or FIRST_ID
        try:
            handle = await self._written(last)
        except NoSuchLedger as error:
            what = f"ledger {last.ledger_id}, with the newest messages of topic {topic!r} from {base} on, is gone"
            if self._fail_on_data_loss:
                raise NoSuchLedger(what + self.words.remedy("With {} they are left out", LOSS_BORNE)) from error
            if self._lost.get(topic) != last.ledger_id:  # once: a stream looks again and again
                self._lost[topic] = last.ledger_id
                log.warn("{what}; they are left out ({word})", what=what, word=self.words.word(LOSS_BORNE))
            return Kept(topic, ranges[:-1], base, final=False, lost_from=base)
        end, unconfirmed = base + handle.last_add_confirmed + 1, None
        if not handle.closed:
            end = max(end, self._acknowledged.get(topic, end))
            known_ledger, known_end = self._known.get(topic, (None, end))
            if known_ledger == last.ledger_id:
                end = max(end, known_end)
        if not handle.closed and ends is not None:
            last_id, unconfirmed = await end_of_topic(
                self.region, topic_of(topic), last, handle, ends, at_least=end - 1
            )
            end = last_id + 1
            self._known[topic] = last.ledger_id, end
        return Kept(topic, ranges, end, final=handle.closed, unconfirmed=unconfirmed)

    async def _written(self, ledger: LedgerRange) -> ReadHandle:
        """The ledger that is written, asked just now how far it is confirmed."""
        handle = self._open.get(ledger.ledger_id)
        if handle is None:
            handle = await self.region.open(ledger.ledger_id)
            if len(self._open) >= HANDLES_MAX:
                await self._let_go(next(iter(self._open)))
            self._open[ledger.ledger_id] = handle
        await handle.read_last_confirmed()  # opening waits for a covering set only: later answers count by now
        return handle

    async def facts(self, ledger_id: int) -> Facts:
        """Of a ledger of a topic that was seen just now. Raises NoSuchLedger, BookKeeperError."""
        handle = self._open.get(ledger_id)
        if handle is None and ledger_id in self._ended:
            return self._ended[ledger_id]
        if handle is None:
            metadata = await self.region.client.metadata(ledger_id)
            if metadata.last_entry_id is not None and metadata.length is not None:
                if len(self._ended) >= SIZES_MAX:
                    self._ended.clear()
                found = self._ended[ledger_id] = Facts(metadata, metadata.last_entry_id, metadata.length)
                return found
            handle = await self.region.open(ledger_id)  # listed as ended, and not closed yet
            try:
                return Facts(handle.metadata, handle.last_add_confirmed, handle.length)
            finally:
                await handle.close()
        return Facts(handle.metadata, handle.last_add_confirmed, handle.length)

    async def mean_size(self, kept: Kept, position: int) -> float:
        """About how many bytes the messages from `position` on have; 0.0 where that is not known."""
        holders = [each for each in kept.ranges if (each.first or FIRST_ID) <= position]
        if not holders:
            return 0.0
        try:
            return (await self.facts(holders[-1].ledger_id)).mean_size
        except NoSuchLedger:
            return 0.0  # who reads it says so

    async def time_of_message(self, kept: Kept, message_id: int) -> int | None:
        """When a message was published, if it says so. It must be kept, and confirmed. Raises BookKeeperError."""
        ledger = next(each for each in reversed(kept.ranges) if (each.first or FIRST_ID) <= message_id)
        payload = await self._payload(ledger, message_id)
        try:
            return time_of(MessageView(payload).properties)
        except RemoteProtocolError:
            return None

    async def check_reached(self, kept: Kept, position: int) -> None:
        """Raise InvalidArgument where a query cannot have come to `position`: it is another topic of this name.

        An older look at a ledger that is written may show less than was seen before; but the message before the
        position is there then. Where the newest ledger is gone, and that is borne, the query waits for what comes
        behind it. Raises BookKeeperError where that cannot be told.
        """
        kept.check_reached(position)
        if position > kept.end and kept.lost_from is None:
            try:
                await self._payload(kept.ranges[-1], position - 1)
            except (EntryMissing, NoSuchEntry, ReadBeyondEnd):
                raise kept.is_another(position) from None

    async def _payload(self, ledger: LedgerRange, message_id: int) -> bytes:
        """Of a message that is in a ledger, confirmed or not."""
        entry_id = message_id - (ledger.first or FIRST_ID)
        held = self._open.get(ledger.ledger_id)
        handle = held if held is not None else await self.region.open(ledger.ledger_id)
        try:
            [entry] = await handle.read_unconfirmed(entry_id, entry_id)
            return bytes(entry.payload)
        finally:
            if held is None:
                await handle.close()

    async def _let_go(self, ledger_id: int) -> None:
        handle = self._open.pop(ledger_id, None)
        if handle is not None:
            await handle.close()

    async def close(self) -> None:
        """Let go of all ledgers."""
        for ledger_id in list(self._open):
            await self._let_go(ledger_id)
