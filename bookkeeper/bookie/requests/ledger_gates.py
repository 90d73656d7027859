"""Requests that wait until something about their ledger has come from the disk.

While a ledger's gate is shut, every keyed request of that ledger (add, fence, explicit LAC) queues behind it in order
of arrival; when it opens, each is decided afresh in the reactor's turn, so nothing decided before the wait is trusted
after it (I-25). Other ledgers are not held up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from twisted.logger import Logger

from bookkeeper.model import Status
from bookkeeper.ports import Worker

T = TypeVar("T")
log = Logger()


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request at a gate. `run` decides it; `refuse` answers it without deciding. size: bytes it keeps in memory."""

    run: Callable[[], None]
    refuse: Callable[[Status], None]
    size: int


@dataclass(slots=True)
class _Gate:
    queue: deque[Waiting] = field(default_factory=deque)
    shut: bool = False


class LedgerGates:
    """One queue per ledger that waits for the read worker. Thread: reactor; fetched work runs on `worker`.

    Bounds: `requests_max` requests and `bytes_max` bytes over all ledgers; what comes on top is refused with
    TOO_MANY_REQUESTS. A fetch that fails refuses all that waits at the gate with IO_ERROR: the state is unknown.
    """

    def __init__(self, worker: Worker, *, requests_max: int, bytes_max: int) -> None:
        self._worker = worker
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._gates: dict[int, _Gate] = {}
        self._count = 0
        self._bytes = 0

    @property
    def waiting_count(self) -> int:
        """Requests that wait at any gate."""
        return self._count

    @property
    def shut(self) -> Container[int]:
        """The ledgers whose requests must queue, as they are at any moment."""
        return self._gates.keys()

    def is_shut(self, ledger_id: int) -> bool:
        """True when requests of this ledger must queue."""
        return ledger_id in self._gates

    def queue(self, ledger_id: int, load: Callable[[], object], waiting: Waiting) -> None:
        """Let a request wait; a ledger without a gate gets one that opens when `load` has run on the worker."""
        if not self._admit(waiting):
            return
        gate = self._gates.get(ledger_id)
        if gate is None:
            gate = self._gates[ledger_id] = _Gate()
            self._submit(ledger_id, gate, load, lambda _: None)
        gate.queue.append(waiting)

    def fetch(self, ledger_id: int, work: Callable[[], T], resume: Callable[[T], None], waiting: Waiting) -> None:
        """Shut the gate, run `work` on the worker, then `resume` with its result, ahead of all that queued meanwhile.

        For a request that is being decided and finds that it needs the disk. `waiting` stands for it in the bounds and
        is refused when `work` fails; its `run` is not used.
        """
        if not self._admit(waiting):
            return
        gate = self._gates.setdefault(ledger_id, _Gate())
        gate.queue.appendleft(waiting)

        def fetched(result: T) -> None:
            gate.queue.popleft()
            self._leave(waiting)
            resume(result)

        self._submit(ledger_id, gate, work, fetched)

    def close(self, ledger_id: int) -> bool:
        """Have the ledger's requests queue until `open_again`; False, and nothing happens, where they do already."""
        if ledger_id in self._gates:
            return False
        self._gates[ledger_id] = _Gate(shut=True)
        return True

    def open_again(self, ledger_id: int) -> None:
        """End what `close` began; what queued is decided now."""
        gate = self._gates[ledger_id]
        gate.shut = False
        self._drain(ledger_id, gate)

    def _submit(self, ledger_id: int, gate: _Gate, work: Callable[[], T], fetched: Callable[[T], None]) -> None:
        gate.shut = True

        def done(result: T) -> None:
            gate.shut = False
            fetched(result)
            self._drain(ledger_id, gate)

        self._worker.submit(work, done, partial(self._fetch_failed, ledger_id))

    def _drain(self, ledger_id: int, gate: _Gate) -> None:
        while gate.queue and not gate.shut:
            waiting = gate.queue.popleft()
            self._leave(waiting)
            waiting.run()
        if not gate.shut:
            del self._gates[ledger_id]

    def _fetch_failed(self, ledger_id: int, error: BaseException) -> None:
        log.error(
            "Could not read the state of ledger {ledger_id}: {error}. Its waiting requests get an I/O error.",
            ledger_id=ledger_id,
            error=error,
        )
        for waiting in self._gates.pop(ledger_id).queue:
            self._leave(waiting)
            waiting.refuse(Status.IO_ERROR)

    def _admit(self, waiting: Waiting) -> bool:
        if self._count >= self._requests_max or self._bytes + waiting.size > self._bytes_max:
            waiting.refuse(Status.TOO_MANY_REQUESTS)
            return False
        self._count += 1
        self._bytes += waiting.size
        return True

    def _leave(self, waiting: Waiting) -> None:
        self._count -= 1
        self._bytes -= waiting.size
