"""What all handles of one client share: the ports, the settings, the bookies and their channels.

Thread: reactor. Nothing here knows where time, bytes or randomness come from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.bookies.access_errors import Refusal, refusal_of
from bookkeeper.client.bookies.connection import BookieChannel
from bookkeeper.client.bookies.directory import BookieChannels, BookieDirectory
from bookkeeper.client.bookies.disk_space import DiskSpace, ask_disk_space
from bookkeeper.client.bookies.placement import RackOf, spans_racks
from bookkeeper.client.bookies.tls import security_of
from bookkeeper.client.bookies.unsupported import BookiesWithout
from bookkeeper.client.bookies.weights import DiskWeights
from bookkeeper.client.read.batch import BatchAbility
from bookkeeper.client.read.speculation import LateReads
from bookkeeper.client.write.add_deadlines import DeadlineWatch
from bookkeeper.client.write.explicit_lac import LacClock
from bookkeeper.client.write.routes import RouteTable
from bookkeeper.client.write.turn_flush import TurnFlush
from bookkeeper.errors import BookKeeperError, ClientClosed, NotEnoughBookies, UnauthorizedAccess, WrongPassword
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata, Status
from bookkeeper.protocol.reads import Speculation
from bookkeeper.protocol.schedule import write_set
from bookkeeper.wire import codec
from bookkeeper.wire.status import error_of

if TYPE_CHECKING:
    from bookkeeper.client.bookies.nearness import Nearness
    from bookkeeper.config import ClientSettings
    from bookkeeper.metadata.store import MetadataStore
    from bookkeeper.ports import Clock, Network
    from bookkeeper.wire import v2, v3

log = Logger()

V2, V3 = 2, 3


class ClientContext:
    """One client's shared parts, and the end of them."""

    def __init__(
        self,
        store: MetadataStore,
        network: Network,
        clock: Clock,
        rng: random.Random,
        settings: ClientSettings,
        *,
        rack_of: RackOf,
        nearness: Nearness | None = None,
        now_ms: Callable[[], int] | None,
    ) -> None:
        self._security = security_of(settings, clock.seconds)  # first: what cannot be protected must not be sent
        self.store, self.network, self.clock, self.rng, self.settings = store, network, clock, rng, settings
        self.rack_of = rack_of
        self._nearness = nearness
        self.now_ms = now_ms
        self.turn = TurnFlush(clock)
        self.directory = BookieDirectory(store.bookies, clock, quarantine_s=settings.quarantine_s)
        self.without_long_poll = BookiesWithout(self.directory.epoch)
        self.batches = BatchAbility(self.directory.epoch, clock)
        self.version = V2 if settings.use_v2 else V3
        # One encoder per version for all connections: the frame of an entry serves all its replicas.
        self._v3_encoder: v3.RequestEncoder | None = None
        self._v2_copy_encoder: v2.RequestEncoder | None = None
        self.v2_encoder = codec.v2_encoder(settings.frame_size_max) if settings.use_v2 else None
        self.encoder: codec.RequestEncoder = self.v2_encoder or self.v3_encoder
        self.channels = BookieChannels(self._make_channel, clock, idle_s=settings.idle_connection_s)
        self.routes = RouteTable(self.channel)
        self.deadlines = DeadlineWatch(clock)
        delay_s = settings.speculative_read_delay_s
        self.late_reads = LateReads(clock, delay_s) if delay_s > 0 else None
        self.lac_clock = LacClock(clock, settings.explicit_lac_interval_s, self.turn, self.directory.epoch)
        self.closed = False
        self.ids_passed_over = 0  # generated ledger ids not used, as bookies held something under them
        self.written: set[LedgerId] = (
            set()
        )  # ledgers with a handle that was not closed in order: answers may still come
        self._tasks: dict[Deferred[None], None] = {}  # in order, so that closing is the same in every run of one seed
        self._on_close: dict[object, Callable[[], object]] = {}
        self.weights = self._follow_disk_space() if settings.disk_weights else None
        """How much likelier than the others each bookie is chosen; None: all alike."""

    def _follow_disk_space(self) -> DiskWeights:
        disk_space = DiskSpace(
            self.store.bookies,
            self.clock,
            lambda bookie_id: Deferred.fromCoroutine(ask_disk_space(self, bookie_id)),
            interval_s=self.settings.info_interval_s,
            retry_interval_s=self.settings.info_retry_interval_s,
        )
        self.on_close(disk_space, disk_space.stop)
        disk_space.start()
        return DiskWeights(disk_space.free_bytes, self.settings.disk_weight_multiple_max)

    def _make_channel(self, bookie_id: BookieId, version: int) -> BookieChannel:
        channel = BookieChannel(
            bookie_id,
            self._encoder_of(version),
            directory=self.directory,
            network=self.network,
            clock=self.clock,
            settings=self.settings,
            flush=self.turn,
            full=self.channels.full,
            security=self._security,
        )
        channel.optional = version != self.version
        return channel

    def _encoder_of(self, version: int) -> codec.RequestEncoder:
        if version == self.version:
            return self.encoder
        if version == V3:
            return self.v3_encoder
        if self._v2_copy_encoder is None:
            self._v2_copy_encoder = codec.v2_encoder(self.settings.frame_size_max)
        return self._v2_copy_encoder

    def copy_encoder(self, bodies: Sequence[bytes]) -> codec.RequestEncoder:
        """Return the encoder for recovery adds of existing entries.

        It has the client's version, but v2 if a body is too large for a v3 add: v2 writers of earlier releases and of
        Apache wrote such entries. Use channels of the encoder's version.
        """
        fits = max(map(len, bodies), default=0) <= self.encoder.copy_size_max
        return self.encoder if fits else self._encoder_of(V2)

    @property
    def v3_encoder(self) -> v3.RequestEncoder:
        """Made at first need: it loads protobuf."""
        if self._v3_encoder is None:
            self._v3_encoder = codec.v3_encoder(self.settings.frame_size_max)
        return self._v3_encoder

    def channel(self, bookie_id: BookieId) -> BookieChannel:
        """For adds and reads."""
        return self.channels.get(bookie_id, self.version)

    def v3_channel(self, bookie_id: BookieId) -> BookieChannel:
        """For what only v3 has."""
        return self.channels.get(bookie_id, V3)

    def trial_channel(self, bookie_id: BookieId) -> BookieChannel:
        """For an operation on which an old bookie ends the connection: nobody else's requests are on this one."""
        return self.channels.get(bookie_id, self.version, trial=True)

    def recovery_channel(self, bookie_id: BookieId, ledger_id: LedgerId, version: int | None = None) -> BookieChannel:
        """For recovering a ledger. v2 answers name no request: a writer's late ones must not pass for a recoverer's.

        version: for adds that of `copy_encoder`; None: the client's.
        """
        return self.channels.get(bookie_id, version or self.version, apart=ledger_id in self.written)

    def copy_channel(self, bookie_id: BookieId, version: int) -> BookieChannel:
        """Return the channel for copies of entries. No other adds share it: v2 answers to adds carry no request id.

        version: that of `copy_encoder`.
        """
        return self.channels.get(bookie_id, version, apart=True)

    @property
    def speculation(self) -> Speculation | None:
        """When a slow read is sent to the next replica too; None: never."""
        settings = self.settings
        if settings.speculative_read_delay_s <= 0:
            return None
        return Speculation(
            first_s=settings.speculative_read_delay_s,
            max_s=settings.speculative_read_delay_max_s,
            multiplier=settings.speculative_read_backoff,
        )

    @property
    def lac_speculation(self) -> Speculation | None:
        """When a wait for the next entry goes to a further bookie; None: never."""
        settings = self.settings
        if settings.speculative_lac_delay_s <= 0:
            return None
        return Speculation(
            first_s=settings.speculative_lac_delay_s,
            max_s=settings.speculative_lac_delay_max_s,
            multiplier=settings.speculative_lac_backoff,
        )

    def reading_order(self, bookies: tuple[BookieId, ...]) -> Sequence[BookieId]:
        """Replicas of an entry in the order to ask them: those that failed lately, or are not registered, last.

        Among those that are alike in this the nearest first, where the settings want that, else as they come.
        """
        if self.directory.all_well(bookies):
            return bookies if self._nearness is None else sorted(bookies, key=self._distance)
        quarantined = self.directory.quarantined

        def rank(bookie_id: BookieId) -> tuple[int, int]:
            ill = (bookie_id in quarantined) + 2 * (not self.directory.is_registered(bookie_id))
            return ill, self._distance(bookie_id)

        return sorted(bookies, key=rank)

    def _distance(self, bookie_id: BookieId) -> int:
        if self._nearness is None:
            return 0
        address = self.directory.address_of(bookie_id)
        return self._nearness.distance(bookie_id, None if address is None else address[0])

    def first_replica(self, metadata: LedgerMetadata, entry_id: int) -> BookieId:
        """Whom to ask first for one entry."""
        ensemble = metadata.fragment_of(entry_id).ensemble
        if self._nearness is None and self.directory.all_well(ensemble):
            return ensemble[entry_id % len(ensemble)]
        indexes = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
        return self.reading_order(tuple(ensemble[index] for index in indexes))[0]

    def check_let_in(self, bookies: Sequence[BookieId]) -> None:
        """Raise a Refusal if all of the bookies are known to refuse this client."""
        refusals: dict[str, Refusal] = {}
        for bookie_id in bookies:
            why = self.channel(bookie_id).keeps_out
            if why is None:
                return
            refusals[bookie_id] = why
        raise refusal_of("no ledger was created", refusals, refusals)

    def check_racks(self, ensemble: Sequence[BookieId], write_quorum: int) -> None:
        """Raise NotEnoughBookies where the settings insist on racks and the ensemble does not span them."""
        settings = self.settings
        racks_min = settings.racks_per_write_quorum_min
        if settings.enforce_racks_per_write_quorum and not spans_racks(ensemble, write_quorum, self.rack_of, racks_min):
            placed = ", ".join(f"{bookie} in {self.rack_of(bookie)}" for bookie in ensemble)
            raise NotEnoughBookies(
                f"no write quorum of {write_quorum} over {racks_min} racks can be had for each entry (best: {placed}); "
                "start bookies in other racks, check networkTopologyFile, or set enforceMinNumRacksPerWriteQuorum=false"
            )

    def error_of(
        self, status: Status, *, bookie_id: str = "", ledger_id: int | None = None, entry_id: int | None = None
    ) -> BookKeeperError:
        """A bookie's verdict as an error; "unauthorized" with all that may be behind it."""
        return self.with_hint(error_of(status, bookie_id=bookie_id, ledger_id=ledger_id, entry_id=entry_id))

    @property
    def security_hint(self) -> str:
        """The security setting that this client lacks and a refusing bookie may require; "" if it lacks none."""
        return self._security.hint

    def with_hint(self, error: BookKeeperError) -> BookKeeperError:
        """The error; one that blames the password with what else the bookie may want."""
        if not self._security.hint or not isinstance(error, UnauthorizedAccess | WrongPassword):
            return error
        told = UnauthorizedAccess(
            f"{error}; or {self._security.hint}",
            bookie_id=error.bookie_id if isinstance(error, UnauthorizedAccess) else "",
            ledger_id=error.ledger_id,
            entry_id=error.entry_id,
        )
        told.__cause__ = error
        return told

    def unauthorized(self, bookie_id: BookieId, ledger_id: int | None = None) -> UnauthorizedAccess:
        """The error for a request without a password that was "unauthorized" all the same."""
        about = "" if ledger_id is None else f" ledger {ledger_id}"
        why = self._security.hint or "see the bookie's log"
        message = f"bookie {bookie_id}{about}: {Status.UNAUTHORIZED.value}: {why}"
        return UnauthorizedAccess(message, bookie_id=bookie_id, ledger_id=ledger_id)

    def check_open(self) -> None:
        """Raise ClientClosed after `close`."""
        if self.closed:
            raise ClientClosed("the client is closed; connect again")

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Run background work that nobody waits for; it is cancelled when the client closes."""
        task = Deferred.fromCoroutine(work)
        self._tasks[task] = None

        def done(result: Failure | None) -> None:
            self._tasks.pop(task, None)
            if not isinstance(result, Failure) or isinstance(result.value, CancelledError | ClientClosed):
                return
            if isinstance(result.value, BookKeeperError):
                log.info("{what}: {error}", what=what, error=result.value)
            else:
                log.failure("{what}", failure=result, what=what)

        task.addBoth(done)

    def on_close(self, key: object, call: Callable[[], object]) -> None:
        """Call when the client closes, unless `forget_close(key)` comes first."""
        self._on_close[key] = call

    def forget_close(self, key: object) -> None:
        """Its owner is finished by itself."""
        self._on_close.pop(key, None)

    def close(self) -> None:
        """Fail what is pending, close all connections. Ledgers stay as they are; their readers recover OPEN ones."""
        if self.closed:
            return
        self.closed = True
        for call in list(self._on_close.values()):
            call()
        self._on_close.clear()
        if self.late_reads is not None:
            self.late_reads.close()
        self.channels.close()
        self.directory.close()
        for task in list(self._tasks):
            task.cancel()
