"""The scrub's driver: when it begins, how fast it is, who may hold it up."""

from collections.abc import Iterator

from twisted.internet.task import Clock

from bookkeeper.bookie.integrity.damage.record import NO_LEDGER, Damage, DamageRecord
from bookkeeper.bookie.integrity.damage.suspect_bytes import GONE
from bookkeeper.bookie.integrity.scrub.driver import (
    LOOK_INTERVAL_S,
    MENDING_INTERVAL_MAX_S,
    MENDING_PAUSE_MAX_S,
    MENDING_PAUSE_S,
    Scrubber,
    ScrubSettings,
)
from bookkeeper.bookie.integrity.scrub.steps import ScrubCounters
from bookkeeper.bookie.process.status_format import DamagedRange, ScrubStatus
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.metrics import Metrics
from tests.support.manual_worker import ManualWorker
from tests.support.stored_ledgers import StoredLedgers


class ScriptedScrub:
    """Rounds of three steps of 1000 bytes; the second one may fail."""

    def __init__(self) -> None:
        self.counters = ScrubCounters()
        self.rounds: list[bool] = []
        self.fails = False
        self.pages_damaged = False
        self.waits_for_checkpoint = False
        self.pages_untried = False
        self.looks_due = False
        self.trims = 0
        self.looked_at: list[int] = []
        self.mending_basis = 0
        self.mended_at: list[int] = []

    def trim(self) -> None:
        self.trims += 1

    def mending_steps(self) -> Iterator[int]:
        self.mended_at.append(self.counters.bytes)
        self.counters.bytes += 1000
        yield 1000

    def looking_steps(self) -> Iterator[int]:
        self.looks_due = False
        self.looked_at.append(self.counters.bytes)
        yield 1000

    def steps(self, *, everything: bool) -> Iterator[int]:
        self.rounds.append(everything)
        for step in range(3):
            if self.fails and step == 1:
                raise OSError("no such disk")
            self.counters.bytes += 1000
            yield 1000


class Driven:
    """A scrubber with a clock and a worker that the test moves."""

    def __init__(self, *, interval_s: float = 100.0, bytes_per_s: float = 100.0) -> None:
        self.scrub = ScriptedScrub()
        self.damage = DamageRecord()
        self.shown: list[ScrubStatus] = []
        self.clock = Clock()
        self.worker = ManualWorker()
        self.metrics = Metrics()
        self.scrubber = Scrubber(
            self.scrub,  # type: ignore[arg-type] # the steps are all that it is asked for
            self.damage,
            self.clock,
            self.worker,
            ScrubSettings(interval_s, bytes_per_s),
            lambda: int(self.clock.seconds() * 1000),
            log_bytes=lambda: 2500,
            on_change=lambda: self.shown.append(self.scrubber.status()),
            metrics=self.metrics,
        )
        self.scrubber.start()

    def run(self, seconds: float) -> None:
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            self.worker.run_all()
            self.clock.advance(1.0)
        self.worker.run_all()


def test_catch_up_comes_first_and_rounds_follow_at_their_interval() -> None:
    driven = Driven()
    driven.run(35)
    assert driven.scrub.rounds == [False]
    assert driven.scrubber.status().doing == "idle"
    assert driven.scrubber.status().last_round_ms is None
    driven.run(100)
    assert driven.scrub.rounds == [False, True]
    driven.run(130)
    assert driven.scrub.rounds == [False, True, True]
    assert driven.metrics.value("scrubber_runTime") >= 1


def test_the_rate_bounds_what_is_read() -> None:
    driven = Driven()
    driven.run(9)
    assert driven.scrub.counters.bytes == 1000
    driven.run(10)
    assert driven.scrub.counters.bytes == 2000


def test_without_an_interval_only_the_catch_up_runs_until_a_round_is_asked_for() -> None:
    driven = Driven(interval_s=0)
    driven.run(1000)
    assert driven.scrub.rounds == [False]
    ended: list[None] = []
    driven.scrubber.run_now().addCallback(ended.append)
    driven.run(15)
    assert not ended
    driven.run(30)
    assert ended == [None]
    assert driven.scrub.rounds == [False, True]


