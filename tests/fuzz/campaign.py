"""Many inputs for one decoder: it must refuse unreadable inputs in time, and only with declared errors.

A failure is an error that is no refusal, a value of another type than the declared one, or an input that takes more
than INPUT_CPU_S of processor time (a hang; it is interrupted). A busy machine does not change processor time.
"""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.decoder import Decoder, fault_of
from tests.fuzz.mutation import Mutator

INPUT_CPU_S = 2.0
"""Processor time of one input of at most 64 KiB. The slowest valid one needs a tenth of it."""

FAILURES_MAX = 20
"""Number of different failures of one decoder at which its campaign ends."""

CORPUS = Path(__file__).parent / "corpus"


class Hang(BaseException):
    """An input took too long. Not an Exception, so that the code under test does not catch it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """kind: identifies the failure; equal for inputs that fail at the same place."""

    kind: str
    text: str
    data: bytes


@dataclass(slots=True)
class Tally:
    """Results of the inputs of one decoder."""

    inputs: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)
    failed: int = 0
    hangs: int = 0
    slowest_s: float = 0.0
    slowest: bytes = b""


def corpus_of(decoder: Decoder) -> list[tuple[str, bytes]]:
    """Inputs that failed earlier, by name."""
    directory = CORPUS / decoder.name
    return [(path.name, path.read_bytes()) for path in sorted(directory.iterdir())] if directory.is_dir() else []


def inputs_of(decoder: Decoder, seed: int) -> tuple[Mutator, random.Random]:
    """The generator of the inputs of a seed, and its random choices."""
    known = [data for _, data in corpus_of(decoder)]
    seeds = [*decoder.seeds(), *(data for data in known if len(data) < 4096)]
    rng = random.Random(f"{seed} {decoder.name}")
    return Mutator(rng, seeds, tokens=decoder.tokens, openers=decoder.openers), rng


def run(decoder: Decoder, seed: int, count: int, *, until_s: float = float("inf")) -> Tally:
    """Feed `count` inputs, or fewer if time.monotonic() reaches until_s. Main thread only: uses a signal."""
    mutator, rng = inputs_of(decoder, seed)
    tally = Tally()
    with _interrupted_hangs():
        for number in range(count):
            if number % 256 == 0 and time.monotonic() >= until_s:
                break
            data = mutator.next()
            if decoder.sealed is not None and rng.random() < 0.8:
                data = decoder.sealed(data)
            if _feed(decoder, data, tally):
                mutator.keep(data)
            if len(tally.failures) >= FAILURES_MAX or tally.hangs >= 3:
                break
    return tally


def feed_all(decoder: Decoder, inputs: Sequence[bytes]) -> Tally:
    """Feed these inputs. Main thread only."""
    tally = Tally()
    with _interrupted_hangs():
        for data in inputs:
            _feed(decoder, data, tally)
    return tally


def _feed(decoder: Decoder, data: bytes, tally: Tally) -> bool:
    """Return whether the decoder accepts an input. Counts the result in the tally."""
    tally.inputs += 1
    fault: Failure | None = None
    accepted = False
    begun = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, INPUT_CPU_S)
        try:
            value = decoder.decode(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        wrong = fault_of(value, decoder.result)
        if wrong is None:
            tally.accepted += 1
            accepted = True
        else:
            fault = Failure(f"type: {wrong.partition(':')[0]}", wrong, data)
    except decoder.refusals as error:
        tally.refused[type(error).__name__] += 1
    except Hang as error:
        tally.hangs += 1
        fault = Failure("hang", _trace(error), data)
    except Exception as error:  # noqa: BLE001 - any other error is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        fault = Failure(f"{type(error).__name__} {Path(last.filename).name}:{last.name}", _trace(error), data)
    took_s = time.process_time() - begun
    if took_s > tally.slowest_s:
        tally.slowest_s, tally.slowest = took_s, data
    if fault is not None:
        tally.failed += 1
        tally.failures.setdefault(fault.kind, fault)
    return accepted


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-6))[-3000:]


@contextmanager
def _interrupted_hangs() -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
