"""One under-replication tree, ours and Apache's programs: what one writes, locks or elects the other respects."""

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor, threads

from bookkeeper.client.faces.blocking import connect as connect_client
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import VersionConflict
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.metadata.underreplication.format import CheckKind
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.metadata.zookeeper import ZooKeeperStore, connect
from bookkeeper.model import BookieId, EntryId, LedgerId
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache
from tests.support.apache_admin import ApacheAutoRecovery, ApacheShell, attributes
from tests.support.metadata_contract import Heard, raises
from tests.support.metadata_contract.underreplication import marked
from tests.support.zookeeper_sessions import end_dead_session

OURS = BookieId("10.9.8.7:3181")
GONE = BookieId("10.0.0.1:3181")
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four bookies; a test gives back those it stops."""
    with LocalCluster(4, directory=tmp_path_factory.mktemp("four"), settings=SESSION_TIMEOUT) as cluster:
        yield cluster


@pytest_twisted.async_yield_fixture
async def store(four: LocalCluster) -> AsyncIterator[ZooKeeperStore]:
    store = await connect(four.uri, clock=reactor, call_from_thread=reactor.callFromThread, random=random.Random(1))
    yield store
    await store.close()


@pytest.fixture
def shell(apache: Apache, tmp_path: Path, four: LocalCluster) -> Iterator[ApacheShell]:
    with ApacheShell(apache, tmp_path, four.uri) as shell:
        yield shell


async def said(shell: ApacheShell, *words: object) -> list[str]:
    """What a command of the genuine shell prints."""
    lines: list[str] = await threads.deferToThread(shell.run, *words)
    return lines


async def eventually(condition: Any, what: str) -> None:
    """Return once the coroutine function says True."""
    deadline_s = reactor.seconds() + PATIENCE_S
    while not await condition():
        assert reactor.seconds() < deadline_s, f"not within {PATIENCE_S:g} s: {what}"
        await pause(reactor, 0.1)


@pytest_twisted.ensureDeferred
async def test_apaches_shell_reads_and_sets_what_we_do(store: ZooKeeperStore, shell: ApacheShell) -> None:
    seam = store.underreplication
    # Not Apache's, and in the way of nothing below.
    announcement = seam.announce(RecoveryProcess("here", 1, 1700000000000, OURS, ("127.0.0.1", 8001)))
    await seam.mark(LedgerId(12345), [GONE, OURS], now_ms=1700000000000)
    await seam.mark(LedgerId(2**33), [GONE], now_ms=None)
    listed = await said(shell, "listunderreplicated", "-pmr")
    assert sorted(attributes("ledgerId", listed)) == ["12345", str(2**33)], listed
    assert sorted(attributes("missingReplica", listed)) == [GONE, GONE, OURS], listed
    assert "1700000000000" in "".join(listed), listed
    for ledger_id in (12345, 2**33):
        seen = await seam.read(LedgerId(ledger_id))
        assert seen is not None
        await seam.remove(seen)
    assert attributes("ledgerId", await said(shell, "listunderreplicated")) == []

    heard = Heard(reactor)
    watch = seam.watch_enabled(heard)
    await seam.disable()
    assert "disabled" in "".join(await said(shell, "autorecovery", "-disable")), "already"
    await said(shell, "autorecovery", "-enable")
    await heard.until(lambda calls: calls[-2:] == [False, True], "that it was turned on")
    await said(shell, "autorecovery", "-disable")
    assert not await seam.is_enabled()
    assert await seam.enable()
    assert "enabled" in "".join(await said(shell, "autorecovery", "-enable")), "already"
    watch.cancel()

    delays = Heard(reactor)
    watch = seam.watch_recovery_delay(delays)
    await seam.set_recovery_delay(37)
    assert "37" in "".join(await said(shell, "lostbookierecoverydelay", "-get"))
    await said(shell, "lostbookierecoverydelay", "-set", 41)
    await delays.until(lambda calls: calls[-1] == 41, "the delay that was set")
    before = len(delays.calls)
    await said(shell, "lostbookierecoverydelay", "-set", 41)
    await delays.until(lambda calls: len(calls) > before, "the same delay once more")
    await seam.set_recovery_delay(0)
    assert "0" in "".join(await said(shell, "lostbookierecoverydelay", "-get"))
    watch.cancel()

    elected = Heard(reactor)
    candidate = seam.candidate(OURS, on_elected=lambda: elected(1), on_lost=lambda: None, on_failed=elected)
    candidate.join()
    await elected.until(len, "our election")
    assert OURS in "".join(await said(shell, "whoisauditor"))
    await candidate.leave()
    assert [process.pid for process in await seam.processes()] == [1]
    await announcement.withdraw()


@pytest_twisted.ensureDeferred
async def test_apaches_auditor_and_worker_share_election_marks_and_locks_with_us(
    apache: Apache, four: LocalCluster, store: ZooKeeperStore, tmp_path: Path
) -> None:
    """The genuine pair finds the loss; our lock keeps its worker off one ledger, and not off the other."""
    seam = store.underreplication
    *kept, dead, spare = four.bookies

    def write() -> list[LedgerId]:
        with connect_client(four.uri, ClientSettings(read_timeout_base_s=REQUEST_TIMEOUT_S)) as client:
            members = [bookie.bookie_id for bookie in (dead, *kept)]
            ids = []
            for _ in range(2):
                with client.create(ensemble=3, write_quorum=2, ack_quorum=2, bookies=members) as ledger:
                    ledger.append_many([b"entry"] * 20)
                ids.append(LedgerId(ledger.id))
            return ids

    locked, free = await threads.deferToThread(write)
    announcement = seam.announce(RecoveryProcess("here", 1, 1700000000000, OURS, None))
    elected = Heard(reactor)
    candidate = seam.candidate(
        OURS, on_elected=lambda: elected("elected"), on_lost=lambda: elected("lost"), on_failed=elected
    )
    settings = {"auditorPeriodicCheckInterval": "1"}
    with ApacheAutoRecovery(apache, tmp_path, four.uri, "theirs", settings) as theirs:

        async def they_audit() -> bool:
            return await seam.current_auditor() == theirs.bookie_id

        async def checked() -> bool:
            return await seam.check_time_ms(CheckKind.ALL_LEDGERS) is not None

        async def only_the_locked_one_is_left() -> bool:
            return spare.bookie_id in await members_of(store, free) and await marked(store) == [locked]

        async def all_are_repaired() -> bool:
            return await marked(store) == [] and await seam.lock_holder(locked) is None

        await eventually(they_audit, "the genuine program is the auditor")
        candidate.join()
        await eventually(checked, "the genuine program notes the time of its check")
        assert elected.calls == []
        lock = await seam.lock(locked, "here", lambda: None)
        assert lock is not None
        await threads.deferToThread(dead.kill)
        await threads.deferToThread(end_dead_session, four.uri, dead.bookie_id)
        await eventually(only_the_locked_one_is_left, "the genuine pair marks both, and repairs the one")
        seen = await seam.read(locked)
        assert seen is not None
        assert seen.missing == (dead.bookie_id,)
        assert seen.marked_ms is not None
        await seam.mark(locked, [GONE], now_ms=5)
        await raises(VersionConflict, seam.remove(seen, lock))
        await lock.release()
        await eventually(all_are_repaired, "the genuine worker repairs what nobody locks")
        assert spare.bookie_id in await members_of(store, locked)
    await elected.until(lambda calls: calls == ["elected"], "our election after the end of theirs")
    with ApacheAutoRecovery(apache, tmp_path, four.uri, "again") as theirs:

        async def both_stand() -> bool:
            return len(await store.tree.children(f"{four.root}/underreplication/auditorelection")) == 2

        await eventually(both_stand, "the genuine program stands again")
        assert await seam.current_auditor() == OURS
        await candidate.leave()
        await eventually(they_audit, "it takes over from us")
    assert [process.pid for process in await seam.processes()] == [1]
    await announcement.withdraw()
    await threads.deferToThread(dead.start)


@pytest_twisted.ensureDeferred
async def test_apaches_format_and_nuke_do_not_mind_what_only_we_keep_in_the_tree(
    apache: Apache, four: LocalCluster, tmp_path: Path
) -> None:
    uri = f"{four.uri}-formatted"
    words = {"clock": reactor, "call_from_thread": reactor.callFromThread, "random": random.Random(1)}
    store = await connect(uri, **words)
    await store.admin.initialise()
    seam = store.underreplication
    seam.announce(RecoveryProcess("here", 1, 1700000000000, OURS, None))
    await seam.mark(LedgerId(7), [GONE], now_ms=None)
    await seam.report_bad_copies(LedgerId(7), [BadRange(OURS, EntryId(0), EntryId(3))])

    async def is_announced() -> bool:
        return len(await seam.processes()) == 1

    await eventually(is_announced, "we are announced")
    before = await store.admin.instance_id()
    with ApacheShell(apache, tmp_path, uri) as shell:
        await said(shell, "metaformat", "-nonInteractive", "-force")
        after = await store.admin.instance_id()
        assert after != before
        assert attributes("ledgerId", await said(shell, "listunderreplicated")) == []
        await eventually(is_announced, "we still are, or are again")
        await store.close()  # as an operator stops everything before this
        root = f"{four.root}-formatted"
        await said(shell, "nukeexistingcluster", "-zkledgersrootpath", root, "-instanceid", after)
    store = await connect(uri, **words)
    assert not await store.admin.exists()
    await store.close()


async def members_of(store: ZooKeeperStore, ledger_id: LedgerId) -> set[BookieId]:
    metadata = (await store.ledgers.read(ledger_id)).value
    return {bookie_id for fragment in metadata.fragments for bookie_id in fragment.ensemble}
