"""What Spark's writes have committed, kept in the metadata store; `commit_format` draws it.

Each commit is one transaction: on the mark of the sweep, the head of the job or query, and the record of the batch.
It happens as a whole or not at all, and at most once, whoever repeats it: the transaction rests on the versions that
were judged (I-15), and after a lost answer the record says what became of it (I-16).

    begin      makes the head, before any ledger is made; the ledgers name it by its creation id
    commit     judged by head and record; then head and record are written together
    give_up    makes sure that a write is never committed, also by a process that is still about to: the head names it
    forget     lets old batches count for nothing, before their ledgers and records are removed
    forbid     makes sure that no write is committed any more that has a ledger made before some time

When a ledger was made is what the metadata store says of its znode; what time it is, what it says of a znode that it
has just written.

Reads follow a sync (I-19). Thread: reactor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.client.connecting import metadata_settings
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import MetadataOutcomeUnknown, NoSuchLedger
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import (
    Check,
    Create,
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeNotEmpty,
    Stat,
    Step,
    Tree,
    Write,
)
from bookkeeper.metadata.znode_store import ZnodeStore
from bookkeeper.spark.sink.commit_format import (
    BATCHES_PER_GROUP,
    Commit,
    CommitRefused,
    Head,
    Kind,
    Owner,
    Verdict,
    check_instance,
    format_head,
    format_mark,
    format_record,
    group_path,
    head_path,
    judge,
    owners_path,
    parse_head,
    parse_mark,
    parse_record,
    record_path,
)

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.faces.blocking import BlockingBookKeeper
    from bookkeeper.model import LedgerMetadata
    from bookkeeper.ports import Clock

AT_ONCE = 64
"""Records read at a time."""


async def commits_at(client: LedgerClient, path: str) -> SinkCommits:
    """What was committed below `path`, in the session of a client. Raises NotInitialised."""
    store = client.store
    assert isinstance(store, ZnodeStore), "commits are znodes"
    instance = await store.admin.instance_id()
    return SinkCommits(store.tree, path, instance, client.context.clock, metadata_settings(client.settings))


def begin(client: BlockingBookKeeper, path: str, owner: Owner) -> int:
    """`SinkCommits.begin`, of the cluster of a client. Thread: any but the reactor's."""

    async def begun(ledgers: LedgerClient) -> int:
        return await (await commits_at(ledgers, path)).begin(owner)

    return client.run(lambda ledgers: Deferred.fromCoroutine(begun(ledgers)))


async def oldest_of(client: LedgerClient, ledger_ids: Iterable[int]) -> int | None:
    """When the first of some ledgers was made, by the metadata store, in milliseconds since 1970; None without any.

    Raises CommitRefused where one is gone, MetadataError.
    """
    made: list[int] = []

    async def look(ledger_id: int) -> None:
        try:
            made.append(stored_ms_of(await client.metadata(ledger_id)))
        except NoSuchLedger as error:
            raise CommitRefused(f"ledger {ledger_id} was deleted before it was committed: write it again") from error

    await in_parallel((look(ledger_id) for ledger_id in ledger_ids), AT_ONCE)
    return min(made, default=None)