def test_a_round_asked_for_during_another_one_comes_after_it() -> None:
    driven = Driven(interval_s=0)
    ended: list[None] = []
    driven.scrubber.run_now().addCallback(ended.append)
    driven.run(25)
    assert driven.scrub.rounds == [False]
    driven.run(60)
    assert driven.scrub.rounds == [False, True]
    assert ended == [None]


def test_an_error_ends_the_round_is_shown_and_the_next_round_comes() -> None:
    driven = Driven()
    driven.scrub.fails = True
    driven.run(20)
    status = driven.scrubber.status()
    assert status.last_error is not None
    assert status.last_error.text == "no such disk"
    driven.scrub.fails = False
    driven.run(150)
    assert driven.scrub.rounds == [False, True]


def test_stop_waits_for_the_step_under_way_and_begins_no_other() -> None:
    driven = Driven()
    stopped: list[None] = []
    driven.scrubber.stop().addCallback(stopped.append)
    assert not stopped
    driven.run(500)
    assert stopped == [None]
    assert driven.scrub.counters.bytes == 1000
    assert driven.scrub.rounds == [False]


def test_damaged_pages_are_made_anew_soon_and_tried_again_when_something_has_changed() -> None:
    driven = Driven(interval_s=0, bytes_per_s=0)
    driven.run(60)
    mended_at = driven.scrub.mended_at
    driven.scrub.pages_damaged = True
    driven.run(LOOK_INTERVAL_S + 1)
    assert len(mended_at) == 1
    driven.run(MENDING_PAUSE_MAX_S)
    assert len(mended_at) == 1, "nothing has changed"
    driven.scrub.mending_basis += 1
    driven.run(LOOK_INTERVAL_S + 1)
    assert len(mended_at) == 2
    driven.scrub.mending_basis += 1
    driven.run(MENDING_PAUSE_S)
    assert len(mended_at) == 2, "the pauses double"
    driven.run(4 * MENDING_PAUSE_S)
    assert len(mended_at) == 3
    driven.scrub.waits_for_checkpoint = True
    driven.scrub.mending_basis += 1
    driven.run(MENDING_PAUSE_MAX_S)
    assert len(mended_at) == 3, "a checkpoint is to come first"
    driven.scrub.pages_damaged = driven.scrub.waits_for_checkpoint = False
    driven.run(LOOK_INTERVAL_S + 1)
    driven.scrub.pages_damaged = True
    driven.run(LOOK_INTERVAL_S + 1)
    assert len(mended_at) == 4, "another damage"


def test_damaged_pages_are_tried_once_a_day_and_hold_up_no_round() -> None:
    driven = Driven(interval_s=1000.0, bytes_per_s=0)
    driven.scrub.pages_damaged = True
    driven.run(990)
    assert (len(driven.scrub.mended_at), driven.scrub.rounds) == (1, [False])
    driven.run(20)
    assert (len(driven.scrub.mended_at), driven.scrub.rounds) == (1, [False, True])
    alone = Driven(interval_s=0, bytes_per_s=0)
    alone.scrub.pages_damaged = True
    alone.run(MENDING_INTERVAL_MAX_S + 60)
    assert len(alone.scrub.mended_at) == 2


def test_damage_is_counted() -> None:
    driven = Driven()
    driven.damage.add(Damage(1, 4, 4, "/a/1.log", 4096, "damaged"))
    driven.damage.add(Damage(1, 5, 5, "/a/1.log", 4096, "damaged"))
    driven.damage.add(Damage(1, 5, 5, "/a/1.log", 4096, "damaged"))
    assert driven.metrics.value("scrubber_detectedScrubErrors") == 1
    assert driven.metrics.value("bookie_DAMAGED_RANGES") == 1
    assert driven.scrubber.status().damaged_ranges == 1
    driven.damage.replaced(1, [4])
    assert driven.damage.all() == [Damage(1, 5, 5, "/a/1.log", 4096, "damaged")]
    driven.damage.replaced(1, [5])
    assert driven.scrubber.status().damaged_ranges == 0
    assert driven.metrics.value("bookie_DAMAGE_REPAIRED") == 2


