"""The ledger client: create, open, delete and list ledgers. Deferred-native; the other two faces stand on it.

Runs on whatever clock, network, metadata store and random generator it is given, so the simulator runs this very
code. Thread: reactor.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.bookies.disk_space import BookieInfo, ask_disk_space
from bookkeeper.client.bookies.placement import RackOf, choose_ensemble, one_rack
from bookkeeper.client.context import ClientContext
from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.client.parallel import tell_all
from bookkeeper.client.read.list_entries import ask_list_of_entries
from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.client.read.view import LedgerView
from bookkeeper.client.recovery import LedgerRecovery
from bookkeeper.client.write.chosen_ids import AdvancedWriteHandle
from bookkeeper.client.write.new_ledger import NewLedger
from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import (
    InvalidArgument,
    NotEnoughBookies,
    NotInProtocolVersion,
    VersionConflict,
    WrongDigestType,
    WrongPassword,
)
from bookkeeper.model import (
    AvailableBookies,
    BookieId,
    DigestType,
    EntryId,
    Fragment,
    LedgerId,
    LedgerMetadata,
    LedgerState,
    Versioned,
)
from bookkeeper.wire.digest import digest_of, master_key

if TYPE_CHECKING:
    from bookkeeper.client.bookies.nearness import Nearness
    from bookkeeper.metadata.bad_records import BadRecords
    from bookkeeper.metadata.store import MetadataStore
    from bookkeeper.ports import Clock, Network

_NO_DEFERRED_SYNC = (
    "protocol v2, the default, has no deferred sync: set useV2WireProtocol=false in the file or environment that "
    "load_client reads, or connect with ClientSettings(use_v2=False)"
)

DELETE_ATTEMPTS_MAX = 16
"""Compare-and-deletes that may lose against other changes before the caller hears of it."""


class LedgerClient(OfOneProcess):
    """One client of one cluster. Close it: it holds connections and watches.

    rack_of: where a bookie stands, for placement. nearness: how far it is, for reads; None: all alike.
    now_ms: wall clock for the creation time of ledgers, None: not stored.
    owns_store: close the metadata store with the client.
    """

    def __init__(
        self,
        store: MetadataStore,
        network: Network,
        clock: Clock,
        rng: random.Random,
        settings: ClientSettings | None = None,
        *,
        rack_of: RackOf = one_rack,
        nearness: Nearness | None = None,
        now_ms: Callable[[], int] | None = None,
        owns_store: bool = False,
    ) -> None:
        self.settings = settings if settings is not None else ClientSettings()
        self.store = store
        self._owns_store = owns_store
        self._context = ClientContext(
            store, network, clock, rng, self.settings, rack_of=rack_of, nearness=nearness, now_ms=now_ms
        )
        self._recoveries: dict[LedgerId, list[Deferred[Versioned[LedgerMetadata]]]] = {}

    @property
    def context(self) -> ClientContext:
        """What all its handles share; for what works below handles, on entries of any ledger: re-replication."""
        return self._context

    # --- writing

    def create(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest: DigestType | None = None,
        password: bytes | None = None,
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        metadata_version: int | None = None,
        bookies: Sequence[str] | None = None,
        deferred_sync: bool = False,
    ) -> Deferred[WriteHandle]:
        """Create a ledger on `ensemble` bookies, `write_quorum` copies of each entry, acknowledged by `ack_quorum`.

        digest, password, metadata_version: the settings' unless given. bookies: the first ensemble, instead of a
        choice of our own. deferred_sync: bookies acknowledge before they sync, `force` confirms; v3 only.

        The bookies are asked what they hold under the id; bookies that do not answer are replaced. Fails with
        InvalidArgument for quorums that cannot work (I-01) and arguments of a wrong type, NotEnoughBookies,
        LedgerExists for a chosen id that is taken, LedgerIdOccupied for a chosen id that no ledger has but bookies
        hold something under (or after 64 such generated ids), NotInProtocolVersion for deferred sync on a client set
        to v2, TlsFailed, AuthenticationRefused or UnsupportedVersion where too few bookies accept this client.
        """
        return Deferred.fromCoroutine(
            self._create(
                WriteHandle,
                ensemble,
                write_quorum,
                ack_quorum,
                digest,
                password,
                custom,
                ledger_id,
                metadata_version,
                bookies,
                deferred_sync=deferred_sync,
            )
        )

    def create_advanced(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest: DigestType | None = None,
        password: bytes | None = None,
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        metadata_version: int | None = None,
        bookies: Sequence[str] | None = None,
        deferred_sync: bool = False,
    ) -> Deferred[AdvancedWriteHandle]:
        """The same for a ledger whose entry ids the caller chooses."""
        return Deferred.fromCoroutine(
            self._create(
                AdvancedWriteHandle,
                ensemble,
                write_quorum,
                ack_quorum,
                digest,
                password,
                custom,
                ledger_id,
                metadata_version,
                bookies,
                deferred_sync=deferred_sync,
            )
        )

    async def _create(
        self,
        kind: Callable[..., Any],
        ensemble: int,
        write_quorum: int,
        ack_quorum: int,
        digest: DigestType | None,
        password: bytes | None,
        custom: Mapping[str, bytes] | None,
        ledger_id: int | None,
        metadata_version: int | None,
        bookies: Sequence[str] | None,
        *,
        deferred_sync: bool,
    ) -> Any:
        context = self._context
        context.check_open()
        if deferred_sync and self.settings.use_v2:
            raise NotInProtocolVersion(_NO_DEFERRED_SYNC)
        _check_access_arguments(password, digest)
        digest = digest or self.settings.digest_type
        password = self.settings.password if password is None else password
        version = self.settings.metadata_format_version if metadata_version is None else metadata_version
        _check_create(ensemble, write_quorum, ack_quorum, custom, ledger_id, version)
        await context.directory.ready()
        if bookies is not None:
            chosen = tuple(map(BookieId, bookies))
            if len(set(chosen)) != ensemble or len(chosen) != ensemble:
                raise InvalidArgument(f"an ensemble of {ensemble} needs as many different bookies, not {bookies}")
        else:
            try:
                chosen = self._choose_ensemble(ensemble, write_quorum)
            except NotEnoughBookies:
                await context.directory.read_again()
                chosen = self._choose_ensemble(ensemble, write_quorum)
            ensemble = len(chosen)
            context.check_racks(chosen, write_quorum)
        context.check_let_in(chosen)
        ctime_ms = context.now_ms() if context.now_ms is not None and self.settings.store_creation_time else None

        def describe(ensemble: tuple[BookieId, ...]) -> LedgerMetadata:
            return LedgerMetadata(
                len(ensemble),
                write_quorum,
                ack_quorum,
                (Fragment(EntryId(0), ensemble),),
                digest_type=digest if version > 1 else None,
                password=password if version > 1 else None,
                custom=custom or {},
                ctime_ms=ctime_ms,
                format_version=version,
            )

        new = NewLedger(context, chosen, write_quorum, describe)
        if ledger_id is None:
            created_id, created = await new.create()
        else:
            created_id, created = LedgerId(ledger_id), await new.create_named(LedgerId(ledger_id))
        context.check_open()
        return kind(
            context, created_id, created, digest_of(digest, password), master_key(password), deferred_sync=deferred_sync
        )

    def _choose_ensemble(self, ensemble: int, write_quorum: int) -> tuple[BookieId, ...]:
        context = self._context
        writable = context.directory.writable
        if self.settings.opportunistic_striping:
            ensemble = min(ensemble, max(write_quorum, len(writable)))
        return choose_ensemble(
            ensemble_size=ensemble,
            write_quorum=write_quorum,
            candidates=writable,
            quarantined=context.directory.quarantined,
            rack_of=context.rack_of,
            rng=context.rng,
            weights=context.weights,
        )

    # --- reading

    def open(
        self, ledger_id: int, password: bytes | None = None, digest: DigestType | None = None
    ) -> Deferred[ReadHandle]:
        """Open a ledger for reading all of it. Unless it is closed its writer is stopped and its end fixed (recovery).

        Fails with NoSuchLedger, WrongPassword, WrongDigestType, RecoveryFailed; TlsFailed, AuthenticationRefused or
        UnauthorizedAccess where it is TLS, credentials or the password that keep the client from the bookies.
        """
        return Deferred.fromCoroutine(self._open(ledger_id, password, digest, recover=True))

    def open_without_recovery(
        self, ledger_id: int, password: bytes | None = None, digest: DigestType | None = None
    ) -> Deferred[ReadHandle]:
        """Open a ledger that may still be written, without disturbing its writer (I-43)."""
        return Deferred.fromCoroutine(self._open(ledger_id, password, digest, recover=False))

    def open_as_administrator(self, ledger_id: int, *, recover: bool) -> Deferred[ReadHandle]:
        """Open with the digest type and password that the metadata names."""
        return Deferred.fromCoroutine(self._open_as_administrator(ledger_id, recover=recover))

    async def _open_as_administrator(self, ledger_id: int, *, recover: bool) -> ReadHandle:
        metadata = await self._read_metadata(ledger_id)
        return await self._open(ledger_id, metadata.value.password, None, recover=recover)

    async def _open(
        self, ledger_id: int, password: bytes | None, digest_type: DigestType | None, *, recover: bool
    ) -> ReadHandle:
        _check_access_arguments(password, digest_type)
        password = self.settings.password if password is None else password
        metadata = await self._read_metadata(ledger_id)
        digest = digest_of(self._check_access(ledger_id, metadata.value, password, digest_type), password)
        if recover and metadata.value.state is not LedgerState.CLOSED:
            metadata = await self._recover(LedgerId(ledger_id), metadata, digest, master_key(password))
        handle = ReadHandle(self._context, LedgerView(LedgerId(ledger_id), metadata), digest)
        if not handle.closed:
            await self._context.directory.ready()
            handle.watch_metadata()
            try:
                await handle.read_last_confirmed()
            except BaseException:
                await handle.close()
                raise
        else:
            await self._context.directory.ready()
        return handle

    async def _read_metadata(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        self._context.check_open()
        _check_whole("ledger_id", ledger_id)
        if ledger_id < 0:
            raise InvalidArgument(f"ledger id {ledger_id} is negative; ids start at 0")
        return await self.store.ledgers.read(LedgerId(ledger_id))

    def _check_access(
        self, ledger_id: int, metadata: LedgerMetadata, password: bytes, digest_type: DigestType | None
    ) -> DigestType:
        """The digest type to use; metadata older than 4.2 names neither password nor type: the caller's word counts."""
        if metadata.digest_type is None:
            return digest_type or self.settings.digest_type
        if metadata.password != password:
            raise WrongPassword(
                f"ledger {ledger_id}: the password is not the one it was created with", ledger_id=ledger_id
            )
        if digest_type is None or digest_type is metadata.digest_type or self.settings.enable_digest_autodetection:
            return metadata.digest_type
        raise WrongDigestType(
            f"ledger {ledger_id} was created with digest type {metadata.digest_type.name}, not {digest_type.name}",
            ledger_id=ledger_id,
        )

    async def _recover(
        self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata], digest: Any, key: bytes
    ) -> Versioned[LedgerMetadata]:
        """Recover, or join the recovery of this ledger that this client runs already."""
        waiting: Deferred[Versioned[LedgerMetadata]] = Deferred(lambda _: None)
        joined = self._recoveries.setdefault(ledger_id, [])
        joined.append(waiting)
        if len(joined) == 1:
            recovery = LedgerRecovery(self._context, ledger_id, metadata, digest, key)

            def tell(result: Versioned[LedgerMetadata] | Failure) -> None:
                tell_all([each for each in self._recoveries.pop(ledger_id) if not each.called], result)

            recovery.start().addBoth(tell)
        return await waiting

    # --- the rest

    def metadata(self, ledger_id: int) -> Deferred[LedgerMetadata]:
        """The ledger's metadata now. Fails with NoSuchLedger."""
        return Deferred.fromCoroutine(self._metadata(ledger_id))

    async def _metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self._read_metadata(ledger_id)).value

    def delete(self, ledger_id: int) -> Deferred[None]:
        """Delete a ledger, whatever its state; bookies drop its entries later. Fails with NoSuchLedger."""
        return Deferred.fromCoroutine(self._delete(ledger_id))

    async def _delete(self, ledger_id: int) -> None:
        for attempt in range(1, DELETE_ATTEMPTS_MAX + 1):
            metadata = await self._read_metadata(ledger_id)
            try:
                await self.store.ledgers.delete(LedgerId(ledger_id), metadata.version)
            except VersionConflict:
                if attempt == DELETE_ATTEMPTS_MAX:
                    raise
            else:
                return

    def ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """Ids of all ledgers, ascending, in batches.

        bad_records: collects the znodes among the ledgers that are not ledgers, complete after the last id. Without it
        they raise MetadataCorrupt after the last id.
        """
        self._context.check_open()
        return self.store.ledgers.ids(bad_records)

    def available_bookies(self) -> Deferred[AvailableBookies]:
        """The registered bookies, read now."""
        self._context.check_open()
        return self.store.bookies.current()

    def bookie_info(self, bookie_id: str) -> Deferred[BookieInfo]:
        """Disk space of one bookie.

        Fails with NotSupportedByBookie where it has no v3, UnauthorizedAccess where it wants TLS or credentials,
        BookieUnavailable.
        """
        return Deferred.fromCoroutine(ask_disk_space(self._context, BookieId(bookie_id)))

    def list_entries(self, ledger_id: int, bookie_id: str) -> Deferred[Sequence[range]]:
        """Which entries of a ledger one bookie holds: ascending, disjoint ranges.

        Fails with NoSuchLedgerOnBookie where it holds nothing of the ledger, NotSupportedByBookie where it
        is older than 4.10, UnauthorizedAccess where it wants TLS or credentials, BookieUnavailable.
        """
        return Deferred.fromCoroutine(ask_list_of_entries(self._context, ledger_id, BookieId(bookie_id)))

    @property
    def transport_writes(self) -> int:
        """Writes of all connections so far, for the figures of `perf`."""
        return self._context.channels.transport_writes

    @property
    def entries_in_batches(self) -> int:
        """Entries that came by batch reads so far, likewise."""
        return self._context.batches.entry_count

    def close(self) -> Deferred[None]:
        """End all connections; pending operations fail with ClientClosed. Ledgers being written stay OPEN."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        self._context.close()
        if self._owns_store:
            self._owns_store = False
            await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def connect(uri: str, reactor: Any, settings: ClientSettings | None = None) -> Deferred[LedgerClient]:
    """Connect to a cluster on a running Twisted reactor; `uri` is a metadataServiceUri.

    For example zk+hierarchical://zk1:2181;zk2:2181/ledgers. A ';' stands between servers (in a shell it needs quotes);
    only the key zkServers has commas. settings: the defaults if None; `bookkeeper.load_client` reads them from a file
    and the environment, which are not looked at here. Fails with ConfigurationError, MetadataUnavailable,
    NotInitialised, LayoutMismatch.
    """
    from bookkeeper.client.connecting import connect_to

    return Deferred.fromCoroutine(connect_to(uri, reactor, settings))


def _check_create(
    ensemble: int,
    write_quorum: int,
    ack_quorum: int,
    custom: Mapping[str, bytes] | None,
    ledger_id: int | None,
    metadata_version: int,
) -> None:
    """Refuse what can never work, before anything is asked of anybody."""
    _check_whole("ensemble", ensemble)
    _check_whole("write_quorum", write_quorum)
    _check_whole("ack_quorum", ack_quorum)
    if ledger_id is not None:
        _check_whole("ledger_id", ledger_id)
    if custom is not None:
        _check_custom(custom)
    if not ensemble >= write_quorum >= ack_quorum >= 1:
        raise InvalidArgument(
            f"ensemble {ensemble}, write quorum {write_quorum}, ack quorum {ack_quorum}: "
            "need ensemble >= write quorum >= ack quorum >= 1"
        )
    if ledger_id is not None and not 0 <= ledger_id < 2**63:
        raise InvalidArgument(f"ledger id {ledger_id} is not in 0..{2**63 - 1}")
    if metadata_version not in (1, 2, 3):
        raise InvalidArgument(f"metadata version {metadata_version} is not 1, 2 or 3")
    if metadata_version == 1 and ack_quorum != write_quorum:
        raise InvalidArgument(
            f"metadata version 1 has no ack quorum: it must equal the write quorum {write_quorum}, not {ack_quorum}"
        )
    if metadata_version == 1 and custom:
        raise InvalidArgument("metadata version 1 has no place for custom metadata; use version 3")


def _check_whole(name: str, value: object) -> None:
    """Numbers come from files and command lines too, as text: say so, rather than fail in a comparison."""
    if not isinstance(value, SupportsIndex):
        raise InvalidArgument(f"{name} is {value!r}, of type {type(value).__name__}; it must be an int")


def _check_custom(custom: object) -> None:
    if not isinstance(custom, Mapping):
        raise InvalidArgument(
            f"custom is {custom!r}, of type {type(custom).__name__}; it must be a mapping of str to bytes"
        )
    for key, value in custom.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"custom has the key {key!r}, of type {type(key).__name__}; keys must be str")
        if not isinstance(value, bytes):
            raise InvalidArgument(f"custom[{key!r}] is {value!r}, of type {type(value).__name__}; it must be bytes")


def _check_access_arguments(password: object, digest: object) -> None:
    """Check what opens a ledger. The error does not show the password."""
    if password is not None and not isinstance(password, bytes):
        raise InvalidArgument(f"password is of type {type(password).__name__}; it must be bytes")
    if digest is not None and not isinstance(digest, DigestType):
        allowed = ", ".join(map(str, DigestType))
        raise InvalidArgument(f"digest is {digest!r}, of type {type(digest).__name__}; it must be {allowed} or None")


__all__ = ["BookieInfo", "LedgerClient", "connect"]
