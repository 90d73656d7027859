"""What Spark's writes have committed: once, whoever repeats or gives up what, and never what the sweep may take."""

from __future__ import annotations

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.znode_store import ZnodeStore
from bookkeeper.spark.sink.commit_format import Commit, CommitRefused, Head, Kind, Owner, WrittenLedger
from bookkeeper.spark.sink.commits import SinkCommits
from tests.support.metadata_contract.world import World, cluster, fact, ledger, raises

QUERY, JOB = Owner(Kind.QUERY, "q"), Owner(Kind.JOB, "j")


async def commits_of(world: World, instance: str = "this") -> SinkCommits:
    """Another process's."""
    store = await world.connect()
    assert isinstance(store, ZnodeStore)
    # The lossy world needs some time.
    settings = MetadataSettings(operation_timeout_s=300.0)
    return SinkCommits(store.tree, f"{world.root}-spark", instance, world.clock, settings)


def batch_of(batch: int, write: str, *ledger_ids: int) -> Commit:
    ledgers = tuple(WrittenLedger(ledger_id, 10, 1000, 7, at, 0) for at, ledger_id in enumerate(ledger_ids))
    return Commit(batch, write, ledgers)


async def all_of(commits: SinkCommits, owner: Owner = QUERY) -> list[Commit]:
    return [commit async for commit in commits.commits(owner)]


@fact
async def a_batch_of_spark_is_committed_once_however_often_it_is_repeated(world: World) -> None:
    driver, restarted = await commits_of(world), await commits_of(world)
    first, again, other = batch_of(0, "w1", 1, 2), batch_of(0, "w1", 1, 2), batch_of(0, "w2", 3, 4)
    assert await driver.commit(QUERY, first, 1000) == first
    assert await driver.commit(QUERY, again, 1000) == first
    assert await restarted.commit(QUERY, other, 1000) == first
    assert await all_of(restarted) == [first]
    second = batch_of(1, "w3", 5)
    assert await restarted.commit(QUERY, second, 1000) == second
    assert await restarted.commit(QUERY, other, 1000) == first, "also when it is not the last any more"
    assert await all_of(driver) == [first, second]


@fact
async def a_batch_of_spark_that_comes_again_with_other_rows_is_refused_unless_they_may_be_left_out(
    world: World,
) -> None:
    """The checkpoint is an old copy, say: what was committed as that batch is another part of what there was."""
    driver, restored = await commits_of(world), await commits_of(world)
    first, larger = batch_of(0, "w1", 1), batch_of(0, "w2", 2, 3)
    of_job, larger_of_job = batch_of(0, "run1.a", 4), batch_of(0, "run2.a", 5, 6)
    await driver.commit(QUERY, first, 1000)
    await driver.commit(JOB, of_job, 1000, None, "q")
    for _ in range(2):
        error = await raises(CommitRefused, restored.commit(QUERY, larger, 1000))
        assert "with 10 entries of 1000 bytes, and this write of it has 20 entries of 2000 bytes" in str(error)
        await raises(CommitRefused, restored.commit(JOB, larger_of_job, 1000, None, "q"))
        assert await restored.give_up(QUERY, 0, "w2") is True
    for _ in range(2):
        assert await restored.commit(QUERY, larger, 1000, accept_repeat=True) == first
        assert await restored.commit(JOB, larger_of_job, 1000, None, "q", accept_repeat=True) == of_job
    assert [*await all_of(driver), *await all_of(driver, JOB)] == [first, of_job]


@fact
async def of_two_writes_of_one_batch_of_spark_one_is_committed_and_both_hear_which(world: World) -> None:
    for batch in range(3):
        sides = [await commits_of(world) for _ in range(2)]
        found = await gatherResults(
            [
                Deferred.fromCoroutine(side.commit(QUERY, batch_of(batch, f"{batch}-{number}", number), 1000))
                for number, side in enumerate(sides)
            ]
        )
        assert found[0] == found[1]
        assert (await all_of(sides[0]))[batch] == found[0]


