"""Demo part `ledgers`: this machine's package history in ledgers, one per package, with a bookie killed on the way.

Four bookies, E=3 Qw=2 Qa=2: the fourth is the spare that takes the killed one's place. Every acknowledged entry is
counted by what the writer was told, not by what it sent, and compared byte for byte when read back.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field

from bookkeeper.cli.demo.history import Stream, machine_history
from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.console.output import CommandFailed, Progress
from bookkeeper.embedded.cluster import LocalCluster

BOOKIES, ENSEMBLE = 4, 3
PACKAGES_MAX = 600
KILL_BETWEEN = (0.4, 0.6)
"""Shares of the packages between which a bookie is killed: while the longest of them is being written."""


@dataclass(frozen=True, slots=True)
class WrittenLedger:
    """One package's ledger: how many entries were acknowledged, and SHA-256 over all of them."""

    ledger_id: int
    entries: int
    digest: str


@dataclass(slots=True)
class Written:
    """What the writer was told is durable."""

    ledgers: dict[str, WrittenLedger] = field(default_factory=dict)
    """By package."""
    entries: int = 0
    size: int = 0
    killed: str = ""
    killed_at: int = 0
    seconds: float = 0.0

    def note(self, package: str, ledger_id: int, entries: list[bytes]) -> None:
        """All `entries` are acknowledged."""
        self.ledgers[package] = WrittenLedger(ledger_id, len(entries), _digest(entries))
        self.entries += len(entries)
        self.size += sum(map(len, entries))


def run() -> None:
    """Run the part and print its report. Raises CommandFailed when an acknowledged entry is missing or different."""
    what, streams = machine_history(PACKAGES_MAX)
    packages = list(streams)
    print(f"Data: {what}, {len(packages)} packages, {sum(len(s.entries) for s in packages):,} entries")
    started = time.perf_counter()
    with LocalCluster(BOOKIES) as cluster:
        print(f"Cluster: ZooKeeper and {BOOKIES} bookies, up in {time.perf_counter() - started:.1f} s: {cluster.uri}")
        with connect(cluster.uri) as client:
            written = write(cluster, client, packages)
            print(
                f"Written: {written.entries:,} entries, {written.size / 1e6:.1f} MB in {written.seconds:.1f} s "
                f"({written.entries / written.seconds:,.0f} entries/s, "
                f"{written.size / written.seconds / 1e6:.1f} MB/s), {len(written.ledgers)} ledgers, "
                "E=3 Qw=2 Qa=2, every acknowledgement after two fsyncs"
            )
            print(f"Killed:  bookie {written.killed} with SIGKILL after {written.killed_at:,} acknowledged entries")
            changed = verify(client, written)
            print(f"Changed: {changed} ledger(s) replaced the killed bookie by another and went on")
    print("Stopped: everything.")


def write(cluster: LocalCluster, client: BlockingBookKeeper, packages: list[Stream]) -> Written:
    """A ledger for each package; a bookie of one of them is killed while it is written."""
    written = Written()
    progress = Progress("packages", len(packages))
    candidates = range(*(int(len(packages) * share) for share in KILL_BETWEEN)) or range(1)
    kill_at = max(candidates, key=lambda number: len(packages[number].entries))
    started = time.perf_counter()
    for number, stream in enumerate(packages):
        with client.create(
            ensemble=ENSEMBLE, write_quorum=2, ack_quorum=2, custom={"package": stream.package.encode()}
        ) as ledger:
            entries = stream.entries
            if number == kill_at:
                # When the bookie dies, half of the package is acknowledged and most of the rest is in flight. The last
                # ENSEMBLE entries are appended after its death, so that at least one is sent to the dead bookie.
                half = len(entries) // 2
                rest = max(half, len(entries) - ENSEMBLE)
                ledger.append_many(entries[:half])
                victim = next(b for b in cluster.bookies if b.bookie_id in ledger.metadata.last_fragment.ensemble)
                written.killed, written.killed_at = victim.bookie_id, written.entries + half
                killing = threading.Thread(target=victim.kill)
                killing.start()
                ledger.append_many(entries[half:rest])
                killing.join()
                ledger.append_many(entries[rest:])
            else:
                ledger.append_many(entries)
            written.note(stream.package, ledger.id, entries)
        progress.update(number + 1)
    progress.close()
    written.seconds = time.perf_counter() - started
    return written


def _digest(entries: list[bytes]) -> str:
    total = hashlib.sha256()
    for entry in entries:
        total.update(len(entry).to_bytes(4, "big") + entry)
    return total.hexdigest()


def verify(client: BlockingBookKeeper, written: Written) -> int:
    """Read everything back; returns how many ledgers have more than one fragment.

    Raises CommandFailed for a ledger that holds anything but what was acknowledged.
    """
    progress = Progress("ledgers read", len(written.ledgers))
    read = size = changed = 0
    started = time.perf_counter()
    for number, (package, expected) in enumerate(written.ledgers.items()):
        with client.open(expected.ledger_id) as ledger:
            entries = [entry.payload for entry in ledger.entries()]
            changed += len(ledger.metadata.fragments) > 1
        if len(entries) != expected.entries or _digest(entries) != expected.digest:
            raise CommandFailed(
                f"ledger {expected.ledger_id} ({package}): {len(entries)} of {expected.entries} entries, or other bytes"
            )
        read += len(entries)
        size += sum(map(len, entries))
        progress.update(number + 1)
    progress.close()
    seconds = time.perf_counter() - started
    print(
        f"Read:    {read:,} entries back in {seconds:.1f} s ({read / seconds:,.0f} entries/s, "
        f"{size / seconds / 1e6:.1f} MB/s) with one bookie dead; all equal to what was acknowledged, 0 missing"
    )
    return changed
