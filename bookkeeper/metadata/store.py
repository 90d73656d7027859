"""The seams between the system and its metadata: ledgers, registrations, cookies, the cluster itself.

`zookeeper.connect` makes the real store, `memory.store.MemoryMetadataStore` the simulated one; both run the same code
over a `tree.Tree` of znodes. Everything here runs on the reactor thread and returns Deferreds; importing it imports
neither kazoo nor a reactor.

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
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bookkeeper.errors import BookKeeperError, MetadataError
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
    from random import Random

    from twisted.internet.defer import Deferred

    from bookkeeper.metadata.bad_records import BadRecords
    from bookkeeper.metadata.cluster.history_format import Decision, GeneratedIds, Note, Raise, Report
    from bookkeeper.metadata.cluster.layout import Layout
    from bookkeeper.metadata.underreplication.damaged_copies_format import BadCopies, BadRange
    from bookkeeper.metadata.underreplication.format import CheckKind, UnderreplicatedLedger
    from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess

REQUEST_SIZE_MAX = 1020 * 1024
"""Bytes of one request: the default of zkMaxRequestSizeBytes.

A ZooKeeper server with the default jute.maxbuffer, 1024 * 1024 - 1, closes a connection that sends more. The remaining
4095 bytes are for data that servers and Apache's clients add: headers of records on disk and of answers, expanded ACLs.
"""

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
    request_size_max: bytes of one request, including path, headers and all steps of a transaction. A larger request
    fails with MetadataTooLarge and is not sent. At most the servers' jute.maxbuffer less 4095.
    unknown_host_waits: go on looking up a host that does not exist until the session timeout, as a server does that may
    be started before its name is; otherwise that is an error at once, as for a command with a mistyped address.
    """

    session_timeout_s: float = 10.0
    operation_timeout_s: float = 15.0
    registration_wait_s: float = 13.0
    operations_in_flight_max: int = 256
    operations_waiting_max: int = 65_536
    request_size_max: int = REQUEST_SIZE_MAX
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
    FAILED = "failed"  # given up: another process holds the id, access was refused, or a check of renewals failed


RegistrationListener = Callable[[RegistrationEvent, BookKeeperError | None], object]


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

    def new_id(self, ahead: int = 1) -> Deferred[LedgerId]:
        """Generate a ledger id that no client has been given. `ahead` - 1 smaller ids are used up with it.

        Nothing is stored under the id: another client may still choose it by name.
        """

    def create(
        self, metadata: LedgerMetadata, ledger_id: LedgerId | None = None, *, generated: bool = False
    ) -> Deferred[tuple[LedgerId, Versioned[LedgerMetadata]]]:
        """Store a new ledger under `ledger_id`, or under a fresh id. Version 3 metadata gains a creator token.

        generated: `ledger_id` comes from `new_id`. Raises LedgerExists for an id in use, and MetadataTooLarge.
        """

    def read(self, ledger_id: LedgerId) -> Deferred[Versioned[LedgerMetadata]]:
        """The ledger's metadata. Raises NoSuchLedger, MetadataCorrupt, MetadataTooNew."""

    def write(
        self,
        ledger_id: LedgerId,
        metadata: LedgerMetadata,
        version: int,
        *,
        lock: RepairLock | None = None,
        ends: UnderreplicatedLedger | None = None,
    ) -> Deferred[Versioned[LedgerMetadata]]:
        """Replace the metadata that had `version`. Raises VersionConflict, NoSuchLedger.

        lock: nothing is written once it is no longer held: its node is there, and its session still on, at the very
        moment of the change, or MetadataUnavailable is raised. ends: this is the end of a repair under `lock`: the
        mark, as it was read with the lock, and the lock go in the same step; where the mark has changed meanwhile both
        stay, and the metadata is written all the same (see `RepairLock.mark_removed`). Raises MetadataTooLarge as
        `check_room` does.
        """

    def check_room(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, *, lock: RepairLock | None = None
    ) -> Deferred[None]:
        """Raise MetadataTooLarge if `write` would, because the metadata does not fit into one request to the store.

        Metadata of an open ledger, and under a lock of any ledger that is not closed, may use `ledgers.UNCLOSED_SHARE`
        of the largest request. The rest is reserved for the mark of a recovery and for closing the ledger.
        """

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

    def ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """All ledger ids, ascending, in batches of 1..LISTING_BATCH_MAX; lazily, so memory is bounded.

        Ledgers created or deleted meanwhile may or may not appear. Any failure raises: a listing that ends is complete.

        bad_records: receives stray znodes. Without it, MetadataCorrupt is raised after the last id if any were found.
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

    def check_renewals(self, check: Callable[[], Awaitable[None]]) -> None:
        """Await `check` before each registration in a new session: the store may have been restored or emptied.

        If a renewal's check raises a BookKeeperError, MetadataUnavailable aside, the registration is given up (FAILED).
        """

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


class RepairLock(Protocol):
    """A lock on a ledger under repair: it saves work done twice, nothing more (I-20)."""

    ledger_id: LedgerId

    @property
    def held(self) -> bool:
        """Whether it is ours, as far as we know: False from `release` on, and once its session is over (I-77)."""

    @property
    def mark_removed(self) -> bool:
        """Whether it was given up together with the ledger's mark, by `LedgerStore.write` or `finish`."""

    def release(self) -> Deferred[None]:
        """Give it up. Harmless when repeated, or when its session is over.

        Fails with MetadataUnavailable where that could not be done: it then goes with the session, or is the next lock
        of this ledger that is taken through the same store.
        """