@fact
async def a_write_of_spark_that_was_given_up_is_never_committed(world: World) -> None:
    """Not by a process that is still about to, either; the batch may be written again."""
    driver, zombie = await commits_of(world), await commits_of(world)
    for batch in range(2):
        assert await driver.give_up(QUERY, batch, f"first-{batch}") is True
        assert await driver.give_up(QUERY, batch, f"first-{batch}") is True, "and may be so twice"
        await raises(CommitRefused, zombie.commit(QUERY, batch_of(batch, f"first-{batch}", 1), 1000))
        second = batch_of(batch, f"second-{batch}", 2)
        assert await driver.commit(QUERY, second, 1000) == second
        assert await zombie.commit(QUERY, batch_of(batch, f"first-{batch}", 1), 1000) == second
    assert [commit.write for commit in await all_of(driver)] == ["second-0", "second-1"]


@fact
async def a_write_of_spark_that_took_effect_is_not_given_up(world: World) -> None:
    driver, other = await commits_of(world), await commits_of(world)
    first = batch_of(0, "w1", 1)
    await driver.commit(QUERY, first, 1000)
    assert await other.give_up(QUERY, 0, "w1") is False
    assert await other.give_up(QUERY, 0, "w2") is True, "another's was"
    assert await all_of(other) == [first]


@fact
async def a_commit_of_spark_that_is_given_up_at_the_same_time_happens_or_does_not_and_both_agree(world: World) -> None:
    for batch in range(4):
        committer, aborter = await commits_of(world), await commits_of(world)
        outcomes: list[object] = []
        committing = Deferred.fromCoroutine(committer.commit(QUERY, batch_of(batch, f"w{batch}", batch), 1000))
        committing.addCallbacks(outcomes.append, lambda failure, outcomes=outcomes: outcomes.append(failure.value))
        given_up = await aborter.give_up(QUERY, batch, f"w{batch}")
        await committing
        assert isinstance(outcomes[0], CommitRefused if given_up else Commit), outcomes
        head = await aborter.head(QUERY)
        assert head is not None
        assert (head.last_batch == batch) is not given_up
        if given_up:
            await committer.commit(QUERY, batch_of(batch, f"again{batch}", 100 + batch), 1000)


@fact
async def batches_of_a_query_of_spark_rise(world: World) -> None:
    commits = await commits_of(world)
    await commits.commit(QUERY, batch_of(5, "w5", 1), 1000)
    error = await raises(CommitRefused, commits.commit(QUERY, batch_of(4, "w4", 2), 1000))
    assert "batch 4 of query q was not committed, and 5 was" in str(error)
    assert "checkpoint" in str(error)
    await commits.commit(QUERY, batch_of(7, "w7", 3), 1000)
    assert [commit.batch for commit in await all_of(commits)] == [5, 7]


@fact
async def a_job_of_spark_is_committed_once_and_its_name_is_taken_then(world: World) -> None:
    commits = await commits_of(world)
    assert await commits.give_up(JOB, 0, "failed") is True
    first = batch_of(0, "w1", 1)
    assert await commits.commit(JOB, first, 1000) == first
    assert await commits.commit(JOB, first, 1000) == first
    error = await raises(CommitRefused, commits.commit(JOB, batch_of(0, "w2", 2), 1000))
    assert "job j was committed before, by another write" in str(error)
    assert await all_of(commits, JOB) == [first]
    assert (await commits.owners(Kind.JOB), await commits.owners(Kind.QUERY)) == ([JOB], [])


@fact
async def a_job_that_foreach_batch_runs_is_committed_once_for_each_batch_and_written_once_in_each(world: World) -> None:
    driver, restarted = await commits_of(world), await commits_of(world)
    first, second = batch_of(0, "run1.a", 1), batch_of(1, "run1.b", 2)
    for new in (first, second):
        assert await driver.commit(JOB, new, 1000, None, "q") == new
        assert await driver.commit(JOB, new, 1000, None, "q") == new
    # A second write by that name would be taken for a replay after a restart, and be missing.
    await raises(CommitRefused, driver.commit(JOB, batch_of(1, "run1.c", 3), 1000, None, "q"))
    for _ in range(2):
        assert await restarted.commit(JOB, batch_of(1, "run2.a", 4), 1000, None, "q") == second
    error = await raises(CommitRefused, restarted.commit(JOB, batch_of(1, "run2.b", 5), 1000, None, "q"))
    assert "job j was written before in this run of batch 1 of query q" in str(error)
    assert await restarted.give_up(JOB, 1, "run2.b") is True
    third = batch_of(2, "run2.c", 6)
    assert await restarted.commit(JOB, third, 1000, None, "q") == third
    assert await all_of(driver, JOB) == [first, second, third]
    await raises(CommitRefused, driver.commit(JOB, batch_of(3, "run1.d", 7), 1000, None, "another"))
    await raises(CommitRefused, driver.commit(JOB, batch_of(0, "w", 7), 1000))


