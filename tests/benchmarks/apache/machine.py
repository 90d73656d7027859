"""Facts that belong beside every figure: the machine, the builds, the code, and the settings of both sides."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bookkeeper.cli.perf.calibrate import interpreter_build
from bookkeeper.console.output import counted
from tests.benchmarks.apache.plan import BATCH_REPLICATION, REPLICATION, Plan
from tests.benchmarks.apache.processes import DISK_SETTINGS, JVM_OPTIONS, ROOT, mount_of

IN_MEMORY = frozenset({"tmpfs", "ramfs"})


PACKAGES = ("bookkeeper",)
"""The programs of ours that are measured."""


def machine_facts(java: Path | None, directory: Path, packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """directory: exists, on the disk that both sides write to. java: None where none is used."""
    device, kind = mount_of(directory)
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "disk": f"{device} ({kind})",
        "python": interpreter_build(),
        "java": _java_version(java) if java is not None else "not used",
        "revision": revision(packages),
    }


def settings(plan: Plan) -> dict[str, str]:
    """What was set, in words."""
    quorums, batch = ("E{} Qw{} Qa{}".format(*each) for each in (REPLICATION, BATCH_REPLICATION))
    disk = " ".join(f"{key}={value}" for key, value in DISK_SETTINGS.items())
    return {
        "both": f"{quorums} (batch reads: {batch}), CRC32C, three bookies, fsync before every answer, "
        f"{plan.seconds:g} s a measurement of which the first quarter is thrown away, "
        f"{counted(plan.repetitions, 'repetition')}",
        "bookies": f"defaults of each, but {disk}; 'tuned' also journalFlushWhenQueueEmpty=true",
        "Apache": f"4.18.0, SortedLedgerStorage (its default); every JVM, the client's too: {' '.join(JVM_OPTIONS)}",
        "Apache's client": "asyncAddEntry with a callback an entry, refilled from the callback; readAsync, "
        "batchReadAsync; throttle=0, otherwise its defaults",
        "our client": "append_nowait with a callback an entry, refilled from the callback; read, read_batch; "
        "windowBytesMax and connectionBytesMax 256 MiB, otherwise its defaults",
        "ratios": "ours/Apache within a round, median (least-most) of quiet rounds; [..]: none was quiet",
    }


def revision(packages: Sequence[str] = PACKAGES) -> str:
    """The commit, and whether the programs measured differ from it."""
    commit = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    return f"{commit} with changes" if _git("status", "--porcelain", "--", *packages) else commit


def code_id(packages: Sequence[str] = PACKAGES) -> str:
    """Equal for equal programs: what is measured, apart from uncommitted changes."""
    return _git("rev-parse", *(f"HEAD:{package}" for package in packages)).replace("\n", " ") or "unknown"


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""  # no git: an unpacked archive
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java_version(java: Path) -> str:
    done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    return (done.stderr or done.stdout).splitlines()[0]
