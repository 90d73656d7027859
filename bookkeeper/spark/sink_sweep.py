"""The sweep: deletes ledgers that tasks of Spark wrote and nothing will ever commit.

    import bookkeeper.spark
    swept = bookkeeper.spark.sweep("zk://zk1:2181/ledgers", older_than_s=86_400)

Tasks and drivers that die leave ledgers behind. Deleted is what says of itself that a task of Spark wrote it for this
commitPath, and is an orphan for certain (`sink_purpose.fate_of`): its batch is past, its write was given up, or it is
older than the given age. What is older is forbidden to be committed before anything is deleted, so a write that takes
longer than that fails, and loses nothing that was committed. Whatever cannot be judged is left alone.

Costs a read of the metadata of each ledger of the cluster. Thread: any.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.blocking import connect
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.parallel import in_parallel
from bookkeeper.config import ClientSettings
from bookkeeper.errors import InvalidArgument, MetadataCorrupt, NoSuchLedger
from bookkeeper.spark.sink_commit_format import Commit, Head, Owner
from bookkeeper.spark.sink_commits import SinkCommits, commits_at
from bookkeeper.spark.sink_options import COMMIT_PATH, check_commit_path
from bookkeeper.spark.sink_purpose import Fate, Purpose, fate_of, is_ours, parse_purpose

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
class Swept:
    """What a sweep found. dry_run: nothing was deleted. left: how many ledgers of Spark were left alone, and why."""

    orphans: tuple[Orphan, ...]
    left: dict[Fate, int]
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
    dry_run: change nothing.
    Raises ConfigurationError, MetadataError; what was deleted by then is in the log.
    """
    if not older_than_s >= 0:
        raise InvalidArgument(f"older_than_s={older_than_s}: want 0 or more seconds")
    check_commit_path(commit_path, uri)
    before_ms = int((time.time() - older_than_s) * 1000)
    with connect(uri, settings) as client:
        return client.run(
            lambda ledgers: Deferred.fromCoroutine(sweep_with(ledgers, commit_path, before_ms, dry_run=dry_run))
        )


async def sweep_with(client: LedgerClient, commit_path: str, before_ms: int, *, dry_run: bool) -> Swept:
    """The sweep of what was made before `before_ms`, by a client of the cluster. Thread: reactor."""
    commits = await commits_at(client, commit_path)
    before_ms = max(before_ms, await commits.forbidden()) if dry_run else await commits.forbid(before_ms)
    look = _Look(client, commits, before_ms, dry_run=dry_run)
    async for batch in client.ids():
        await look.at(batch)
    return Swept(tuple(look.orphans), dict(look.left), dry_run)


@dataclass
class _Look:
    client: LedgerClient
    commits: SinkCommits
    before_ms: int
    dry_run: bool = field(kw_only=True)
    orphans: list[Orphan] = field(default_factory=list)
    left: Counter[Fate] = field(default_factory=Counter)

    async def at(self, ledger_ids: Sequence[int]) -> None:
        """Judge a batch of ledgers, and delete its orphans."""
        found: dict[tuple[Owner, int], list[tuple[int, Purpose]]] = {}
        await in_parallel((self._read(ledger_id, found) for ledger_id in ledger_ids), AT_ONCE)
        for (owner, batch), ledgers in sorted(found.items(), key=lambda each: (str(each[0][0]), each[0][1])):
            # The head first: a record that comes after it does no harm, one that was missed would.
            try:
                head = await self.commits.head(owner)
                record = await self.commits.record(owner, batch)
            except MetadataCorrupt as error:
                log.warn("{owner}: its ledgers are left alone: {error}", owner=str(owner), error=error)
                self.left[Fate.UNKNOWN] += len(ledgers)
                continue
            await self._judge(ledgers, head, record)

    async def _read(self, ledger_id: int, found: dict[tuple[Owner, int], list[tuple[int, Purpose]]]) -> None:
        try:
            custom = (await self.client.metadata(ledger_id)).custom
        except NoSuchLedger:
            return
        except MetadataCorrupt as error:
            log.warn("ledger {ledger_id} is left alone: {error}", ledger_id=ledger_id, error=error)
            return
        if not is_ours(custom):
            return
        purpose = parse_purpose(custom)
        if purpose is None:
            log.warn("ledger {ledger_id} is left alone: it does not say what it is for", ledger_id=ledger_id)
            self.left[Fate.UNKNOWN] += 1
        elif purpose.commit_path == self.commits.base:
            found.setdefault((purpose.owner, purpose.batch), []).append((ledger_id, purpose))

    async def _judge(self, ledgers: list[tuple[int, Purpose]], head: Head | None, record: Commit | None) -> None:
        judge = partial(
            fate_of, head=head, record=record, instance=self.commits.instance, swept_before_ms=self.before_ms
        )
        orphans: list[Orphan] = []
        for ledger_id, purpose in sorted(ledgers, key=lambda each: each[0]):
            fate = judge(ledger_id, purpose)
            if fate.is_orphan:
                orphans.append(Orphan(ledger_id, purpose, fate))
            else:
                self.left[fate] += 1
        if not self.dry_run:
            await in_parallel((self._delete(orphan) for orphan in orphans), AT_ONCE)
        self.orphans += orphans

    async def _delete(self, orphan: Orphan) -> None:
        try:
            await self.client.delete(orphan.ledger_id)
        except NoSuchLedger:
            return
        log.info("deleted {orphan}", orphan=str(orphan))
