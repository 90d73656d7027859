"""Waiting for the next entry: long polls, what of their answers counts, and tails that use them."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.client.bookies import pending_requests
from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.client.read.stream import LONG_POLL_S
from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import ClientClosed, EntryMissing, EntryUnreadable, InvalidArgument, LedgerClosed
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch, FenceRead, LongPollRead, ReadLac
from tests.support.fake_bookie import BAD_VERSION_IN_V2, CLOSE, HOLD, SILENCE, FakeBookie, FakeCluster

V3 = {"use_v2": False}


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


class Tailed:
    """A ledger with a writer and a handle that does not recover it; entries 0..count-2 are known to be confirmed."""

    def __init__(
        self, count: int = 3, *, bookies: int = 3, reader: Any = None, version_3: bool = True, **sizes: Any
    ) -> None:
        self.cluster = FakeCluster(bookies)
        for bookie in self.cluster.bookies:
            bookie.version_3 = version_3
        sizes = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 2, **sizes}
        writer = self.cluster.client(settings())
        self.ledger: WriteHandle = self.cluster.wait(writer.create(**sizes))
        for _ in range(count):
            self.add()
        self.client = self.cluster.client(settings(**(reader or {})))
        self.handle: ReadHandle = self.cluster.wait(self.client.open_without_recovery(self.ledger.ledger_id))
        if count:
            self.cluster.wait(self.handle.read_last_confirmed())
        self.cluster.run(0.5)

    def add(self) -> int:
        return int(self.cluster.wait(self.ledger.append(b"entry %d" % (self.ledger.last_add_pushed + 1))))

    def wait(self, entry_id: int, timeout_s: float = 5.0, **options: Any) -> list[Any]:
        """Start waiting; the outcome appears in the list."""
        outcome: list[Any] = []
        self.handle.read_last_confirmed_and_entry(entry_id, timeout_s, **options).addBoth(outcome.append)
        return outcome

    def polled(self) -> list[str]:
        """Names of the bookies asked, in order."""
        polls = [(bookie.name, request) for bookie in self.cluster.bookies for request in bookie.requests]
        return [name for name, request in polls if isinstance(request, LongPollRead)]

    def rule(self, verdict: object, *kinds: type, bookies: Any = None) -> None:
        for bookie in bookies or self.cluster.bookies:
            bookie.rule = lambda request: verdict if isinstance(request, kinds or (LongPollRead,)) else None

    def member(self, place: int) -> FakeBookie:
        return self.cluster.by_id(self.ledger.metadata.last_fragment.ensemble[place])

    def tail(self) -> tuple[list[int], list[Any]]:
        seen: list[int] = []
        outcome: list[Any] = []

        async def follow() -> str:
            async for batch in self.handle.tail():
                seen.extend(entry.entry_id for entry in batch)
            return "end"

        Deferred.fromCoroutine(follow()).addBoth(outcome.append)
        return seen, outcome


@pytest.mark.parametrize("reader", [None, V3])
def test_an_add_ends_the_wait_with_the_entry_it_confirmed(reader: Any) -> None:
    """Entry 2 is stored, unconfirmed as far as anybody can prove, until the add of entry 3 carries LAC 2."""
    tailed = Tailed(3, reader=reader)
    assert tailed.handle.last_add_confirmed == 1
    outcome = tailed.wait(2)
    tailed.cluster.run(1.0)
    assert outcome == []
    assert len(tailed.polled()) == 1
    before = tailed.cluster.clock.seconds()
    tailed.add()
    assert tailed.cluster.clock.run_until(lambda: bool(outcome), seconds=1.0)
    assert outcome == [(2, (2, b"entry 2", 21))]
    assert tailed.cluster.clock.seconds() - before < 0.5
    assert not any(isinstance(request, FenceRead) for bookie in tailed.cluster.bookies for request in bookie.requests)


def test_what_is_known_to_be_confirmed_is_read_at_once() -> None:
    tailed = Tailed(3)
    assert tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(1, 0.0)) == (1, (1, b"entry 1", 14))
    assert tailed.polled() == []


def test_without_news_it_ends_in_time_without_an_entry() -> None:
    """Also when the bookies take their turns: those asked later get only the time that is left."""
    tailed = Tailed(3)
    before = tailed.cluster.clock.seconds()
    assert tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(2, 4.0)) == (1, None)
    assert tailed.cluster.clock.seconds() - before == pytest.approx(4.0, abs=0.5)


def test_the_next_bookie_waits_too_after_the_speculative_delay() -> None:
    tailed = Tailed(3, reader={"speculative_lac_delay_s": 1.0, "speculative_lac_delay_max_s": 1.5})
    tailed.wait(2, 10.0)
    for passed, asked in ((0.9, 1), (0.2, 2), (1.3, 2), (0.2, 3), (3.0, 3)):
        tailed.cluster.run(passed)
        assert len(set(tailed.polled())) == len(tailed.polled()) == asked


def test_in_parallel_all_are_asked_at_once() -> None:
    tailed = Tailed(3)
    outcome = tailed.wait(2, parallel=True)
    tailed.cluster.run(0.1)
    assert len(set(tailed.polled())) == 3
    tailed.add()
    tailed.cluster.run(0.5)
    assert outcome == [(2, (2, b"entry 2", 21))]


def test_a_silent_bookie_delays_the_news_by_the_speculative_delay_only() -> None:
    tailed = Tailed(3)
    tailed.rule(SILENCE, bookies=[tailed.member(2)])  # entry 2 goes to it first
    outcome = tailed.wait(2, 10.0)
    tailed.cluster.run(0.1)
    tailed.add()
    tailed.cluster.run(2.0)
    assert outcome == [(2, (2, b"entry 2", 21))]


# --- what of an answer counts


@pytest.mark.parametrize("max_lac", [2, 3, 2**62, 2**63 - 1])
def test_a_lac_that_no_digest_covers_is_not_believed(max_lac: int) -> None:
    """I-42: entry 2 is on the bookies, and nobody can prove that it is confirmed."""
    tailed = Tailed(3)
    tailed.rule({"max_lac": max_lac})
    assert tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(2, 1.0)) == (1, None)


def test_a_lac_told_beside_an_entry_is_not_believed_either() -> None:
    """The same number under the same lack of a digest, in the answer to a plain read."""
    tailed = Tailed(3, reader=V3)
    for bookie in tailed.cluster.bookies:
        bookie.told_lac = 2**62
    assert tailed.cluster.wait(tailed.handle.read(0, 1)) == [(0, b"entry 0", 7), (1, b"entry 1", 14)]
    assert tailed.handle.last_add_confirmed == 1


def test_an_entry_that_comes_with_an_unproven_lac_is_not_delivered() -> None:
    tailed = Tailed(3)
    body = tailed.member(0).entries[tailed.ledger.ledger_id][2]
    tailed.rule({"max_lac": 2, "body": body})
    assert tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(2, 1.0)) == (1, None)


def test_a_damaged_entry_is_read_from_another_bookie_once_its_lac_is_proven() -> None:
    """I-44: the last entry proves LAC 2, the entry that came along is not what the writer wrote."""
    tailed = Tailed(4, reader={})
    ledger_id = tailed.ledger.ledger_id
    handle = tailed.cluster.wait(tailed.cluster.client(settings()).open_without_recovery(ledger_id))
    body = tailed.member(0).entries[ledger_id][2]
    tailed.rule({"max_lac": 2, "body": body[:-1] + b"?"})
    assert tailed.cluster.wait(handle.read_last_confirmed_and_entry(2, 1.0)) == (2, (2, b"entry 2", 21))


def test_a_proof_that_fails_its_digest_proves_nothing() -> None:
    tailed = Tailed(3)
    body = tailed.member(0).entries[tailed.ledger.ledger_id][2]
    tailed.rule({"max_lac": 2, "last_entry": body[:-1] + b"?"}, LongPollRead, ReadLac)
    with pytest.raises(EntryUnreadable, match="not proven"):
        tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(2, 1.0))


# --- who cannot wait


@pytest.mark.parametrize("status", [Status.NO_LEDGER, Status.NO_ENTRY])
def test_bookies_without_the_ledger_fail_the_wait_at_once(status: Status) -> None:
    tailed = Tailed(0)
    tailed.rule(status)
    with pytest.raises(EntryMissing, match="hold nothing"):
        tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(0, 60.0), seconds=1.0)


@pytest.mark.parametrize("verdict", [Status.BAD_REQUEST, Status.BAD_VERSION, CLOSE, BAD_VERSION_IN_V2])
def test_a_bookie_that_knows_no_long_poll_is_not_asked_again_until_it_registers_anew(verdict: object) -> None:
    speaks_v3 = isinstance(verdict, Status)
    tailed = Tailed(3, version_3=speaks_v3)
    for bookie in tailed.cluster.bookies:
        bookie.hangs_up = verdict is CLOSE
    if speaks_v3:
        tailed.rule(verdict)
    for _ in range(3):
        with pytest.raises(EntryUnreadable, match="no bookie of its last fragment waits"):
            tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(2, 60.0), seconds=10.0)
    if speaks_v3:
        assert len(tailed.polled()) == 3
        first = tailed.member(2)
        first.rule = lambda request: None
        first.leave()
        first.start()
        tailed.cluster.run(1.0)
        outcome = tailed.wait(2, 2.0)
        tailed.cluster.run(4.0)
        assert len(tailed.polled()) == 4
        assert outcome == [(1, None)]


def test_one_bookie_that_waits_is_enough() -> None:
    tailed = Tailed(3)
    tailed.rule(Status.BAD_REQUEST, bookies=[tailed.member(2), tailed.member(0)])
    outcome = tailed.wait(2)
    tailed.cluster.run(0.5)
    tailed.add()
    tailed.cluster.run(0.5)
    assert outcome == [(2, (2, b"entry 2", 21))]


@pytest.mark.parametrize("status", [Status.IO_ERROR, Status.TOO_MANY_REQUESTS, Status.UNKNOWN_LEDGER_STATE])
def test_any_other_failure_is_no_verdict_and_the_bookie_is_asked_again(status: Status) -> None:
    tailed = Tailed(3)
    tailed.rule(status)
    for _ in range(2):
        with pytest.raises(EntryUnreadable):
            tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(2, 60.0), seconds=10.0)
    assert len(tailed.polled()) == 6


def test_the_long_polls_of_a_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_requests, "POLLS_MAX", 2)
    tailed = Tailed(3, reader={"speculative_lac_delay_s": 0.0})
    outcomes = [tailed.wait(2, 5.0) for _ in range(10)]
    tailed.cluster.run(1.0)
    assert len(tailed.polled()) == 6
    assert sum(bool(outcome) for outcome in outcomes) == 4  # two at each of three bookies; the others cannot wait
    tailed.add()
    tailed.cluster.run(1.0)
    assert sum(outcome == [(2, (2, b"entry 2", 21))] for outcome in outcomes) == 6


def test_arguments() -> None:
    tailed = Tailed(3)
    for entry_id, timeout_s in ((-1, 1.0), (2, -1.0), (2, float("nan")), (2, 1e9)):
        with pytest.raises(InvalidArgument):
            tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(entry_id, timeout_s))
    tailed.cluster.wait(tailed.handle.close())
    with pytest.raises(LedgerClosed):
        tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(2, 1.0))


# --- the ledger changes meanwhile


def test_the_close_of_the_ledger_ends_the_wait() -> None:
    tailed = Tailed(3)
    tailed.handle.watch_metadata()
    within, beyond = tailed.wait(2, 60.0), tailed.wait(3, 60.0)
    tailed.cluster.run(0.1)
    tailed.cluster.wait(tailed.ledger.close())
    tailed.cluster.run(1.0)
    assert (within, beyond) == ([(2, (2, b"entry 2", 21))], [(2, None)])
    assert tailed.cluster.wait(tailed.handle.read_last_confirmed_and_entry(9, 60.0), seconds=0.1) == (2, None)


def test_closing_the_handle_ends_the_wait_with_an_error() -> None:
    tailed = Tailed(3)
    outcome = tailed.wait(2, 60.0)
    tailed.cluster.run(0.1)
    tailed.cluster.wait(tailed.handle.close())
    with pytest.raises(LedgerClosed):
        outcome[0].raiseException()


@pytest.mark.parametrize("reader", [None, V3])
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("proving", [False, True])
def test_closing_the_client_ends_the_wait_and_leaves_no_timer(reader: Any, parallel: bool, proving: bool) -> None:
    """Also while the bookie proves its news. Nobody else is asked any more."""
    tailed = Tailed(3)
    client = tailed.cluster.client(settings(**(reader or {})))
    tailed.handle = tailed.cluster.wait(client.open_without_recovery(tailed.ledger.ledger_id))
    outcome = tailed.wait(2, 50.0, parallel=parallel)
    tailed.cluster.run(0.1)
    if proving:
        tailed.rule(SILENCE, ReadLac)
        tailed.add()
        tailed.cluster.run(0.1)
    asked = tailed.polled()
    process = tailed.handle.clock._process  # noqa: SLF001
    client.close()
    tailed.cluster.run(0.1)
    assert [type(failure.value) for failure in outcome] == [ClientClosed]
    assert tailed.polled() == asked
    assert tailed.cluster.clock.pending(process) == []


@pytest.mark.parametrize("by_writer", [False, True])
def test_a_tail_that_pauses_ends_with_its_client(by_writer: bool) -> None:
    """Also that of a writer, whose handle watches no metadata."""
    tailed = Tailed(3, reader={"tail_poll_min_s": 60.0, "tail_poll_max_s": 60.0})
    if by_writer:
        written = tailed.cluster.wait(tailed.client.create(ensemble=3, write_quorum=3, ack_quorum=2))
        tailed.cluster.wait(written.append_many([b"x"] * 2))
        tailed.handle = written.read_handle
    tailed.rule(Status.IO_ERROR)
    seen, outcome = tailed.tail()
    tailed.cluster.run(1.0)
    assert (seen, outcome) == ([0, 1], [])
    process = tailed.handle.clock._process  # noqa: SLF001
    tailed.client.close()
    tailed.cluster.run(0.1)
    assert [type(failure.value) for failure in outcome] == [ClientClosed]
    assert tailed.cluster.clock.pending(process) == []


@pytest.mark.parametrize("reader", [None, V3])
def test_a_lac_that_was_asked_for_meanwhile_ends_the_wait(reader: Any) -> None:
    tailed = Tailed(3, reader=reader)
    tailed.rule(SILENCE)
    outcome = tailed.wait(2, 100.0)
    tailed.add()
    tailed.cluster.run(1.0)
    assert outcome == []
    assert tailed.cluster.wait(tailed.handle.read_last_confirmed()) == 2
    tailed.cluster.run(0.1)
    assert outcome == [(2, (2, b"entry 2", 21))]


def test_any_number_of_waits_of_one_handle_end_with_one_news() -> None:
    """Each of them has the news to tell the others: not in a recursion as deep as there are waits."""
    tailed = Tailed(3)
    outcomes = [tailed.wait(2, 20.0) for _ in range(500)]
    tailed.cluster.run(0.1)
    tailed.add()
    tailed.cluster.run(0.5)
    assert outcomes == [[(2, (2, b"entry 2", 21))]] * 500


def test_the_wait_moves_to_the_members_of_a_new_fragment() -> None:
    """I-46: the only one that still waits has left the ensemble, and says nothing."""
    tailed = Tailed(3, bookies=4)
    tailed.handle.watch_metadata()
    (spare,) = {bookie.bookie_id for bookie in tailed.cluster.bookies} - set(
        tailed.ledger.metadata.last_fragment.ensemble
    )
    leaving = tailed.member(2)  # it is asked first
    leaving.rule = lambda request: SILENCE if isinstance(request, LongPollRead) else Status.READ_ONLY
    outcome = tailed.wait(2, 60.0)
    tailed.cluster.run(0.1)
    assert tailed.polled() == [leaving.name]
    tailed.add()
    tailed.cluster.run(0.5)
    assert tailed.ledger.metadata.last_fragment.ensemble[2] == spare
    assert outcome[0].entry == (2, b"entry 2", 21)


def test_a_late_proof_by_a_former_member_ends_the_wait() -> None:
    """Nobody of the new fragment answers; what the former member proves is true all the same."""
    tailed = Tailed(3, bookies=4)
    tailed.handle.watch_metadata()
    leaving, other, ledger_id = tailed.member(2), tailed.member(0), tailed.ledger.ledger_id
    tailed.rule(SILENCE)
    leaving.rule = lambda request: (
        HOLD if isinstance(request, LongPollRead) else (Status.READ_ONLY if isinstance(request, AddBatch) else None)
    )
    outcome = tailed.wait(2, 60.0)
    tailed.cluster.run(0.1)
    tailed.add()
    tailed.cluster.run(0.5)
    assert outcome == []
    assert len(set(tailed.polled())) >= 2
    leaving.entries[ledger_id].update(other.entries[ledger_id])
    leaving.release()
    tailed.cluster.run(0.5)
    assert outcome == [(2, (2, b"entry 2", 21))]


# --- tails


@pytest.mark.parametrize("reader", [None, V3])
@pytest.mark.parametrize("write_quorum", [2, 3])
def test_a_tail_hears_of_an_add_within_a_few_round_trips(reader: Any, write_quorum: int) -> None:
    """Each add confirms the one before. With E > Qw the next entry may go to any of them: all wait."""
    tailed = Tailed(3, reader=reader, write_quorum=write_quorum)
    seen, _ = tailed.tail()
    tailed.cluster.run(LONG_POLL_S * 3)
    for entry_id in range(3, 20):
        tailed.add()
        assert tailed.cluster.clock.run_until(lambda last=entry_id - 1: last in seen, seconds=0.05), (entry_id, seen)
        tailed.cluster.run(3.0)
    assert seen == list(range(19))


def test_an_idle_tail_asks_seldom() -> None:
    tailed = Tailed(3)
    tailed.tail()
    tailed.cluster.run(LONG_POLL_S)
    before = sum(len(bookie.requests) for bookie in tailed.cluster.bookies)
    tailed.cluster.run(LONG_POLL_S * 10)
    assert sum(len(bookie.requests) for bookie in tailed.cluster.bookies) - before <= 3 * 12


def test_a_tail_of_a_ledger_without_entries_goes_on_without_a_busy_loop() -> None:
    tailed = Tailed(0)
    seen, outcome = tailed.tail()
    tailed.cluster.run(60.0)
    assert outcome == []
    assert len(tailed.polled()) <= 2 * 80  # two negatives decide; the pace is tailPollMaxMillis, a second
    for _ in range(3):
        tailed.add()
    tailed.cluster.run(3.0)
    assert seen == [0, 1]


def test_a_tail_of_a_fenced_ledger_goes_on_without_a_busy_loop() -> None:
    """Its bookies answer every long poll at once."""
    tailed = Tailed(3)
    seen, outcome = tailed.tail()
    tailed.cluster.run(1.0)
    for bookie in tailed.cluster.bookies:
        bookie.fenced.add(tailed.ledger.ledger_id)
        bookie.wake()
    before = len(tailed.polled())
    tailed.cluster.run(60.0)
    assert (seen, outcome) == ([0, 1], [])
    assert len(tailed.polled()) - before <= 2 * 80


@pytest.mark.parametrize("verdict", [Status.BAD_REQUEST, CLOSE])
def test_a_tail_asks_for_the_lac_where_no_bookie_waits(verdict: object) -> None:
    tailed = Tailed(3, version_3=verdict is not CLOSE)
    if verdict is not CLOSE:
        tailed.rule(verdict)
    seen, outcome = tailed.tail()
    tailed.cluster.run(5.0)
    tailed.add()
    tailed.cluster.run(3.0)
    assert (seen, outcome) == ([0, 1, 2], [])


def test_a_tail_reads_what_piled_up_in_one_go() -> None:
    tailed = Tailed(3)
    seen, _ = tailed.tail()
    tailed.cluster.run(1.0)
    tailed.cluster.wait(tailed.ledger.append_many([b"x"] * 500))
    tailed.add()
    tailed.cluster.run(3.0)
    assert seen == list(range(503))