def test_a_round_shows_what_it_has_read_and_has_still_to_read() -> None:
    driven = Driven()

    def progress() -> tuple[float, float]:
        return (
            driven.metrics.value("bookie_SCRUB_ROUND_BYTES_DONE"),
            driven.metrics.value("bookie_SCRUB_ROUND_BYTES_LEFT"),
        )

    driven.run(35)
    assert driven.scrub.rounds == [False]
    assert progress() == (0, 0)  # the catch-up is no round
    driven.run(97)
    assert driven.scrub.rounds == [False, True]
    seen = set()
    for _ in range(40):
        seen.add(progress())
        driven.run(1)
    assert {(1000, 1500), (2000, 500)} <= seen
    assert progress() == (2500, 0)  # what it read besides, index files, is not counted


def test_what_is_damaged_is_shown_within_seconds_with_ledger_and_file() -> None:
    driven = Driven()
    driven.run(35)
    shown = len(driven.shown)
    driven.run(20)
    assert len(driven.shown) == shown, "nothing has changed"
    for ledger_id in range(8):
        driven.damage.add(Damage(ledger_id, 3, 4, "/l/current/0.log", ledger_id * 512, "fails its checksum"))
    driven.damage.add(Damage.of_ledger(0, "/l/current/0.idx", 0, "its header is damaged"))
    driven.run(LOOK_INTERVAL_S + 1)
    (status,) = driven.shown[shown:]
    assert (status.damaged_ranges, len(status.damaged)) == (9, 5)
    assert status.damaged[:2] == (
        DamagedRange(0, 0, None, "/l/current/0.idx", 0, "its header is damaged"),
        DamagedRange(0, 3, 4, "/l/current/0.log", 0, "fails its checksum"),
    )


def test_what_is_damaged_of_ledgers_is_shown_before_what_is_nobody_s() -> None:
    driven = Driven()
    for log_id in range(6):
        driven.damage.add(Damage(NO_LEDGER, 0, 0, f"/l/current/{log_id}.log", 0, "the header fails its checksum"))
    driven.damage.add(Damage(7, 3, 4, "/l/current/9.log", 4096, "fails its checksum"))
    assert [each.ledger for each in driven.scrubber.status().damaged] == [7] + [NO_LEDGER] * 4


def test_when_pages_were_made_anew_last_is_shown() -> None:
    driven = Driven(interval_s=10_000.0)
    driven.scrub.pages_damaged = True
    driven.run(100)
    status = driven.scrubber.status()
    assert driven.scrub.mended_at
    assert status.last_round_ms is None
    assert status.last_mending_ms is not None


def test_a_look_at_damaged_bytes_comes_within_seconds_when_idle_and_delays_no_round() -> None:
    driven = Driven()
    driven.run(35)
    next_round_ms = driven.scrubber.status().next_round_ms
    driven.scrub.looks_due = True
    driven.run(LOOK_INTERVAL_S + 1)
    assert driven.scrub.looked_at == [3000]
    assert driven.scrubber.status().doing == "finding the entries in damaged bytes"
    driven.run(20)
    assert driven.scrubber.status().doing == "idle"
    assert driven.scrubber.status().next_round_ms == next_round_ms
    assert driven.scrub.rounds == [False]


def test_a_look_at_damaged_bytes_waits_for_no_round_to_end_and_the_round_goes_on_behind_it() -> None:
    driven = Driven()
    driven.scrubber.run_now()
    driven.run(35)
    assert driven.scrub.rounds == [False, True]
    read = driven.scrub.counters.bytes
    driven.scrub.looks_due = True
    driven.run(11)
    assert driven.scrub.looked_at == [read], "before the next step of the round"
    assert driven.scrub.counters.bytes == read
    driven.run(60)
    assert driven.scrub.counters.bytes == 6000
    assert driven.scrub.looked_at == [read]


def _broken(scrub: ScriptedScrub) -> Iterator[int]:
    scrub.looks_due = False
    yield 0
    raise ValueError("nobody expected this")


