"""The whole sweep: every byte of every file of a small bookie, damaged one at a time; then random bookies.

    python -m tests.corruption.main [--every N] [--files TEXT] [--processes N] [--random N]

Prints what became of the damages, by kind of file; exit code 1 if one of them was silent, or a random bookie denied,
mistook or forgot an entry (random_damage.py; the seed is printed).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.corruption.random_damage import Life
from tests.corruption.stored_bookie import build
from tests.corruption.sweep import Damage, Outcome, Tally, sweep

SHOWN_MAX = 20
PROGRESS_EVERY = 5000


def run(share: tuple[bool, int], every: int, shares: int, text: str) -> Tally:
    """One process's share of the damages of one of the two bookies."""
    orderly, mine = share
    intact, promises = build(orderly=orderly)
    done = 0

    def chosen(number: int, damage: Damage) -> bool:
        return number % every == 0 and number // every % shares == mine and text in damage.path

    def progress(damage: Damage) -> None:
        nonlocal done
        done += 1
        if done % PROGRESS_EVERY == 0:
            print(f"  {done} damages judged, now {damage}", file=sys.stderr, flush=True)

    return sweep(intact, promises, chosen, progress)


def live(seed: int) -> str:
    """A random bookie; what was wrong, or ""."""
    try:
        Life(seed).run()
    except AssertionError as error:
        return f"seed {seed}: {error}"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only each N-th damage (default: all)")
    parser.add_argument("--files", default="", help="only of files with this in their path")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--random", type=int, default=2000, metavar="N", help="random bookies (default: %(default)s)")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    shares = [(orderly, share) for orderly in (True, False) for share in range(options.processes)]
    work = partial(run, every=options.every, shares=options.processes, text=options.files)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        tallies = pool.map(work, shares, chunksize=1)
        failed = [told for told in pool.imap(live, range(options.random), chunksize=20) if told]
    counts: dict[str, Counter[Outcome]] = {}
    silent: list[str] = []
    for (orderly, _), tally in zip(shares, tallies, strict=True):
        silent += [f"{'stopped' if orderly else 'killed'} bookie: {line}" for line in tally.silent]
        for kind, count in tally.counts.items():
            counts.setdefault(kind, Counter()).update(count)
    print(f"{'file':20}{'damaged':>10}" + "".join(f"{outcome.value:>10}" for outcome in Outcome))
    for kind, count in (*sorted(counts.items()), ("all", sum(counts.values(), Counter[Outcome]()))):
        print(f"{kind:20}{count.total():10}" + "".join(f"{count[outcome]:10}" for outcome in Outcome))
    print(f"{options.random} random bookies, {len(failed)} failed; {time.monotonic() - begun:.0f} s")
    silent += failed
    for line in silent[:SHOWN_MAX]:
        print(f"SILENT {line}")
    if len(silent) > SHOWN_MAX:
        print(f"... and {len(silent) - SHOWN_MAX} more")
    return 1 if silent or not counts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
