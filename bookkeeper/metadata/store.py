"""The seams between the system and its metadata: ledgers, registrations, cookies, the cluster itself.

`zookeeper.connect` makes the real store, `memory.MemoryMetadataStore` the simulated one; both run the same code over a
`tree.Tree` of znodes. Everything here runs on the reactor thread and returns Deferreds; importing it imports neither
kazoo nor a reactor.

What holds for every method:
  * every change is a compare-and-set on the version it was decided on (I-15);
  * a change whose reply was lost is looked up before the method answers; if that cannot be done in time it fails with
    MetadataOutcomeUnknown, and only then has the caller to consider both outcomes (I-16);
  * absent (NoSuchLedger, None), unreadable (MetadataCorrupt, MetadataTooNew) and unreachable (MetadataUnavailable) are
    three different answers (I-18);
  * a read may lag behind other clients' changes unless `MetadataStore.sync` fired after they were made (I-19).
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bookkeeper.errors import MetadataError
from bookkeeper.model import (
    AvailableBookies,
    BookieId,
    BookieMode,
    BookieServiceInfo,
    LedgerId,
    LedgerMetadata,
    Versioned,
)

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bookkeeper.metadata.layout import Layout

LISTING_BATCH_MAX = 1000
"""Ledger ids in one batch of `LedgerStore.ids`."""

LedgerListener = Callable[[Versioned[LedgerMetadata] | None], object]
BookiesListener = Callable[[AvailableBookies], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSettings:
    """Bounds and credentials of one connection to the metadata store.

    session_timeout_s: Apache's zkTimeout; also the bound of the first connection.
    operation_timeout_s: bound of one operation with all its retries and look-ups. It exceeds the session timeout, so
    that an operation outlives the silent death of one server of several.
    registration_wait_s: how long a registration waits for another session's node of the same bookie to vanish.
    Differs from Apache: longer than zkTimeout, since a server expires sessions in ticks of up to 2 s and a bookie
    killed and restarted at once would otherwise fail by a hair.
    secure: create everything with "creator: all" instead of "world: all" (zkEnableSecurity); needs digest_auth.
    digest_auth: "user:password" of ZooKeeper's digest scheme, or None.
    unknown_host_waits: go on looking up a host that does not exist until the session timeout, as a server does that may
    be started before its name is; otherwise that is an error at once, as for a command with a mistyped address.
    """

    session_timeout_s: float = 10.0
    operation_timeout_s: float = 15.0
    registration_wait_s: float = 13.0
    operations_in_flight_max: int = 256
    operations_waiting_max: int = 65_536
    retry_delay_s: float = 0.05
    retry_delay_max_s: float = 1.0
    secure: bool = False
    digest_auth: str | None = None
    unknown_host_waits: bool = False


class StoreState(enum.Enum):
    """What the connection is worth right now."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no server at the moment; the session may still be alive: trust nothing that ages
    LOST = "lost"  # the session is over, its registrations and watches with it; a new one is being made
    CLOSED = "closed"


class RegistrationEvent(enum.Enum):
    """What happened to this process's registration after `register` had succeeded."""

    LOST = "lost"  # the session ended, and the registration with it; it is being renewed
    RENEWED = "renewed"  # registered again, in the mode asked for last
    FAILED = "failed"  # given up: another process holds the id, or access was refused


RegistrationListener = Callable[[RegistrationEvent, MetadataError | None], object]


class Watch(Protocol):
    """A subscription."""

    def cancel(self) -> None:
        """No further callbacks, not even ones under way. Harmless when repeated."""


class LedgerStore(Protocol):
    """Ledger metadata by ledger id."""

    def prepare(self) -> Deferred[Layout]:
        """Read the cluster's ledger layout, or choose it where there is none yet. The other calls do so by themselves.

        Raises LayoutMismatch when the layout is not the one asked for, NotInitialised where there is no cluster.
        """

    def create(
        self, metadata: LedgerMetadata, ledger_id: LedgerId | None = None
    ) -> Deferred[tuple[LedgerId, Versioned[LedgerMetadata]]]:
        """Store a new ledger under `ledger_id`, or under a fresh id. Version 3 metadata gains a creator token.

        Raises LedgerExists for a chosen id that is taken.
        """

    def read(self, ledger_id: LedgerId) -> Deferred[Versioned[LedgerMetadata]]:
        """The ledger's metadata. Raises NoSuchLedger, MetadataCorrupt, MetadataTooNew."""

    def write(self, ledger_id: LedgerId, metadata: LedgerMetadata, version: int) -> Deferred[Versioned[LedgerMetadata]]:
        """Replace the metadata that had `version`. Raises VersionConflict, NoSuchLedger."""

    def delete(self, ledger_id: LedgerId, version: int) -> Deferred[None]:
        """Remove the ledger that has `version`; one that is gone already counts as removed. Raises VersionConflict."""

    def watch(
        self,
        ledger_id: LedgerId,
        on_change: LedgerListener,
        *,
        after_version: int = -1,
        on_error: Callable[[MetadataError], object] | None = None,
    ) -> Watch:
        """Tell `on_change` the metadata soon, then every newer version seen; versions only rise, some may be skipped.

        after_version: older or equal versions are not told. None is told once, when the ledger is gone; the watch then
        ends. `on_error` hears of a record that cannot be read, and the watch goes on; or that access was refused, or
        that there is no cluster, and the watch ends. Survives session loss. May call back before it returns.
        """

    def ids(self) -> AsyncIterator[list[LedgerId]]:
        """All ledger ids, ascending, in batches of 1..LISTING_BATCH_MAX; lazily, so memory is bounded.

        Ledgers created or deleted meanwhile may or may not appear. Any failure raises: a listing that ends is complete.
        """