@fact
async def what_the_sweep_of_spark_may_take_is_never_committed(world: World) -> None:
    driver, sweeper = await commits_of(world), await commits_of(world)
    await driver.commit(QUERY, batch_of(0, "w0", 1), 500)
    assert await sweeper.forbidden() == 0
    assert await sweeper.forbid(1000) == 1000
    assert await sweeper.forbidden() == 1000
    assert await sweeper.forbid(900) == 1000, "it only rises"
    error = await raises(CommitRefused, driver.commit(QUERY, batch_of(1, "w1", 2), 999))
    assert "sweep" in str(error)
    await driver.commit(QUERY, batch_of(1, "w2", 3), 1000)
    await driver.commit(QUERY, batch_of(2, "w3"), None)
    assert [commit.write for commit in await all_of(driver)] == ["w0", "w2", "w3"]


@fact
async def a_commit_of_spark_and_a_sweep_at_the_same_time_agree(world: World) -> None:
    for batch in range(4):
        driver, sweeper = await commits_of(world), await commits_of(world)
        outcomes: list[object] = []
        oldest_ms = 100 * batch + 50
        committing = Deferred.fromCoroutine(driver.commit(QUERY, batch_of(batch, f"w{batch}", batch), oldest_ms))
        committing.addCallbacks(outcomes.append, lambda failure, outcomes=outcomes: outcomes.append(failure.value))
        await sweeper.forbid(oldest_ms + 1)
        seen = await sweeper.record(QUERY, batch)
        await committing
        assert isinstance(outcomes[0], CommitRefused if seen is None else Commit), outcomes


@fact
async def the_head_of_a_write_of_spark_is_made_once_before_it_and_a_commit_leaves_it_where_it_is(world: World) -> None:
    sides = [await commits_of(world) for _ in range(3)]
    first, second = await gatherResults([Deferred.fromCoroutine(side.begin(QUERY)) for side in sides[:2]])
    assert first == second
    assert await sides[2].head_and_id(QUERY) == (Head("this"), first)
    assert await sides[0].begin(JOB) != first, "one for each"
    await raises(CommitRefused, all_of(sides[0]))
    only = batch_of(0, "w0", 1)
    assert await sides[0].commit(QUERY, only, 1000, first) == only
    assert await sides[1].give_up(QUERY, 1, "w1", first) is True
    assert await sides[2].begin(QUERY) == first
    await raises(CommitRefused, (await commits_of(world, instance="formatted since")).begin(QUERY))


@fact
async def a_write_of_spark_whose_head_was_removed_is_neither_committed_nor_given_up(world: World) -> None:
    """Nobody can tell any more what was committed; unknown is not "no"."""
    store = await world.connect()
    assert isinstance(store, ZnodeStore)
    driver, other = await commits_of(world), await commits_of(world)
    removed = await driver.begin(QUERY)
    errand = Errand(store.tree, world.clock, MetadataSettings(operation_timeout_s=300.0), "remove a head")
    await errand.delete(f"{world.root}-spark/queries/q", 0)
    for _ in range(2):
        error = await raises(CommitRefused, driver.commit(QUERY, batch_of(0, "w0", 1), 1000, removed))
        assert f"{world.root}-spark/queries/q was removed since" in str(error)
        await raises(CommitRefused, driver.give_up(QUERY, 0, "w0", removed))
        await other.owners(Kind.QUERY)  # after which its session sees the removal
        anew = await other.begin(QUERY)
        assert anew != removed
    second = batch_of(0, "w1", 2)
    assert await other.commit(QUERY, second, 1000, anew) == second
    assert await driver.commit(QUERY, batch_of(0, "w0", 1), 1000, removed) == second


