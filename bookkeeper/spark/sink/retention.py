"""Forgetting what a query committed long ago: its oldest batches, with their ledgers.

    import bookkeeper.spark
    bookkeeper.spark.forget("zk://zk1:2181/ledgers", query="0b2c...", older_than_s=30 * 86_400)

A stream that runs for years has a record in the metadata store for each batch, and ledgers; nothing of it goes by
itself. What is forgotten is deleted: it is not there any more for who reads by `query` or `job`, nor by ids.

    the head    says which batches are forgotten, and nobody reads them by its name from then on
    ledgers     of each such batch are deleted
    its record  is removed, at last

Whatever happens in between, the same call goes on; what died in between costs at most some ledgers that nobody reads,
which the sweep deletes, too. A batch that is forgotten is not committed again. The last one is never forgotten: by its
record a replay of it is known. Ages are of commits, by the clock of the metadata store.

Cost: two reads for each batch that is forgotten, and what deleting its ledgers costs. Thread: any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import connect
from bookkeeper.client.parallel import in_parallel
from bookkeeper.clock import wall_ms
from bookkeeper.config import ClientSettings
from bookkeeper.errors import InvalidArgument, NoSuchLedger
from bookkeeper.spark.sink.commit_format import Commit, CommitRefused, Kind, Owner
from bookkeeper.spark.sink.commits import AT_ONCE, SinkCommits, commits_at
from bookkeeper.spark.sink.options import COMMIT_PATH, check_commit_path

log = Logger()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was forgotten, or would have been. first_kept: number of the oldest batch that there is now."""

    owner: Owner
    batches: int
    ledgers: int
    first_kept: int
    dry_run: bool


def forget(
    uri: str,
    settings: ClientSettings | None = None,
    *,
    older_than_s: float,
    query: str = "",
    job: str = "",
    commit_path: str = COMMIT_PATH,
    dry_run: bool = False,
) -> Forgotten:
    """Delete the batches, with their ledgers, that a query committed longer ago than `older_than_s`; not the last one.

    job: in place of the query, one that foreachBatch of a query runs. dry_run: change nothing.
    Raises CommitRefused where it has committed nothing, LedgerError, MetadataError; then call it once more.
    """
    if bool(query) == bool(job):
        raise InvalidArgument("give a query or a job: whose batches are to be forgotten")
    if not older_than_s >= 0:
        raise InvalidArgument(f"older_than_s={older_than_s}: want 0 or more seconds")
    check_commit_path(commit_path, uri)
    owner = Owner(Kind.QUERY, query) if query else Owner(Kind.JOB, job)
    with connect(uri, settings) as client:
        return client.run(
            lambda ledgers: Deferred.fromCoroutine(
                forget_with(ledgers, commit_path, owner, older_than_s, dry_run=dry_run)
            )
        )


async def forget_with(
    client: LedgerClient, commit_path: str, owner: Owner, older_than_s: float, *, dry_run: bool
) -> Forgotten:
    """The same, by a client of the cluster. Thread: reactor."""
    commits = await commits_at(client, commit_path)
    head = await commits.committed_head(owner)
    now_ms = await commits.now_ms()
    if now_ms is None:
        raise CommitRefused(f"{owner}: {commit_path} was removed just now")
    # Old enough by both clocks, so that a forward step of one clock deletes nothing too early.
    before_ms = min(now_ms, wall_ms()) - int(older_than_s * 1000)
    batches = ledgers = 0
    first_kept = head.last_batch
    async for each in commits.stored(owner):
        batch = each.commit.batch
        if batch >= head.last_batch or (batch >= head.forgotten and each.created_ms >= before_ms):
            first_kept = min(batch, head.last_batch)
            break
        batches, ledgers = batches + 1, ledgers + len(each.commit.ledgers)
    if not dry_run:
        # Not beyond what was just counted, whatever others forget or commit meanwhile.
        await commits.forget(owner, first_kept)
        await _remove(client, commits, owner, first_kept)
    return Forgotten(owner, batches, ledgers, first_kept, dry_run)


async def _remove(client: LedgerClient, commits: SinkCommits, owner: Owner, first_kept: int) -> None:
    some: list[Commit] = []
    async for each in commits.stored(owner):
        if some and (each.commit.batch >= first_kept or len(some) >= AT_ONCE):
            await _remove_some(client, commits, owner, some)
            some = []
        if each.commit.batch >= first_kept:
            break
        some.append(each.commit)
    await commits.remove_groups(owner, first_kept)


async def _remove_some(client: LedgerClient, commits: SinkCommits, owner: Owner, some: Sequence[Commit]) -> None:
    ids = [ledger.ledger_id for commit in some for ledger in commit.ledgers]
    await in_parallel((_delete(client, ledger_id) for ledger_id in ids), AT_ONCE)
    # Only now: by the records it is known which ledgers there are.
    await in_parallel((commits.remove(owner, commit.batch) for commit in some), AT_ONCE)
    log.info(
        "{owner}: forgot batches {first} to {last}, {count} ledgers",
        owner=str(owner),
        first=some[0].batch,
        last=some[-1].batch,
        count=len(ids),
    )


async def _delete(client: LedgerClient, ledger_id: int) -> None:
    try:
        await client.delete(ledger_id)
    except NoSuchLedger:
        return
