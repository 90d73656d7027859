"""What Spark has committed to ledgers: jobs, queries, and the ledgers of each batch. Thread: any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import connect
from bookkeeper.client.parallel import in_parallel
from bookkeeper.config import ClientSettings
from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.sink.commit_format import Commit, Kind, Owner
from bookkeeper.spark.sink.commits import AT_ONCE, SinkCommits, commits_at
from bookkeeper.spark.sink.options import COMMIT_PATH, check_commit_path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommittedWrite:
    """A job or query, and the last batch it committed (0 of a job outside of streams)."""

    owner: Owner
    last_batch: int


def committed_writes(
    uri: str, settings: ClientSettings | None = None, *, commit_path: str = COMMIT_PATH
) -> list[CommittedWrite]:
    """Jobs, then queries, then imports, by name, that committed something to this cluster."""
    return _ask(uri, settings, commit_path, _writes)


def commits_of_query(
    uri: str, query: str, settings: ClientSettings | None = None, *, commit_path: str = COMMIT_PATH
) -> list[Commit]:
    """The batches that a query committed, in order, with their ledgers. Raises CommitRefused where there is none."""
    return _ask(uri, settings, commit_path, lambda commits: _commits(commits, Owner(Kind.QUERY, query)))


def commit_of_job(
    uri: str, job: str, settings: ClientSettings | None = None, *, commit_path: str = COMMIT_PATH
) -> Commit:
    """What a job committed, with its ledgers. Raises CommitRefused where it did not.

    Raises InvalidArgument for one that a query ran in several batches: see `commits_of_job`.
    """
    found = commits_of_job(uri, job, settings, commit_path=commit_path)
    if len(found) > 1:
        raise InvalidArgument(
            f"job {job} was committed in {len(found)} batches of a query, by foreachBatch: ask for commits_of_job"
        )
    return found[0]


def commits_of_job(
    uri: str, job: str, settings: ClientSettings | None = None, *, commit_path: str = COMMIT_PATH
) -> list[Commit]:
    """What a job committed: in each batch of the query that runs it in foreachBatch, in order; else one.

    Raises CommitRefused where there is none.
    """
    return _ask(uri, settings, commit_path, lambda commits: _commits(commits, Owner(Kind.JOB, job)))


def _ask(uri: str, settings: ClientSettings | None, commit_path: str, ask: Callable[[SinkCommits], Awaitable[T]]) -> T:
    check_commit_path(commit_path, uri)

    async def asked(client: LedgerClient) -> T:
        return await ask(await commits_at(client, commit_path))

    with connect(uri, settings) as client:
        return client.run(lambda ledgers: Deferred.fromCoroutine(asked(ledgers)))


async def _commits(commits: SinkCommits, owner: Owner) -> list[Commit]:
    return [commit async for commit in commits.commits(owner)]


async def _writes(commits: SinkCommits) -> list[CommittedWrite]:
    owners = [owner for kind in Kind for owner in await commits.owners(kind)]
    found: dict[Owner, CommittedWrite] = {}

    async def look(owner: Owner) -> None:
        head = await commits.head(owner)
        if head is not None and head.instance == commits.instance and head.last_batch >= 0:
            found[owner] = CommittedWrite(owner, head.last_batch)

    await in_parallel((look(owner) for owner in owners), AT_ONCE)
    return [found[owner] for owner in owners if owner in found]
