"""Runs one workload: starts the client processes, lets them measure together, sums them up.

They do not outlive this process, however it ends: what nobody waits for must not go on writing. Thread: main.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bookkeeper.cli.perf.calibrate import Calibration
from bookkeeper.cli.perf.counters import BookieProcess, snapshot
from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.cli.perf.report import Cell
from bookkeeper.cli.perf.worker import Replication, Task
from bookkeeper.console.output import CommandFailed, note
from bookkeeper.embedded.process import dying_with_parent, ending, next_line, on_lasting_thread

END_TIMEOUT_S = 30
"""For a client process to close its ledgers' client after its result."""


def run_workload(
    job: Task, *, clients: int = 1, bookies: Sequence[BookieProcess] = (), calibration: Calibration | None = None
) -> Cell:
    """Measure `job` with `clients` processes, each with the job's window. Raises CommandFailed when one fails."""
    command = dying_with_parent([sys.executable, "-m", "bookkeeper.cli.perf.worker", job.to_json()])
    processes: list[subprocess.Popen[str]] = []
    with contextlib.ExitStack() as stack:
        stack.callback(_end, processes)
        for _ in range(clients):
            # A session of its own, so that Ctrl-C reaches this process, which ends them.
            process = on_lasting_thread(
                lambda: subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
                )
            )
            processes.append(process)
        for process in processes:
            _read_line(process, "ready")
        before = snapshot(bookies)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        note(f"measuring for {job.seconds:g} s: {', '.join(f'process {process.pid}' for process in processes)}")
        results = [_read_line(process, "operations") for process in processes]
        after = snapshot(bookies)
        for process in processes:
            process.wait(END_TIMEOUT_S)
    operations = sum(result["operations"] for result in results)
    if not operations:
        raise CommandFailed(f"nothing was completed within {job.seconds:g} s; take a longer -time or a smaller window")
    return Cell(
        job=job,
        clients=clients,
        operations_per_s=sum(result["operations"] / result["seconds"] for result in results if result["seconds"]),
        latencies=Latencies.merged([result["latencies"] for result in results]),
        client_cpu_us=sum(result["cpu_s"] for result in results) * 1e6 / operations,
        client_writes_per_operation=sum(result["writes"] for result in results) / operations,
        all_operations=sum(result["all_operations"] for result in results),
        batched_operations=sum(result.get("batched", 0) for result in results),
        entry_size=sum(result["payload_size"] for result in results) / operations,
        replications=tuple(sorted({Replication(*each) for result in results for each in result["replications"]})),
        bookies=after.since(before) if after is not None and before is not None else None,
        calibration=calibration,
        ledger_ids=tuple(ledger_id for result in results for ledger_id in result["ledger_ids"]),
    )


def _end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()  # does nothing to one that has ended
    for process in processes:
        with process:  # closes its pipes, and waits
            pass


def _read_line(process: subprocess.Popen[str], wanted: str) -> dict[str, Any]:
    assert process.stdout is not None
    line = next_line(process.stdout)
    if not line:
        raise CommandFailed(f"a client process {ending(process.wait())} before it was done; see above")
    value: dict[str, Any] = json.loads(line)
    if "error" in value:
        raise CommandFailed(value["error"])
    assert wanted in value, value
    return value