class AuditorCandidate(Protocol):
    """One process that stands for auditor."""

    @property
    def elected(self) -> bool:
        """Whether it is the auditor, as far as it knows."""

    def join(self) -> None:
        """Stand from now on, across sessions. Harmless when repeated. May call `on_elected` before it returns."""

    def leave(self) -> Deferred[None]:
        """Stand no more; fires once the vote is gone. Harmless when repeated.

        Fails with MetadataUnavailable where the vote could not be removed; it then goes with the session.
        """


class Announcement(Protocol):
    """A process that says of itself that it audits and repairs, across sessions."""

    def withdraw(self) -> Deferred[None]:
        """Say so no more. Never fails: what could not be removed goes with the session."""


class Underreplication(Protocol):
    """Ledgers that lack copies, and who does something about it: Apache's tree, shared with Apache's programs.

    Reads may lag (I-19), except where a method says that it syncs. Where there is no tree yet, nothing is marked;
    changes make it. Each method raises LayoutMismatch where the tree is of a kind that this release does not know.
    """

    def prepare(self) -> Deferred[None]:
        """Make the tree, or check the one that is there. Changes do so by themselves. Raises NotInitialised."""

    # --- marks

    def mark(self, ledger_id: LedgerId, missing: Collection[BookieId], *, now_ms: int | None) -> Deferred[None]:
        """Note that these bookies lack entries of the ledger, besides those noted already.

        now_ms: since 1970, kept with the mark; None keeps no time. Whoever is at work on the ledger already will find
        its mark changed, even when all of them were noted (I-76).
        """

    def read(self, ledger_id: LedgerId, lock: RepairLock | None = None) -> Deferred[UnderreplicatedLedger | None]:
        """The ledger's mark; None when it certainly has none (syncs). Raises MetadataCorrupt.

        lock: under which the ledger is repaired then: changes of the mark are heard of from now on, so that the end of
        the repair need not look for them.
        """

    def remove(self, seen: UnderreplicatedLedger, lock: RepairLock | None = None) -> Deferred[None]:
        """Remove the mark as it was seen when the repair began; one that is gone counts as removed (I-76).

        lock: under which it was repaired: nothing is removed once that lock is no longer held (MetadataUnavailable).
        Raises VersionConflict when the mark has changed, or is another one: start over.
        """

    def finish(self, seen: UnderreplicatedLedger, lock: RepairLock) -> Deferred[None]:
        """Remove the mark as `remove` does, and give up the lock, in one step where that can be; one that
        `LedgerStore.write` ended already is harmless.

        Where it fails, as `remove` does, the lock stays.
        """

    def ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """Yield all marked ledgers, ascending, in batches of 1..LISTING_BATCH_MAX.

        Any failure raises: a listing that ends is complete, except for changes during the listing.

        bad_records: receives stray znodes. Without it, MetadataCorrupt is raised after the last id if any were found.
        """

    def candidates(self, random: Random, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """Yield all marked ledgers in random order from the top, for workers.

        A ledger whose mark was removed a moment ago may be among them: `read` tells.
        """

    def watch_work(self, on_work: Callable[[], object]) -> Watch:
        """Tell `on_work` soon, then when marks or ledgers with bad copies came or went, at most every 2 s; for ever.

        A lock that was given up is no news, nor is a further range of bad copies of a ledger that has some, nor a
        change among more than 4096 directories of marks: look again now and then.
        """

    # --- locks

    def lock(self, ledger_id: LedgerId, host: str, on_lost: Callable[[], object]) -> Deferred[RepairLock | None]:
        """Take the ledger's lock; None where somebody holds it. `on_lost` hears of the end of its session.

        host: what the lock says to people. Never waits for a holder. A znode without a session in the lock's place is
        removed; raises MetadataCorrupt if it has children.
        """

    def lock_holder(self, ledger_id: LedgerId) -> Deferred[str | None]:
        """Return the holder that the lock names, "" for none; None without a lock (syncs).

        Raises MetadataCorrupt for unreadable content, and for a znode without a session, which is not a lock.
        """

    def locked_ms(self, ledger_id: LedgerId) -> Deferred[int | None]:
        """Since when the lock is held, by the store's clock, in milliseconds since 1970; None while it is not."""

    def lock_session(self, ledger_id: LedgerId) -> Deferred[int | None]:
        """The session that holds the lock; None while nobody does."""

    def locked_count(self) -> Deferred[int]:
        """How many ledgers are locked now, by workers of any kind."""

    # --- who audits and repairs: ours, which Apache's programs do not see

    def announce(self, process: RecoveryProcess) -> Announcement:
        """Say from now on that this process audits and repairs; its session is that of this connection."""

    def processes(self, bad_records: BadRecords | None = None) -> Deferred[tuple[RecoveryProcess, ...]]:
        """Return the processes announced now (syncs), without Apache's. bad_records: receives unreadable records."""

    # --- switches and times

    def is_enabled(self) -> Deferred[bool]:
        """Whether auto-recovery is on, as it is unless somebody turned it off (syncs)."""

    def enable(self) -> Deferred[bool]:
        """Turn auto-recovery on; False when it was."""

    def disable(self) -> Deferred[bool]:
        """Turn auto-recovery off: the auditor and all workers of the cluster pause. False when it was off."""

    def watch_enabled(self, on_change: Callable[[bool], object]) -> Watch:
        """Tell soon whether auto-recovery is on, then every change; across sessions. May call before it returns."""

    def recovery_delay_s(self) -> Deferred[int | None]:
        """lostBookieRecoveryDelay of the cluster; None where none is stored (syncs). Raises MetadataCorrupt."""

    def initialise_recovery_delay(self, delay_s: int) -> Deferred[bool]:
        """Store the delay unless one is stored; whether it did."""

    def set_recovery_delay(self, delay_s: int) -> Deferred[None]:
        """Store the delay. Setting what it was already is a change all the same: it asks for an audit."""

    def watch_recovery_delay(self, on_change: Callable[[int | None], object]) -> Watch:
        """Tell the delay soon, then each time it is set; across sessions. One that cannot be read is logged only."""

    def check_time_ms(self, kind: CheckKind) -> Deferred[int | None]:
        """When the check last ended, since 1970; None when it never did (syncs). Raises MetadataCorrupt."""

    def set_check_time(self, kind: CheckKind, ended_ms: int) -> Deferred[None]:
        """Note the end of a check; an earlier end than the noted one is noted all the same."""

    # --- the auditor

    def current_auditor(self) -> Deferred[BookieId | None]:
        """Whose vote is the lowest; None while nobody stands (syncs). Raises MetadataCorrupt."""

    def auditor_session(self) -> Deferred[int | None]:
        """The session that made the lowest vote; None while nobody stands (syncs)."""

    def candidate(
        self,
        bookie_id: BookieId,
        *,
        on_elected: Callable[[], object],
        on_lost: Callable[[], object],
        on_failed: Callable[[BaseException], object],
    ) -> AuditorCandidate:
        """A candidate for auditor, in one election with Apache's.

        on_elected, on_lost: they alternate, beginning with on_elected. on_failed: access was refused, or a fault of
        ours; it stands no more.
        """

    # --- bad copies: ours, which Apache's programs do not see

    def report_bad_copies(self, ledger_id: LedgerId, ranges: Collection[BadRange]) -> Deferred[None]:
        """Note ranges besides those noted already; at most 512 a ledger are kept apart (see bad_copies_format)."""

    def bad_copies(self, ledger_id: LedgerId) -> Deferred[BadCopies | None]:
        """What is noted of the ledger; None where nothing is (syncs). Raises MetadataCorrupt."""

    def remove_bad_copies(self, seen: BadCopies, ranges: Collection[BadRange]) -> Deferred[None]:
        """Take these entries out of the noted ones. Raises VersionConflict when the note is not as it was seen."""

    def bad_copy_ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """All ledgers with bad copies, ascending, in batches of 1..LISTING_BATCH_MAX; failures as for `ids`."""


@dataclass(frozen=True, slots=True)
class HistorySight:
    """The store's history as read for one bookie, after a sync.

    note: the bookie's, if any. decision: an operator's, not applied yet. raises: of the id generators, the newest last.
    """

    note: Note | None
    ids: GeneratedIds
    decision: Decision | None
    raises: tuple[Raise, ...] = ()


class StoreHistory(Protocol):
    """Records by which bookies recognise that the store went back in time. Apache's programs do not use them."""

    def look(self, bookie_id: BookieId) -> Deferred[HistorySight]:
        """Read the bookie's note, its decision and the id generators, after a sync.

        Raises MetadataCorrupt for an unreadable note or decision, MetadataTooNew for a record of a later release;
        unreadable raises count as none.
        """

    def write(self, bookie_id: BookieId, counter: int, report: Report, seen: Note | None) -> Deferred[Note]:
        """Replace the note that was seen, or create it if it was None. Raises NodeChanged, NodeExists: look again."""

    def generated_ids(self) -> Deferred[GeneratedIds]:
        """Return which ids the generators have given out, after a sync."""

    def raise_ids(self, past: GeneratedIds) -> Deferred[GeneratedIds]:
        """Raise the generators so that they give out no id below `past`; return what they show then.

        They may show less than `past`: one call passes over at most RAISED_MAX ids of a generator. A generator is never
        lowered. The present values are noted first, even if nothing has to be raised: other bookies take the note for
        evidence that the store went back.
        """

    def bookies(self) -> Deferred[list[BookieId]]:
        """Return the bookies that have a note, sorted, after a sync."""

    def decide(self, bookie_id: BookieId, decision: Decision) -> Deferred[bool]:
        """Store a decision for the bookie; True if it replaced a waiting one. Raises NodeAbsent if there is no note."""

    def decision_applied(self, bookie_id: BookieId, decision: Decision) -> Deferred[None]:
        """Remove a decision, unless another has replaced it."""


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
    def underreplication(self) -> Underreplication:
        """Ledgers that lack copies."""

    @property
    def history(self) -> StoreHistory:
        """Records by which bookies recognise that the store went back in time."""

    @property
    def state(self) -> StoreState:
        """What the connection is worth right now."""

    @property
    def sessions_refused(self) -> int:
        """Sessions that were given up because the servers may have an older state than this process has seen.

        Counted once the new session has had an answer.
        """

    @property
    def description(self) -> str:
        """Servers and root, for messages."""

    def watch_state(self, on_change: Callable[[StoreState], object]) -> Watch:
        """Hear of every change of `state`. A LOST is always told before the CONNECTED of the next session."""

    def sync(self) -> Deferred[None]:
        """Fires once reads through this store see everything that was written before the call (I-19)."""

    def close(self) -> Deferred[None]:
        """End the session: registrations vanish, watches are silent, pending operations fail. Never fails."""