class BookieWatch(Protocol):
    """Who is registered."""

    def current(self) -> Deferred[AvailableBookies]:
        """The registered bookies now."""

    def watch(self, on_change: BookiesListener) -> Watch:
        """Tell `on_change` the registered bookies soon, then after every change and every re-registration.

        While the store is not connected nothing is told; afterwards the whole is read anew. May call back before it
        returns.
        """

    def epoch(self, bookie_id: BookieId) -> int | None:
        """Number of the bookie's newest registration as last told or read; rises with every new one; None if not there.

        A connection accepted is no proof that a bookie serves, a newer registration is.
        """


class SessionRecord(Protocol):
    """The sessions of one bookie's processes, kept where only one process at a time can be."""

    def known(self) -> Collection[int]:
        """Sessions noted; all but this process's newest are over, or their process is certainly dead."""

    def add(self, session_id: int) -> Deferred[None]:
        """Note this process's session; fires once that is durable. Never fails."""


class Registration(Protocol):
    """This process's own bookie registration; gone when its session is."""

    def register(self, bookie_id: BookieId, info: BookieServiceInfo, mode: BookieMode) -> Deferred[None]:
        """Publish the bookie, or change the mode or info of the one published. Kept up after session loss by itself.

        Another session's registration of the id is waited for up to `registration_wait_s`, then AlreadyRegistered.
        """

    def keep_sessions(self, record: SessionRecord) -> None:
        """From now on note each session before it registers, and remove what recorded earlier ones left at once."""

    def unregister(self, bookie_id: BookieId) -> Deferred[None]:
        """Withdraw it. Harmless when it is not registered."""

    def is_registered(self, bookie_id: BookieId) -> Deferred[bool]:
        """Whether any process has registered this bookie, in either mode."""

    def watch(self, on_event: RegistrationListener) -> Watch:
        """Hear of loss and renewal; the error is given with FAILED only."""


class Cookies(Protocol):
    """Cookies, as raw bytes; `metadata.cookie` reads them."""

    def read(self, bookie_id: BookieId) -> Deferred[Versioned[bytes] | None]:
        """The bookie's cookie; None when it certainly has none."""

    def write(self, bookie_id: BookieId, data: bytes, version: int | None) -> Deferred[Versioned[bytes]]:
        """Create (version None) or replace the cookie. Raises VersionConflict when it is there, or has changed."""

    def delete(self, bookie_id: BookieId, version: int) -> Deferred[None]:
        """Remove the cookie that has `version`. Raises VersionConflict; one that is gone counts as removed."""

    def all(self) -> Deferred[Mapping[BookieId, Versioned[bytes]]]:
        """Every cookie; its keys are all bookies that ever belonged to the cluster."""


class ClusterAdmin(Protocol):
    """The cluster as a whole; commands use it."""

    def exists(self) -> Deferred[bool]:
        """Whether anything is under the cluster's root."""

    def initialise(self) -> Deferred[str]:
        """Make a new cluster (initnewcluster); its instance id. Raises ClusterExists when the root exists."""

    def format(self) -> Deferred[str]:
        """Remove all ledgers, cookies and repair work and renew the instance id (metaformat); the new instance id.

        Makes the cluster where there is none. Asking the operator first is the caller's part.
        """

    def nuke(self, instance_id: str) -> Deferred[None]:
        """Remove the cluster with this instance id, root and all (nukeexistingcluster).

        Raises ClusterInUse when a bookie is registered, a node under the root is not ours, or the id differs.
        """

    def instance_id(self) -> Deferred[str]:
        """The cluster's instance id. Raises NotInitialised."""

    def layout(self) -> Deferred[Layout | None]:
        """The stored ledger layout; None where none is stored yet."""


class MetadataStore(Protocol):
    """One connection to the metadata of one cluster."""

    @property
    def ledgers(self) -> LedgerStore:
        """Ledger metadata."""

    @property
    def bookies(self) -> BookieWatch:
        """Registered bookies."""

    @property
    def registration(self) -> Registration:
        """Our own registration."""

    @property
    def cookies(self) -> Cookies:
        """Cookies."""

    @property
    def admin(self) -> ClusterAdmin:
        """The cluster."""

    @property
    def state(self) -> StoreState:
        """What the connection is worth right now."""

    @property
    def description(self) -> str:
        """Servers and root, for messages."""

    def watch_state(self, on_change: Callable[[StoreState], object]) -> Watch:
        """Hear of every change of `state`. A LOST is always told before the CONNECTED of the next session."""

    def sync(self) -> Deferred[None]:
        """Fires once reads through this store see everything that was written before the call (I-19)."""

    def close(self) -> Deferred[None]:
        """End the session: registrations vanish, watches are silent, pending operations fail. Never fails."""
