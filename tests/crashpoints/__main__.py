"""Crash points of a bookie, all of them: exit code 0 if nothing that was promised is ever lost, 1 otherwise.

python -m tests.crashpoints                    every story
python -m tests.crashpoints append rolls       these stories
python -m tests.crashpoints --every 20         each 20th state
python -m tests.crashpoints --state ID         one state again, by the id that a failure was printed with
python -m tests.crashpoints --list             the stories
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.crashpoints.stories import STORIES
from tests.crashpoints.sweep import FAILURES_SHOWN_MAX, examine_one, keep_quiet, sweep


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make crashpoints", description="Crash points of a bookie.")
    parser.add_argument("stories", nargs="*", metavar="STORY")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th state")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--state", metavar="ID", help="one state")
    parser.add_argument("--list", action="store_true", help="name the stories")
    options = parser.parse_args()
    if options.list:
        for story in STORIES:
            print(f"{story.name:<24} {story.subject}")
        return 0
    if options.state is not None:
        keep_quiet()
        reason = examine_one(options.state)
        print(reason or "passed")
        return int(reason is not None)
    names = options.stories or [story.name for story in STORIES]
    unknown = set(names) - {story.name for story in STORIES}
    if unknown or options.every < 1:
        parser.error(f"no such story: {', '.join(sorted(unknown))}" if unknown else "--every must be 1 or more")
    begun = time.monotonic()
    states = failed = 0
    print(f"{'story':<24} {'operations':>10} {'states':>8} {'passed':>8} {'failed':>8} {'core s':>8}", flush=True)
    for tally in sweep(names, every=options.every, processes=options.processes):
        failures = len(tally.failures)
        states, failed = states + tally.states, failed + failures
        print(
            f"{tally.story:<24} {tally.operations:>10} {tally.states:>8} {tally.states - failures:>8} {failures:>8} "
            f"{tally.seconds:>8.0f}",
            flush=True,
        )
        for id, reason in tally.failures[:FAILURES_SHOWN_MAX]:
            print(f"    {id}\n        {reason}", flush=True)
        if failures > FAILURES_SHOWN_MAX:
            print(f"    ... and {failures - FAILURES_SHOWN_MAX} more", flush=True)
    print(f"{states} states, {failed} failed, {time.monotonic() - begun:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