@fact
async def what_time_it_is_to_the_sweep_of_spark_is_what_the_store_says(world: World) -> None:
    commits = await commits_of(world)
    assert await commits.now_ms() is None
    assert await world.get("-spark") is None, "asking makes nothing"
    store = await cluster(world)
    await commits.begin(QUERY)
    for before_ms in (0, 17):
        await commits.forbid(before_ms)
        ledger_id, _ = await store.ledgers.create(ledger())
        made_ms = (await store.ledgers.read(ledger_id)).value.stored_ms
        now_ms = await commits.now_ms()
        assert made_ms is not None
        assert now_ms is not None
        assert made_ms <= now_ms
        assert await commits.forbidden() == before_ms, "the mark says what it said"


@fact
async def commits_of_spark_belong_to_one_cluster(world: World) -> None:
    this, other = await commits_of(world), await commits_of(world, instance="formatted since")
    await this.commit(QUERY, batch_of(0, "w0", 1), 1000)
    error = await raises(CommitRefused, other.commit(QUERY, batch_of(1, "w1", 2), 1000))
    assert "instance id this; this one is formatted since" in str(error)
    await raises(CommitRefused, all_of(other))
    assert await other.give_up(QUERY, 1, "w1") is True
    assert [commit.batch for commit in await all_of(this)] == [0]


@fact
async def batches_of_spark_are_listed_in_order_over_many(world: World) -> None:
    commits = await commits_of(world)
    batches = [0, 9, 10, 999, 1000, 1001, 2**40]
    for batch in batches:
        await commits.commit(QUERY, batch_of(batch, f"w{batch}", batch), 1000)
    assert [commit.batch for commit in await all_of(commits)] == batches
    assert await world.get("-spark/queries/q/0000000001/0000000001001") is not None
    unknown = await raises(CommitRefused, all_of(commits, JOB))
    assert "job j has committed nothing below" in str(unknown)


@fact
async def batches_of_spark_that_are_forgotten_are_not_read_and_go_for_good(world: World) -> None:
    commits, other = await commits_of(world), await commits_of(world)
    for batch in (0, 1, 1000, 1001):
        await commits.commit(QUERY, batch_of(batch, f"w{batch}", batch), 1000)
    assert (await commits.forget(QUERY, 1001)).forgotten == 1001
    assert (await other.forget(QUERY, 5000)).forgotten == 1001, "the last one stays"
    assert [commit.batch for commit in await all_of(other)] == [1001]
    assert [each.commit.batch async for each in other.stored(QUERY)] == [0, 1, 1000, 1001]
    for side in (commits, other):
        for batch in (0, 1, 1000):
            await side.remove(QUERY, batch)
        await side.remove_groups(QUERY, 1001)
    assert [each.commit.batch async for each in commits.stored(QUERY)] == [1001]
    assert await world.get("-spark/queries/q/0000000000") is None
    assert await world.get("-spark/queries/q/0000000001") is not None
    await raises(CommitRefused, commits.commit(QUERY, batch_of(1, "again", 9), 1000))
    following = batch_of(1002, "w1002", 8)
    assert await commits.commit(QUERY, following, 1000) == following
    assert [commit.batch for commit in await all_of(commits)] == [1001, 1002]


@fact
async def commits_of_spark_that_cannot_be_read_are_neither_absent_nor_overwritten(world: World) -> None:
    """I-18."""
    commits = await commits_of(world)
    await world.put("-spark/queries/q", b"garbage")
    error = await raises(MetadataCorrupt, commits.commit(QUERY, batch_of(0, "w0", 1), 1000))
    assert f"{world.root}-spark/queries/q" in str(error)
    await raises(MetadataCorrupt, commits.give_up(QUERY, 0, "w0"))
    assert await world.get("-spark/queries/q") == b"garbage"
    await world.put("-spark", b"garbage")
    await raises(MetadataCorrupt, commits.forbid(1000))
    await raises(MetadataCorrupt, commits.commit(JOB, batch_of(0, "w0", 1), 1000))
