"""Our edit log on one new journal, in a process of its own; it speaks the language of JournalBench.java.

python -m tests.benchmarks.journals.our_client URI CALLERS WARMING_SECONDS SECONDS

`measure_sync` runs twice: once to warm up, with figures that are thrown away, and once for so many seconds, of which it
does not count the first quarter; the marks stand around what it counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from bookkeeper.errors import BookKeeperError
from journalmgr.cli.measure import WARM_UP_SHARE, measure_sync
from journalmgr.cli.perf import RECORD_SIZE
from journalmgr.cli.session import session
from journalmgr.edit_log import EditLog
from journalmgr.model import FIRST_TXID, NamespaceInfo

NAMESPACE = NamespaceInfo(1, "CID-bench", "BP-bench")


def say(line: dict[str, object]) -> None:
    """One line to the one who measures."""
    print(json.dumps(line), flush=True)


def main(arguments: Sequence[str]) -> None:
    """Measure, and tell."""
    uri, callers, warming_s, seconds = arguments[0], int(arguments[1]), float(arguments[2]), float(arguments[3])
    with session(argparse.Namespace(conf=None, defines=[])) as commands:
        journal = commands.open(uri, NAMESPACE)
        commands.call(lambda: journal.format(NAMESPACE))
        edit_log = EditLog(journal)
        commands.call(edit_log.recover)
        commands.call(lambda: edit_log.open(FIRST_TXID))

        async def measured() -> dict[str, object]:
            await measure_sync(edit_log, callers, RECORD_SIZE, warming_s)
            for at, mark in ((seconds * WARM_UP_SHARE, "start"), (seconds, "end")):
                commands.reactor.callLater(at, say, {"mark": mark})
            result = await measure_sync(edit_log, callers, RECORD_SIZE, seconds)
            return {
                "journal": uri.partition(":")[0],
                "callers": callers,
                "record_bytes": result.size,
                "operations": result.edits,
                "operations_per_s": result.per_s,
                "p50_ms": result.latencies.percentile(50) * 1e3,
                "p99_ms": result.latencies.percentile(99) * 1e3,
                "flushes": result.flushes,
            }

        told = commands.run(measured)
        commands.call(edit_log.close)
    say(told)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BookKeeperError as failure:  # its message says all; the one who measures reports it
        sys.exit(str(failure))
