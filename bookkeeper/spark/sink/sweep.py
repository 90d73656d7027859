"""The sweep: deletes ledgers that tasks of Spark wrote and nothing will ever commit.

    import bookkeeper.spark
    swept = bookkeeper.spark.sweep("zk://zk1:2181/ledgers", older_than_s=86_400)

Tasks and drivers that die leave ledgers behind. Deleted is what says of itself that a task of Spark wrote it for this
commitPath, and is an orphan for certain (`purpose` has the table): another write of its batch was committed, its
write was given up, or it is older than the given age and was not committed. What is older is forbidden to be committed
before anything is deleted, so a write that takes longer than that fails, and loses nothing that was committed.

Nothing is deleted because something is missing: where heads or records were removed, or are another cluster's, the fate
of a ledger is unknown, it is left alone, and `Swept.unknown` tells it with what helps. Ages are by the clock of the
metadata store, not of any machine that writes or sweeps.

Costs a read of the metadata of each ledger of the cluster, and of those that Spark wrote one of the record of each
batch: AT_ONCE at a time. Thread: any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import connect
from bookkeeper.client.parallel import in_parallel
from bookkeeper.clock import wall_ms
from bookkeeper.config import ClientSettings
from bookkeeper.errors import InvalidArgument, MetadataCorrupt, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.spark.sink.commit_format import Commit, Head, Owner, head_path
from bookkeeper.spark.sink.commits import SinkCommits, commits_at, stored_ms_of
from bookkeeper.spark.sink.options import COMMIT_PATH, check_commit_path
from bookkeeper.spark.sink.purpose import REMEDIES, Fate, Purpose, Seen, fate_of, is_ours, parse_purpose

log = Logger()

DAY_S = 86_400.0
AT_ONCE = 64
"""Ledgers looked at, or deleted, at a time."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A ledger that was deleted, or would have been."""

    ledger_id: int
    purpose: Purpose
    fate: Fate

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} ({self.purpose}): {self.fate.value}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A ledger that was left alone because nothing proves what becomes of it.

    owner: None where it does not say. where: the znode to look at.
    """

    ledger_id: int
    owner: Owner | None
    fate: Fate
    where: str

    @property
    def remedy(self) -> str:
        """What helps."""
        return REMEDIES[self.fate]


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found. dry_run: nothing was deleted.

    left: how many ledgers of Spark were left alone, and why. unknown: those of them that may be orphans, or may not.
    """

    orphans: tuple[Orphan, ...]
    left: dict[Fate, int]
    unknown: tuple[Unknown, ...]
    dry_run: bool


def sweep(
    uri: str,
    settings: ClientSettings | None = None,
    *,
    commit_path: str = COMMIT_PATH,
    older_than_s: float = DAY_S,
    dry_run: bool = False,
) -> Swept:
    """Delete the orphans among the ledgers of the cluster at `uri`; what was deleted.

    older_than_s: how long a write may take at most: what is older and not committed never will be.
    dry_run: change nothing; the mark of `commit_path` is written as it is, to have the time from the metadata store.
    Raises ConfigurationError, MetadataError; what was deleted by then is in the log.
    """
    if not older_than_s >= 0:
        raise InvalidArgument(f"older_than_s={older_than_s}: want 0 or more seconds")
    check_commit_path(commit_path, uri)
    with connect(uri, settings) as client:
        return client.run(
            lambda ledgers: Deferred.fromCoroutine(sweep_with(ledgers, commit_path, older_than_s, dry_run=dry_run))
        )


async def sweep_with(client: LedgerClient, commit_path: str, older_than_s: float, *, dry_run: bool) -> Swept:
    """The sweep, by a client of the cluster. Thread: reactor."""
    commits = await commits_at(client, commit_path)
    now_ms = await commits.now_ms()
    before_ms = 0
    if now_ms is not None:  # else there is no head either, and nothing is an orphan
        # Old enough by both clocks, so that a forward step of one clock refuses no write that is still under way.
        before_ms = min(now_ms, wall_ms()) - int(older_than_s * 1000)
        before_ms = max(before_ms, await commits.forbidden()) if dry_run else await commits.forbid(before_ms)
    look = _Look(client, commits, before_ms, dry_run=dry_run)
    strays = BadRecords()
    async for batch in client.ids(strays):
        await look.at(batch)
    ReportedRecords().report(strays, "it is passed over because it is not a ledger")
    return Swept(tuple(look.orphans), dict(look.left), tuple(look.unknown), dry_run)


