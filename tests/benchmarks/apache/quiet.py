"""Was the machine busy with other work? CPU time of everything but our own processes, from /proc.

Others' share = all time of the machine that was not idle, stolen time too, less what our processes and the kernel's own
threads took (those write our pages back), over cores and time. Processes that came and went in between are seen by
what they leave in the machine's total. Interrupts count: without CONFIG_IRQ_TIME_ACCOUNTING the kernel adds their time
to the process they interrupt as well as to its total.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

OTHERS_SHARE_MAX = 0.1
"""Of the machine; above it a round does not count as quiet."""

KERNEL_THREADS_PARENT = 2
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """One process: its parent, its CPU time so far, and that of its children that are gone and waited for; in ticks."""

    parent: int
    ticks: int
    gone_ticks: int = 0

    @property
    def all_ticks(self) -> int:
        """Its own, and what its children left behind."""
        return self.ticks + self.gone_ticks


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """The machine at one moment. seconds: of a clock that only goes forward; the rest in ticks."""

    seconds: float
    busy_ticks: int
    processes: Mapping[int, ProcessTimes]

    def cpu_s(self, pids: Iterable[int]) -> float:
        """CPU time of these processes so far; of those that are gone, none."""
        return sum(self.processes[pid].ticks for pid in pids if pid in self.processes) / TICKS_PER_S


def parse_busy_ticks(stat: str) -> int:
    """Ticks in which the machine worked for somebody. stat: the text of /proc/stat."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    values = dict(zip(names, map(int, stat.split("\n", 1)[0].split()[1:]), strict=False))
    return sum(values.values()) - values["idle"] - values["iowait"]


def parse_process(stat: str) -> ProcessTimes:
    """stat: the text of /proc/<pid>/stat. The name in it may hold blanks and parentheses."""
    fields = stat.rpartition(")")[2].split()
    return ProcessTimes(int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14]))


def descendants(processes: Mapping[int, ProcessTimes], root: int) -> set[int]:
    """`root` and all processes below it."""
    children: dict[int, list[int]] = {}
    for pid, each in processes.items():
        children.setdefault(each.parent, []).append(pid)
    found, waiting = set(), [root]
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += [child for child in children.get(pid, ()) if child not in found]
    return found


def others_share(before: CpuTimes, after: CpuTimes, root: int, cores: int) -> float:
    """How much of the machine went to neither `root`, its descendants nor the kernel's threads: 0.0 to 1.0.

    What descendants did that are gone by now is in the time of whoever waited for them.
    """
    own_ticks = _own_ticks(after, root) - _own_ticks(before, root)
    available = (after.seconds - before.seconds) * TICKS_PER_S * cores
    if available <= 0:
        return 0.0
    return min(1.0, max(0.0, (after.busy_ticks - before.busy_ticks - own_ticks) / available))


def tree_cpu_s(before: CpuTimes, after: CpuTimes, root: int) -> float:
    """CPU time that `root` and its descendants took in between.

    Of one that is gone it is what those who waited for it were told; nobody may have, and then at least what the others
    took themselves is counted.
    """
    trees = [descendants(at.processes, root) & at.processes.keys() for at in (before, after)]
    told = [sum(at.processes[pid].all_ticks for pid in tree) for at, tree in zip((before, after), trees, strict=True)]
    earlier = {pid: before.processes[pid].ticks for pid in trees[0]}
    themselves = sum(after.processes[pid].ticks - earlier.get(pid, 0) for pid in trees[1])
    return max(told[1] - told[0], themselves) / TICKS_PER_S


def _own_ticks(at: CpuTimes, root: int) -> int:
    """All that `root`, its descendants and the kernel's threads did until then."""
    own = descendants(at.processes, root) | descendants(at.processes, KERNEL_THREADS_PARENT)
    return sum(at.processes[pid].all_ticks for pid in own & at.processes.keys())


def read_cpu_times(now: float) -> CpuTimes:
    """The machine now."""
    processes: dict[int, ProcessTimes] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                processes[int(name)] = parse_process(Path(f"/proc/{name}/stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended since
    return CpuTimes(now, parse_busy_ticks(Path("/proc/stat").read_text()), processes)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:")), 0)


def parse_flushes(stat: str) -> int | None:
    """Flush requests a disk has completed. stat: of /sys/class/block/<device>/stat; None on kernels before 5.5."""
    fields = stat.split()
    return int(fields[15]) if len(fields) > 15 else None
