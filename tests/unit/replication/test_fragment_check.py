"""What is found out about copies: bookies that have them, deny them, damage them, or say nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.config import ClientSettings
from bookkeeper.model import BookieId, LedgerId, Status
from bookkeeper.replication.copies.fragment_check import LedgerChecker
from bookkeeper.replication.copies.fragments import FragmentRange
from bookkeeper.replication.copies.verdicts import CopyVerdict, FragmentVerdict, Standing
from bookkeeper.wire import messages
from bookkeeper.wire.messages import ReadLac
from tests.support.damaged_ledgers import Repairs, write_ledger
from tests.support.fake_bookie import HOLD, SILENCE, FakeCluster


def scene(count: int = 3, **options: Any) -> tuple[FakeCluster, Any, Repairs]:
    cluster = FakeCluster(count)
    client = cluster.client(ClientSettings(read_timeout_s=2.0, **options))
    return cluster, cluster.client(), Repairs(cluster, client)


async def verdicts_of(repairs: Repairs, ledger_id: int) -> list[FragmentVerdict]:
    access, current = await repairs.look(ledger_id)
    return await repairs.checker.check_ledger(access, current)


def standings(verdict: FragmentVerdict) -> list[Standing]:
    return [copy.standing for copy in verdict.copies]


def test_whole_copies_are_present_and_nothing_is_fenced() -> None:
    """I-43: only plain reads, of the first and the last entry that each place stores."""
    cluster, writer, repairs = scene()

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 31, write_quorum=2)
        for bookie in cluster.bookies:
            bookie.requests.clear()
        (verdict,) = await verdicts_of(repairs, ledger.id)
        assert verdict.good
        for bookie in cluster.bookies:
            asked = sorted(
                entry_id
                for request in bookie.requests
                if isinstance(request, messages.ReadBatch)
                for entry_id in request.entry_ids
            )
            held = sorted(bookie.entries[ledger.id])
            assert asked == [held[0], held[-1]]
            assert not any(isinstance(request, messages.FenceRead) for request in bookie.requests)
            assert not bookie.fenced

    cluster.wait(scenario())


@pytest.mark.parametrize(
    ("trouble", "standing", "made_anew"),
    [
        ("denied", Standing.ABSENT, True),
        ("no ledger", Standing.ABSENT, True),
        ("damaged", Standing.UNREADABLE, True),
        ("I/O error", Standing.UNREADABLE, True),
        ("silent", Standing.SILENT, False),
        ("gone", Standing.GONE, True),
    ],
)
def test_each_trouble_has_its_standing_and_unknown_is_never_no(
    trouble: str, standing: Standing, made_anew: bool
) -> None:
    cluster, writer, repairs = scene()
    bad = cluster.bookies[1]

    def rule(request: Any) -> object:
        if isinstance(request, messages.ReadBatch):
            return {"I/O error": Status.IO_ERROR, "silent": SILENCE}.get(trouble)
        return None

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 31)
        held = bad.entries[ledger.id]
        if trouble == "denied":
            del held[30]
        elif trouble == "no ledger":
            del bad.entries[ledger.id], bad.keys[ledger.id]
        elif trouble == "damaged":
            held[0] = held[0][:-1] + b"?"
        elif trouble == "gone":
            bad.leave()
        bad.rule = rule
        bad.requests.clear()
        (verdict,) = await verdicts_of(repairs, ledger.id)
        assert standings(verdict) == [Standing.PRESENT, standing, Standing.PRESENT]
        assert (1 in verdict.lost(silent_too=False)) == made_anew
        assert verdict.lost(silent_too=True) == {1: bad.bookie_id}
        assert bad.bookie_id in str(verdict)
        assert standing.value in str(verdict)
        if trouble == "gone":
            assert not bad.requests

    cluster.wait(scenario())


def test_an_empty_fragment_is_judged_by_who_is_there() -> None:
    """I-75: neither never nor always under-replicated."""
    cluster, writer, repairs = scene()

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 0)
        (verdict,) = await verdicts_of(repairs, ledger.id)
        assert verdict.good
        cluster.bookies[0].leave()
        (verdict,) = await verdicts_of(repairs, ledger.id)
        assert standings(verdict) == [Standing.GONE, Standing.PRESENT, Standing.PRESENT]

    cluster.wait(scenario())


def test_an_open_fragment_is_looked_at_up_to_what_is_confirmed() -> None:
    cluster, writer, repairs = scene(use_v2=False)

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 30, close=False)
        await ledger.append(b"the entry that tells of those before it")
        cluster.bookies[2].entries[ledger.id].pop(30)  # perhaps still on its way
        cluster.bookies[2].rule = lambda request: HOLD if isinstance(request, ReadLac) else None  # one answer suffices
        (verdict,) = await verdicts_of(repairs, ledger.id)
        assert not verdict.fragment.agreed
        assert verdict.fragment.last_entry_id == 29
        assert verdict.good

    cluster.wait(scenario())


def test_of_an_open_ledger_with_a_lost_bookie_nothing_is_asked_about_its_end() -> None:
    cluster, writer, repairs = scene()

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 31, close=False)
        cluster.bookies[0].leave()
        (verdict,) = await verdicts_of(repairs, ledger.id)
        assert verdict.lost(silent_too=False) == {0: cluster.bookies[0].bookie_id}

    cluster.wait(scenario())


def test_a_percentage_of_all_copies_is_looked_for() -> None:
    cluster, writer, repairs = scene()
    bad = cluster.bookies[0]

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 300)
        del bad.entries[ledger.id][150]
        (verdict,) = await verdicts_of(repairs, ledger.id)
        assert verdict.good  # neither the first nor the last is missing
        access, current = await repairs.look(ledger.id)
        whole = LedgerChecker(repairs.client.context, entries_max=50, percentage=100)
        (verdict,) = await whole.check_ledger(access, current)
        assert (verdict.copies[0].standing, verdict.copies[0].entry_id) == (Standing.ABSENT, 150)

    cluster.wait(scenario())


def test_checks_of_many_ledgers_ask_for_a_bounded_number_of_entries() -> None:
    cluster, writer, repairs = scene()

    async def scenario() -> None:
        ids = [(await write_ledger(writer, list(cluster.bookies), 10)).id for _ in range(30)]
        checker = LedgerChecker(repairs.client.context, entries_max=8)
        asked: list[int] = []

        def rule(request: Any) -> object:
            asked.append(checker.entries_in_flight)
            return None

        for bookie in cluster.bookies:
            bookie.rule = rule

        async def one(ledger_id: LedgerId) -> None:
            access, current = await repairs.look(ledger_id)
            assert (await checker.check_ledger(access, current))[0].good

        for work in [Deferred.fromCoroutine(one(ledger_id)) for ledger_id in ids]:
            await work
        assert 2 < max(asked) <= 8

    cluster.wait(scenario())


def test_only_a_fragment_whose_end_is_agreed_is_said_to_have_no_entries() -> None:
    """It read: entries 0..-1. Of one that may still be written nobody may have asked how far it goes."""
    copy = CopyVerdict(1, BookieId("b:1"), Standing.GONE)
    empty = FragmentRange(0, -1, (BookieId("a:1"), BookieId("b:1")), 2, agreed=False)
    assert str(FragmentVerdict(empty, (copy,))) == "from entry 0 on: b:1: not registered"
    agreed = dataclasses.replace(empty, agreed=True)
    assert str(FragmentVerdict(agreed, (copy,))) == "from entry 0 on, no entries: b:1: not registered"
    some = FragmentRange(0, 3, empty.ensemble, 2, agreed=False)
    assert str(FragmentVerdict(some, (copy,))) == "entries 0..3: b:1: not registered"
