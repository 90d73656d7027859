"""AddWindow against a simple twin: a list of entries with a dictionary of answers each, judged anew after every event.

Small windows, so that the ring wraps all the time. Kills mutants of the ring arithmetic, of the bits, of `_release`, of
the re-judging after a change and of the held-back acknowledgements.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.model import BookieId, Status
from bookkeeper.protocol.add_decisions import Decision
from bookkeeper.protocol.adds import AddWindow
from bookkeeper.protocol.schedule import write_set

WAITING, STORED, LOST = "waiting", "stored", "lost"


class Twin:
    """What the window promises, without its tricks."""

    def __init__(self, ensemble: list[BookieId], write_quorum: int, ack_quorum: int, entries_max: int, bytes_max: int):
        self.ensemble, self.write_quorum, self.ack_quorum = list(ensemble), write_quorum, ack_quorum
        self.entries_max, self.bytes_max = entries_max, bytes_max
        self.sizes: list[int] = []
        self.answers: list[dict[int, str]] = []
        self.acknowledged = 0  # how many
        self.released = 0
        self.changing = False

    def accepts(self, sizes: list[int]) -> int:
        waiting = self.sizes[self.released :]
        count = 0
        for size in sizes:
            if waiting and (len(waiting) == self.entries_max or sum(waiting) + size > self.bytes_max):
                break
            waiting.append(size)
            count += 1
        return count

    def push(self, sizes: list[int]) -> None:
        for size in sizes:
            members = write_set(len(self.sizes), len(self.ensemble), self.write_quorum)
            self.sizes.append(size)
            self.answers.append(dict.fromkeys(members, WAITING))

    def respond(self, index: int, bookie_id: BookieId, entry_ids: list[int]) -> range:
        if self.ensemble[index] == bookie_id:
            for entry_id in entry_ids:
                if self.released <= entry_id < len(self.sizes) and index in self.answers[entry_id]:
                    self.answers[entry_id][index] = STORED
        return self.settle()

    def give_up(self, index: int, entry_ids: range) -> None:
        for entry_id in entry_ids:
            if self.answers[entry_id].get(index) == WAITING:
                self.answers[entry_id][index] = LOST
        self.settle_released()

    def end_change(self, ensemble: list[BookieId]) -> tuple[dict[int, list[int]], range]:
        resend: dict[int, list[int]] = {}
        for index, bookie_id in enumerate(ensemble):
            if bookie_id == self.ensemble[index]:
                continue
            self.give_up(index, range(self.released, self.acknowledged))
            for entry_id in range(self.acknowledged, len(self.sizes)):
                if index in self.answers[entry_id]:
                    self.answers[entry_id][index] = WAITING
                    resend.setdefault(index, []).append(entry_id)
        self.ensemble = list(ensemble)
        self.changing = False
        return resend, self.settle()

    def settle(self) -> range:
        first = self.acknowledged
        while (
            not self.changing
            and self.acknowledged < len(self.sizes)
            and list(self.answers[self.acknowledged].values()).count(STORED) >= self.ack_quorum
        ):
            self.acknowledged += 1
        self.settle_released()
        return range(first, self.acknowledged)

    def settle_released(self) -> None:
        while self.released < self.acknowledged and WAITING not in self.answers[self.released].values():
            self.released += 1

    @property
    def stuck(self) -> int | None:
        for entry_id in range(self.acknowledged, len(self.sizes)):
            if list(self.answers[entry_id].values()).count(LOST) > self.write_quorum - self.ack_quorum:
                return entry_id
        return None


SHAPES = [(1, 1, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 1), (4, 2, 1), (5, 3, 2), (5, 5, 3)]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(SHAPES), st.integers(1, 9))
def test_the_window_does_what_its_twin_does(seed: int, shape: tuple[int, int, int], entries_max: int) -> None:
    """I-03, I-05, I-06, I-09, I-14."""
    chance = random.Random(seed)
    ensemble_size, write_quorum, ack_quorum = shape
    ensemble = [BookieId(f"b{number}") for number in range(ensemble_size)]
    bytes_max = 40
    window = AddWindow(
        ledger_id=7,
        ensemble=ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        entries_max=entries_max,
        bytes_max=bytes_max,
    )
    twin = Twin(ensemble, write_quorum, ack_quorum, entries_max, bytes_max)
    fresh = ensemble_size
    failed: dict[int, BookieId] = {}

    for _ in range(120):
        event = chance.random()
        index = chance.randrange(ensemble_size)
        if event < 0.25:
            sizes = [chance.choice([0, 1, 8, 50]) for _ in range(chance.randint(1, 5))]
            count = window.accepts(sizes)
            assert count == twin.accepts(sizes)
            if count == 1 and chance.random() < 0.5:
                length = twin.acknowledged - 1, sum(twin.sizes) + sizes[0]
                assert window.push_one(sizes[0], 0.0) == (len(twin.sizes), *length)
            else:
                assert window.push(sizes[:count], 0.0) == len(twin.sizes)
            twin.push(sizes[:count])
        elif event < 0.8:
            bookie_id = twin.ensemble[index] if chance.random() < 0.9 else ensemble[index]
            low = max(0, twin.released - 3)
            entry_ids = [chance.randint(low, len(twin.sizes) + 2) for _ in range(chance.randint(0, 8))]
            if chance.random() < 0.5:
                assert window.on_responses(index, bookie_id, entry_ids) == twin.respond(index, bookie_id, entry_ids)
                entry_ids.clear()
            for entry_id in entry_ids:
                index = twin.ensemble.index(bookie_id) if bookie_id in twin.ensemble else index
                one = window.on_response(bookie_id, entry_id)
                assert (one or range(0)) == twin.respond(index, bookie_id, [entry_id])
        elif event < 0.87:
            decision = window.on_failure(index, twin.ensemble[index], Status.IO_ERROR, None)
            twin.give_up(index, range(twin.released, len(twin.sizes)))
            failed[index] = twin.ensemble[index]
            assert decision is (Decision.MERGED if twin.changing else Decision.CHANGE)
        elif not twin.changing and failed:
            request = window.begin_change()
            assert request.first_entry_id == twin.acknowledged
            assert request.failed == failed
            twin.changing = True
        elif twin.changing:
            new = list(twin.ensemble)
            for place in failed:
                if chance.random() < 0.8:
                    new[place] = BookieId(f"b{fresh}")
                    fresh += 1
            failed = {place: bookie_id for place, bookie_id in failed.items() if new[place] == bookie_id}
            result = window.end_change(new, 0.0)
            assert (result.resend, result.acknowledged) == twin.end_change(new)
            assert result.further == bool(failed)
        assert window.last_acknowledged == window.lac == twin.acknowledged - 1
        assert window.last_pushed == len(twin.sizes) - 1
        assert window.occupied_entries == len(twin.sizes) - twin.released <= entries_max
        assert window.occupied_bytes == sum(twin.sizes[twin.released :])
        assert window.acknowledged_length == sum(twin.sizes[: twin.acknowledged])
        assert window.pushed_length == sum(twin.sizes)
        assert window.stuck == twin.stuck
        assert dict(window.failed) == failed

    assert list(window.fail(RuntimeError("end"))) == list(range(twin.acknowledged, len(twin.sizes)))  # type: ignore[arg-type]