def stored_ms_of(metadata: LedgerMetadata) -> int:
    """When the metadata store made the znode of a ledger that was read from it."""
    assert metadata.stored_ms is not None, "read from znodes"
    return metadata.stored_ms


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A record, and when it was made, by the metadata store."""

    commit: Commit
    created_ms: int


class SinkCommits:
    """The znodes below `base`, for the cluster with one instance id."""

    def __init__(self, tree: Tree, base: str, instance: str, clock: Clock, settings: MetadataSettings) -> None:
        self.base, self.instance = base, instance
        self._tree, self._clock, self._settings = tree, clock, settings

    # --- changes

    async def begin(self, owner: Owner) -> int:
        """Make sure that the head is there; its creation id. Before any ledger is made, which is to name it.

        Raises CommitRefused where it is another cluster's, MetadataUnavailable, MetadataCorrupt.
        """
        errand = self._errand(f"begin a write of {owner}")
        while True:
            found = await self._head(errand, owner)
            if found is not None:
                check_instance(owner, found[0], self.instance)
                return found[1].creation_id
            try:
                await self._put_head(errand, owner, Head(self.instance), None)
            except (NodeExists, NodeAbsent, MetadataOutcomeUnknown) as error:
                errand.check_time(f"{head_path(self.base, owner)} keeps changing: {error}")
            await errand.sync()

    async def commit(
        self,
        owner: Owner,
        new: Commit,
        oldest_ms: int | None,
        head_id: int | None = None,
        query: str = "",
        *,
        accept_repeat: bool = False,
    ) -> Commit:
        """Commit `new` unless its batch is committed; what is committed as this batch from now on.

        oldest_ms: when the first of its ledgers was made, by the store (`oldest_of`); None without any. head_id: what
        `begin` said before they were made; None where they do not name it. query: that runs this job in foreachBatch.
        accept_repeat: where the batch is committed with other rows, leave out those of `new`; else that is refused.
        Repeating it is harmless.
        Raises CommitRefused, MetadataOutcomeUnknown, MetadataUnavailable, MetadataCorrupt.
        """
        errand = self._errand(f"commit batch {new.batch} of {owner}")
        path = record_path(self.base, owner, new.batch)
        data = format_record(new)
        await errand.sync()
        while True:
            swept_before_ms, mark_version = await self._mark(errand)
            found = await self._head(errand, owner)
            head, record = found[0] if found else None, await self._record(errand, owner, new.batch)
            verdict = judge(owner, head, record, new, self.instance, query, accept_repeat=accept_repeat)
            if verdict is not Verdict.COMMIT:
                assert record is not None
                if verdict is Verdict.DONE or not query or await self._noted(errand, owner, found, new):
                    return record
                continue
            self._check_head(owner, found, head_id)
            if oldest_ms is not None and oldest_ms < swept_before_ms:
                raise CommitRefused(
                    f"batch {new.batch} of {owner} is not committed: it has ledgers that were made before the sweep of "
                    f"{self.base} took all that were not committed, with an age of more than "
                    f"{(swept_before_ms - oldest_ms) / 1000:.0f} s besides. Write it again, and let the sweep leave "
                    "what is younger than the longest write takes"
                )
            after = (head or Head(self.instance)).with_batch(new.batch, query, new.write if query else "")
            steps: list[Step] = [Check(self.base, mark_version)]
            if found is None:
                await errand.ensure_all(owners_path(self.base, owner.kind))
                steps.append(Create(head_path(self.base, owner), format_head(after)))
            else:
                steps.append(Write(head_path(self.base, owner), format_head(after), found[1].version))
            group = group_path(self.base, owner, new.batch)
            if await errand.stat(group) is None:
                steps.append(Create(group))
            steps.append(Create(path, data))

            async def is_done() -> bool:
                there = await self._record(errand, owner, new.batch)
                return there is not None and there.write == new.write

            try:
                await errand.transact(steps, is_done)
            except (NodeExists, NodeAbsent, NodeChanged) as error:
                errand.check_time(f"{head_path(self.base, owner)} keeps changing: {error}")
            else:
                return new

    async def give_up(self, owner: Owner, batch: int, write: str, head_id: int | None = None) -> bool:
        """Make sure that a write is never committed; False where it was.

        Once this has returned True, nothing will ever name its ledgers. head_id: as of `commit`. Raises as that; then
        it is not known.
        """
        errand = self._errand(f"give up a write of batch {batch} of {owner}")
        path = head_path(self.base, owner)
        await errand.sync()
        while True:
            found = await self._head(errand, owner)
            record = await self._record(errand, owner, batch)
            if record is not None:
                return record.write != write
            self._check_head(owner, found, head_id)
            head = found[0] if found else Head(self.instance)
            if head.instance != self.instance or batch <= head.last_batch or write in head.aborted:
                return True
            try:
                await self._put_head(errand, owner, head.with_aborted(write), found[1] if found else None)
            except (NodeExists, NodeAbsent, NodeChanged, MetadataOutcomeUnknown) as error:
                errand.check_time(f"{path} keeps changing: {error}")
            # The next look tells whether it is written, or a commit came before it.

    async def forbid(self, before_ms: int) -> int:
        """Let nothing be committed any more that has a ledger made before `before_ms`; the time that counts now.

        That is not before an earlier call's.
        """
        errand = self._errand(f"sweep {self.base}")
        await errand.sync()
        while True:
            now_ms, version = await self._mark(errand)
            if now_ms >= before_ms:
                return now_ms
            try:
                await errand.write(self.base, format_mark(before_ms), version)
            except (NodeAbsent, NodeChanged, MetadataOutcomeUnknown) as error:  # the next look tells
                errand.check_time(f"{self.base} keeps changing: {error}")

    async def now_ms(self) -> int | None:
        """The time by the metadata store: the mark is written as it is. None where there is none, which stays so."""
        errand = self._errand(f"ask what time it is at {self.base}")
        await errand.sync()
        while True:
            found = await errand.read_if_present(self.base)
            if found is None:
                return None
            data, stat = found
            parse_mark(data, self.base)
            try:
                return (await errand.write(self.base, data, stat.version)).modified_ms
            except (NodeAbsent, NodeChanged, MetadataOutcomeUnknown) as error:
                errand.check_time(f"{self.base} keeps changing: {error}")

    # --- reads

    async def forbidden(self) -> int:
        """The time before which nothing that is committed from now on was made; 0 where there was no sweep."""
        found = await self._errand(f"read {self.base}").read_surely(self.base)
        return parse_mark(found[0], self.base) if found else 0

    async def owners(self, kind: Kind) -> list[Owner]:
        """All jobs, or queries, by name."""
        errand = self._errand(f"list {owners_path(self.base, kind)}")
        await errand.sync()
        try:
            names = await errand.children(owners_path(self.base, kind))
        except NodeAbsent:
            return []
        return [Owner(kind, name) for name in sorted(names)]

    async def head(self, owner: Owner) -> Head | None:
        """What is known of a job or query; None where it is not there (then after a sync)."""
        found = await self.head_and_id(owner)
        return None if found is None else found[0]

    async def head_and_id(self, owner: Owner) -> tuple[Head, int] | None:
        """The same, and the creation id of its znode."""
        path = head_path(self.base, owner)
        found = await self._errand(f"read {owner}").read_surely(path)
        return None if found is None else (parse_head(found[0], path), found[1].creation_id)

    async def record(self, owner: Owner, batch: int) -> Commit | None:
        """What is committed as a batch; None where nothing is (then after a sync)."""
        path = record_path(self.base, owner, batch)
        found = await self._errand(f"read batch {batch} of {owner}").read_surely(path)
        return None if found is None else parse_record(found[0], path)

    async def commits(self, owner: Owner) -> AsyncIterator[Commit]:
        """All that a job or query committed and that is not forgotten, in order; those that come meanwhile may be among
        them.

        Raises CommitRefused where nothing is known of it, or where it is another cluster's.
        """
        head = await self.committed_head(owner)
        async for each in self.stored(owner):
            if each.commit.batch >= head.forgotten:
                yield each.commit

    async def committed_head(self, owner: Owner) -> Head:
        """The head of what has committed something to this cluster, after a sync. Raises CommitRefused."""
        errand = self._errand(f"look for what {owner} committed")
        await errand.sync()
        found = await self._head(errand, owner)
        if found is None or found[0].last_batch < 0:
            raise CommitRefused(
                f"{owner} has committed nothing below {self.base} at {self._tree.description}: check its name, and the "
                "option commitPath"
            )
        check_instance(owner, found[0], self.instance)
        return found[0]

    async def stored(self, owner: Owner) -> AsyncIterator[StoredCommit]:
        """All records of a job or query, in order; also of forgotten batches that are still there.

        Those that are forgotten meanwhile may be missing. Raises CommitRefused where others are removed.
        """
        path = head_path(self.base, owner)
        for group in sorted(await self._errand(f"list the batches of {owner}").children(path)):
            try:
                names = sorted(await self._errand(f"list {path}/{group}").children(f"{path}/{group}"))
            except NodeAbsent as error:
                if (int(group) + 1) * BATCHES_PER_GROUP <= (await self.committed_head(owner)).forgotten:
                    continue
                raise CommitRefused(
                    f"{owner}: {path}/{group} was removed while it was to be read, and its batches were not forgotten: "
                    "bring it back from a backup"
                ) from error
            records: dict[str, StoredCommit] = {}

            async def read(name: str, records: dict[str, StoredCommit] = records, group: str = group) -> None:
                there = f"{path}/{group}/{name}"
                found = await self._errand(f"read {there}").read_if_present(there)
                if found is not None:
                    records[name] = StoredCommit(parse_record(found[0], there), found[1].created_ms)
                elif int(name) >= (await self.committed_head(owner)).forgotten:
                    raise CommitRefused(f"{owner}: the record {there} was removed while it was to be read")

            for at in range(0, len(names), AT_ONCE):
                some = names[at : at + AT_ONCE]
                await in_parallel((read(name) for name in some), AT_ONCE)
                for name in some:
                    if name in records:
                        yield records.pop(name)

    # --- forgetting

    async def forget(self, owner: Owner, before: int) -> Head:
        """Let the batches before a number count for nothing, but the last one; the head then."""
        errand = self._errand(f"forget batches of {owner}")
        while True:
            await errand.sync()
            found = await self._head(errand, owner)
            if found is None:
                raise CommitRefused(f"{owner}: {head_path(self.base, owner)} was removed")
            head, stat = found
            check_instance(owner, head, self.instance)
            after = head.with_forgotten(before)
            if after == head:
                return head
            try:
                await self._put_head(errand, owner, after, stat)
            except (NodeAbsent, NodeChanged, MetadataOutcomeUnknown) as error:  # the next look tells
                errand.check_time(f"{head_path(self.base, owner)} keeps changing: {error}")

    async def remove(self, owner: Owner, batch: int) -> None:
        """Remove the record of a forgotten batch; harmless where it is gone."""
        await self._remove(record_path(self.base, owner, batch))

    async def remove_groups(self, owner: Owner, before: int) -> None:
        """Remove the directories of records of batches before a number, if nothing is left in them."""
        path = head_path(self.base, owner)
        for group in sorted(await self._errand(f"list the batches of {owner}").children(path)):
            if (int(group) + 1) * BATCHES_PER_GROUP <= before:
                with suppress(NodeNotEmpty):
                    await self._remove(f"{path}/{group}")

    async def _remove(self, path: str) -> None:
        with suppress(NodeAbsent):
            await self._errand(f"remove {path}").delete(path, 0)  # nothing ever writes there again

    # --- znodes

    async def _mark(self, errand: Errand) -> tuple[int, int]:
        """The mark and its version; made where it is missing."""
        found = await errand.read_if_present(self.base)
        if found is None:
            await errand.ensure_all(self.base)
            found = await errand.read(self.base)
        data, stat = found
        return parse_mark(data, self.base), stat.version

    async def _head(self, errand: Errand, owner: Owner) -> tuple[Head, Stat] | None:
        path = head_path(self.base, owner)
        found = await errand.read_if_present(path)
        return None if found is None else (parse_head(found[0], path), found[1])

    def _check_head(self, owner: Owner, found: tuple[Head, Stat] | None, head_id: int | None) -> None:
        if head_id is not None and (found is None or found[1].creation_id != head_id):
            raise CommitRefused(
                f"{owner} was begun, and {head_path(self.base, owner)} was removed since: what had been committed "
                "cannot be told any more, so nothing is. Write it again"
            )

    async def _noted(self, errand: Errand, owner: Owner, found: tuple[Head, Stat] | None, new: Commit) -> bool:
        """Note in the head of a job that this write found its batch committed; False: look once more."""
        assert found is not None, "there is a record"
        head, stat = found
        if head.last_batch != new.batch or head.last_write == new.write:
            return True
        try:
            await self._put_head(errand, owner, head.with_repeat(new.write), stat)
        except (NodeAbsent, NodeChanged, MetadataOutcomeUnknown) as error:
            errand.check_time(f"{head_path(self.base, owner)} keeps changing: {error}")
            return False
        return True

    async def _put_head(self, errand: Errand, owner: Owner, head: Head, seen: Stat | None) -> None:
        path, data = head_path(self.base, owner), format_head(head)
        if seen is None:
            await errand.ensure_all(owners_path(self.base, owner.kind))
            await errand.create(path, data, lambda there, _: there == data)
        else:
            await errand.write(path, data, seen.version)

    async def _record(self, errand: Errand, owner: Owner, batch: int) -> Commit | None:
        path = record_path(self.base, owner, batch)
        found = await errand.read_if_present(path)
        return None if found is None else parse_record(found[0], path)

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, purpose)