def test_an_error_in_a_look_is_shown_and_ends_no_round() -> None:
    driven = Driven()
    driven.run(35)
    before = driven.scrub.counters.bytes
    driven.scrubber.run_now()
    driven.run(11)
    scripted = driven.scrub.looking_steps
    driven.scrub.looks_due = True
    driven.scrub.looking_steps = lambda: _broken(driven.scrub)  # type: ignore[method-assign]
    driven.run(12)
    status = driven.scrubber.status()
    assert status.last_error is not None
    assert status.last_error.text == "nobody expected this"
    assert status.last_round_ms is None
    driven.scrub.looking_steps = scripted  # type: ignore[method-assign]
    driven.run(20)
    assert driven.scrub.counters.bytes - before == 3000
    assert driven.scrubber.status().last_round_ms is not None
    driven.scrub.looks_due = True
    driven.run(LOOK_INTERVAL_S + 1)
    assert len(driven.scrub.looked_at) == 1, "the next one comes"


def test_no_look_holds_up_or_drops_another_one() -> None:
    """Else what the first one had taken in hand would be looked at by nobody."""
    driven = Driven()
    driven.run(35)
    ended: list[str] = []

    def look(name: str, steps: int, *, fails: bool) -> Iterator[int]:
        driven.scrub.looks_due = False
        for step in range(steps):
            driven.scrub.looks_due |= step == 1 and name == "first"  # a read meets other bytes meanwhile
            yield 100
        if fails:
            raise ValueError(name)
        ended.append(name)

    looks = iter([look("first", 5, fails=False), look("second", 1, fails=True)])
    driven.scrub.looking_steps = lambda: next(looks)  # type: ignore[method-assign]
    driven.scrubber.run_now()
    driven.run(11)
    driven.scrub.looks_due = True
    driven.run(60)
    assert ended == ["first"]
    assert next(looks, None) is None
    assert driven.scrubber.status().last_round_ms is not None


def test_what_a_look_loads_is_evicted_where_nothing_is_added() -> None:
    """The bound of the ledger cache holds on a bookie that is only read, too."""
    settings = StorageSettings(open_files_max=16, ledger_states_max=50, index_cache_bytes_max=10_000)
    stored = StoredLedgers(settings=settings)
    for ledger_id in range(600):
        stored.add(ledger_id, 0, 20)
    stored.checkpoint()
    stored.storage.end_log()
    stored.fs.unlink("/a/current/1.log")
    stored.start()
    stored.storage.replay_finished()
    clock, worker = Clock(), ManualWorker()
    scrubber = Scrubber(stored.storage.scrub(), stored.storage.damage, clock, worker, ScrubSettings(0, 0), lambda: 0)
    stored.storage.damage.bad_bytes.met(1, GONE)
    scrubber.start()
    while stored.storage.damage.gone_count < 600:
        worker.run_all()
        clock.advance(0.01)
        assert clock.seconds() < 60
        assert stored.storage.ledger_state_count < 2 * 50
        assert stored.storage.ledger_cache.page_bytes <= 10_000
    clock.advance(0.01)
    assert stored.storage.ledger_state_count <= 50
    for ledger_id in range(600):
        stored.read(ledger_id, [0])
        assert stored.storage.ledger_cache.page_bytes <= 10_000
    stored.storage.read(0, [0])
    assert stored.storage.ledger_state_count <= 50 + 1


def test_mending_goes_on_while_there_are_pages_that_were_not_tried() -> None:
    driven = Driven(interval_s=0, bytes_per_s=0)
    driven.run(60)
    driven.scrub.pages_damaged = driven.scrub.pages_untried = True
    for tries in range(1, 6):
        driven.run(MENDING_PAUSE_S + LOOK_INTERVAL_S)
        assert len(driven.scrub.mended_at) >= tries
    driven.scrub.pages_untried = False
    tries = len(driven.scrub.mended_at)
    driven.run(MENDING_PAUSE_MAX_S)
    assert len(driven.scrub.mended_at) == tries
