"""What the bookies did during a measurement: CPU time from /proc, the rest from their own metrics over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bookkeeper.admin.access.tokens import remedy
from bookkeeper.admin.questions import ask
from bookkeeper.metrics import LONGEST_TURN

METRICS_TIMEOUT_S = 10.0
METRICS_SIZE_MAX = 16 * 1024 * 1024
BLOCK_SIZE = 512
"""Of st_blocks and of a disk's sectors, whatever their own."""

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_SYNCS, _SYNCED_ENTRIES, _REPLY_WRITES = (
    "bookie_journal_JOURNAL_SYNC_count",
    "bookie_journal_JOURNAL_SYNCED_RECORDS",
    "bookkeeper_server_REPLY_WRITES",
)


@dataclass(frozen=True, slots=True)
class BookieProcess:
    """A bookie on this machine: its process id, and the URL of its metrics."""

    pid: int
    metrics_url: str | None


@dataclass(frozen=True, slots=True)
class BookieCounters:
    """Sums over bookies. The difference of two snapshots covers the time between them. None: unknown.

    longest_turn_s: the longest reactor turn of a bookie since the previous snapshot.
    """

    cpu_s: float
    syncs: float | None
    synced_records: float | None
    reply_writes: float | None
    longest_turn_s: float | None = None

    def since(self, before: BookieCounters) -> BookieCounters:
        """What happened since `before`."""
        return BookieCounters(
            self.cpu_s - before.cpu_s,
            _difference(self.syncs, before.syncs),
            _difference(self.synced_records, before.synced_records),
            _difference(self.reply_writes, before.reply_writes),
            self.longest_turn_s,
        )


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def snapshot(bookies: Sequence[BookieProcess]) -> BookieCounters | None:
    """Counters of the bookies now; None when none of them is known."""
    if not bookies:
        return None
    totals = {_SYNCS: 0.0, _SYNCED_ENTRIES: 0.0, _REPLY_WRITES: 0.0}
    complete, turns = True, list[float]()
    for bookie in bookies:
        if bookie.metrics_url is None:
            complete = False
            continue
        values = read_metrics(bookie.metrics_url)
        for name in totals:
            totals[name] += values.get(name, 0.0)
        if LONGEST_TURN in values:
            turns.append(values[LONGEST_TURN])
    syncs, records, writes = totals.values()
    cpu = sum(process_cpu_seconds(bookie.pid) for bookie in bookies)
    if not complete:
        return BookieCounters(cpu, None, None, None)
    return BookieCounters(cpu, syncs, records, writes, max(turns, default=None))


def process_cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def process_memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def process_open_files(pid: int) -> int:
    """File descriptors a process holds."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def process_written_bytes(pid: int) -> int:
    """Bytes that a process has given to `write` calls of files so far, zeros ahead of a journal among them.

    What went to sockets by `send`, as Twisted's does, is not in it. The kernel's own count of bytes that must go to
    disks (write_bytes) is of no use: it counts whole folios of up to some MiB when 4 KiB of one change.
    """
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["wchar"])


def device_written_bytes(directory: Path) -> int | None:
    """Bytes that the disk of a directory has taken so far, from the whole machine; None where it is no disk."""
    device = directory.stat().st_dev
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
        return int(fields[6]) * BLOCK_SIZE
    return None


def bytes_on_disk(directory: Path, suffix: str = "") -> int:
    """What the files below take on their disk; of those whose names end with `suffix`. Files may come and go."""
    total, waiting = 0, [os.fspath(directory)]
    while waiting:
        with contextlib.suppress(FileNotFoundError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name.endswith(suffix):
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_SIZE
    return total


def read_metrics(url: str) -> dict[str, float]:
    """Return the values of Prometheus samples by name, summed over their labels. Raises OSError."""
    values: dict[str, float] = {}
    for line in ask_url(url).decode(errors="replace").splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            values[name] = values.get(name, 0.0) + float(value)
    return values


def ask_url(url: str, method: str = "GET", body: bytes | None = None) -> bytes:
    """Return the body of the answer. Raises OSError, also for any status but 200."""
    try:
        place = urlsplit(url)
        address = (place.hostname or "", place.port or 80)
        answer = ask(address, method, place.path, body, size_max=METRICS_SIZE_MAX, timeout_s=METRICS_TIMEOUT_S)
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error) or repr(error)) from error
    if answer.status != http.HTTPStatus.OK:
        text = answer.body.decode(errors="replace").strip()
        raise OSError(f"HTTP status {answer.status}{remedy(answer.status)}: {text}")
    return answer.body