@dataclass(frozen=True, slots=True)
class _Ledger:
    ledger_id: int
    stored_ms: int
    purpose: Purpose


@dataclass
class _Look:
    client: LedgerClient
    commits: SinkCommits
    before_ms: int
    dry_run: bool = field(kw_only=True)
    orphans: list[Orphan] = field(default_factory=list)
    left: Counter[Fate] = field(default_factory=Counter)
    unknown: list[Unknown] = field(default_factory=list)

    async def at(self, ledger_ids: Sequence[int]) -> None:
        """Judge a batch of ledgers, and delete its orphans."""
        found: dict[tuple[Owner, int], list[_Ledger]] = {}
        await in_parallel((self._read(ledger_id, found) for ledger_id in ledger_ids), AT_ONCE)
        heads: dict[Owner, tuple[Head, int] | None] = {}
        records: dict[tuple[Owner, int], Commit | None] = {}
        # Heads first: a record that comes after its head does no harm, one that was missed would.
        await in_parallel((self._read_head(owner, heads) for owner in {owner for owner, _ in found}), AT_ONCE)
        await in_parallel((self._read_record(*key, records) for key in found if key[0] in heads), AT_ONCE)
        orphans: list[Orphan] = []
        for key, ledgers in sorted(found.items(), key=lambda each: (str(each[0][0]), each[0][1])):
            ledgers.sort(key=lambda ledger: ledger.ledger_id)
            if key not in records:
                for ledger in ledgers:
                    self._leave(ledger.ledger_id, key[0], Fate.UNREADABLE)
                continue
            head, head_id = heads[key[0]] or (None, None)
            orphans += self._judge(ledgers, Seen(self.commits.instance, self.before_ms, head, head_id, records[key]))
        if not self.dry_run:
            await in_parallel((self._delete(orphan) for orphan in orphans), AT_ONCE)
        self.orphans += orphans

    async def _read_head(self, owner: Owner, heads: dict[Owner, tuple[Head, int] | None]) -> None:
        try:
            heads[owner] = await self.commits.head_and_id(owner)
        except MetadataCorrupt as error:
            log.warn("{owner}: its ledgers are left alone: {error}", owner=str(owner), error=error)

    async def _read_record(self, owner: Owner, batch: int, records: dict[tuple[Owner, int], Commit | None]) -> None:
        try:
            records[owner, batch] = await self.commits.record(owner, batch)
        except MetadataCorrupt as error:
            log.warn(
                "{owner}: ledgers of batch {batch} are left alone: {error}", owner=str(owner), batch=batch, error=error
            )

    async def _read(self, ledger_id: int, found: dict[tuple[Owner, int], list[_Ledger]]) -> None:
        try:
            metadata = await self.client.metadata(ledger_id)
        except NoSuchLedger:
            return
        except MetadataCorrupt as error:
            log.warn("ledger {ledger_id} is left alone: {error}", ledger_id=ledger_id, error=error)
            self._leave(ledger_id, None, Fate.UNREADABLE)
            return
        if not is_ours(metadata.custom):
            return
        purpose = parse_purpose(metadata.custom)
        if purpose is None:
            log.warn("ledger {ledger_id} is left alone: it does not say what it is for", ledger_id=ledger_id)
            self._leave(ledger_id, None, Fate.UNREADABLE)
        elif purpose.commit_path == self.commits.base:
            ledger = _Ledger(ledger_id, stored_ms_of(metadata), purpose)
            found.setdefault((purpose.owner, purpose.batch), []).append(ledger)

    def _judge(self, ledgers: Sequence[_Ledger], seen: Seen) -> Iterator[Orphan]:
        for each in ledgers:
            fate = fate_of(each.ledger_id, each.stored_ms, each.purpose, seen)
            if fate.is_orphan:
                yield Orphan(each.ledger_id, each.purpose, fate)
            else:
                self._leave(each.ledger_id, each.purpose.owner, fate)

    def _leave(self, ledger_id: int, owner: Owner | None, fate: Fate) -> None:
        self.left[fate] += 1
        if fate.is_unknown:
            where = self.commits.base if owner is None else head_path(self.commits.base, owner)
            self.unknown.append(Unknown(ledger_id, owner, fate, where))

    async def _delete(self, orphan: Orphan) -> None:
        try:
            await self.client.delete(orphan.ledger_id)
        except NoSuchLedger:
            return
        log.info("deleted {orphan}", orphan=str(orphan))
