"""`make bench-restart`: the time until a killed bookie serves again, ours and genuine Apache's on the same files.

    python -m tests.benchmarks.lifetime.restart [--ledgers 20000] [--tail 256] [--reps 5]

One of our bookies writes the files, once: most ledgers are checkpointed by a stop, the rest and --tail MiB of journal
are not, for it is killed. Each start is on a fresh copy of these files at the same place (a cookie names the place),
with the same id in the same ZooKeeper; which side comes first alternates. Measured is the time from the start of the
process to its registration, as a watch on ZooKeeper sees it, and to when it says that it serves. Asserts nothing.

The copy has just been written, so both sides read from the page cache.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from kazoo.client import KazooClient
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from bookkeeper.cli.perf.counters import bytes_on_disk
from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    Progress,
    note,
    print_table,
    readable_size,
)
from bookkeeper.console.reactor import with_client
from bookkeeper.console.subcommands import at_least
from bookkeeper.console.supervision import stopping_on_signals
from bookkeeper.embedded.cluster import LocalBookie, LocalProcessFailed
from bookkeeper.embedded.process import free_port
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from tests.benchmarks.apache.machine import machine_facts
from tests.benchmarks.apache.processes import (
    DISK_SETTINGS,
    DidNotStart,
    Genuine,
    NoApache,
    find_genuine,
    initialise,
    seconds_to_register,
)
from tests.benchmarks.lifetime.genuine import JavaServer

SIDES = ("ours", "apache")
ROOT = "/restart"
SETTINGS = {**DISK_SETTINGS, "zkTimeout": "4000"}
NO_CHECKPOINT = {"flushInterval": "86400000", "skipListSizeLimit": str(2 << 30), "indexCacheBytesMax": str(1 << 30)}
"""While the tail is written: none of it is checkpointed."""

TAIL_LEDGERS_SHARE = 0.05
"""Of the ledgers, those whose entries are in the tail alone."""

ENTRY_SIZE, FEW_ENTRIES = 1024, 2
CONCURRENT_MAX = 64
LIMIT_S = 300.0
SERVES = re.compile(rb"Started component \{component=bookie-server\}")


class TimedBookie(LocalBookie):
    """Ours; `ready_s` after its start it served."""

    ready_s = 0.0

    def start(self, *, wait: bool = True) -> None:
        """As ever."""
        self._began = time.perf_counter()
        super().start(wait=wait)

    def wait_ready(self) -> None:
        """As ever."""
        super().wait_ready()
        self.ready_s = time.perf_counter() - self._began


class TimedApacheBookie:
    """Genuine, on files that are there. Looks like a LocalBookie as far as `seconds_to_register` goes."""

    ready_s = 0.0

    def __init__(self, genuine: Genuine, directory: Path, uri: str, port: int) -> None:
        self._genuine, self._directory = genuine, directory
        self.bookie_id = f"127.0.0.1:{port}"
        self._settings: Mapping[str, str] = {
            "bookiePort": str(port),
            "metadataServiceUri": uri,
            "journalDirectories": str(directory / "journal"),
            "ledgerDirectories": str(directory / "ledgers"),
            "allowLoopback": "true",
            "listeningInterface": "lo",
            "advertisedAddress": "127.0.0.1",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
            **SETTINGS,
        }
        self._server: JavaServer | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._server is not None
        return self._server.process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start the JVM."""
        main = "org.apache.bookkeeper.server.Main"
        self._server = JavaServer(self._genuine, self._directory, main, self._settings)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Return once it says that it serves. Raises DidNotStart."""
        assert self._server is not None
        self.ready_s = self._server.seconds_until(SERVES, LIMIT_S)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self._server is not None:
            self._server.stop()


def main(arguments: Sequence[str]) -> int:
    """0: done; 1: something did not start, or there is no Apache; 2: usage; 130: interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledgers", type=at_least(20), default=20_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--tail", type=at_least(1), default=256, metavar="MIB", help="(default: %(default)s)")
    parser.add_argument("--reps", type=at_least(1), default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="for the data (default: temporary)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append every start as a line")
    options = parser.parse_args(arguments)
    try:
        with stopping_on_signals(EXIT_INTERRUPTED):
            genuine = find_genuine()
            with tempfile.TemporaryDirectory(prefix="bench-restart-", dir=options.directory) as directory:
                return _run(options, genuine, Path(directory))
    except (NoApache, DidNotStart, LocalProcessFailed) as error:
        print(f"bench-restart: {error}", file=sys.stderr)
        return EXIT_FAILURE


def _run(options: argparse.Namespace, genuine: Genuine, directory: Path) -> int:
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper:
        uri = f"zk+hierarchical://{zookeeper.address}{ROOT}"
        initialise(uri)
        work, kept, port = directory / "bookie", directory / "kept", free_port()
        _write_files(uri, work, port, options.ledgers, options.tail << 20)
        work.rename(kept)
        _await_unregistered(zookeeper.address, f"127.0.0.1:{port}")
        journal, ledgers = (bytes_on_disk(kept / name) for name in ("journal", "ledgers"))
        print(json.dumps(machine_facts(genuine.java, directory)))
        print(
            f"{options.ledgers:,} ledgers, ledger files {readable_size(ledgers)}, journals {readable_size(journal)}, "
            f"of which {readable_size(_tail_bytes(kept))} with zeros ahead are behind the last mark"
        )
        took: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
        for repetition in range(options.reps):
            for side in SIDES if repetition % 2 == 0 else reversed(SIDES):
                note(f"round {repetition + 1} of {options.reps}, {side}: copying")
                shutil.rmtree(work, ignore_errors=True)
                subprocess.run(["cp", "-a", str(kept), str(work)], check=True)
                subprocess.run(["sync", "-f", str(work)], check=True)
                bookie: TimedBookie | TimedApacheBookie = (
                    TimedBookie(1, work, uri, port, SETTINGS)
                    if side == "ours"
                    else TimedApacheBookie(genuine, work, uri, port)
                )
                try:
                    registered_s = seconds_to_register(bookie, zookeeper.address, ROOT)
                finally:
                    bookie.kill()
                took[side].append((registered_s, bookie.ready_s))
                note(f"  registered after {registered_s:.2f} s, served after {bookie.ready_s:.2f} s")
                if options.json is not None:
                    line = {"side": side, "round": repetition + 1, "registered_s": registered_s}
                    with options.json.open("a") as file:
                        file.write(json.dumps({**line, "ready_s": bookie.ready_s}) + "\n")
                _await_unregistered(zookeeper.address, bookie.bookie_id)
    rows = []
    for index, what in enumerate(("registered", "serving")):
        figures = {side: sorted(each[index] for each in found) for side, found in took.items()}
        ratio = median(figures["ours"]) / median(figures["apache"])
        rows.append([what, *(_range(figures[side]) for side in SIDES), f"{ratio:.2f}"])
    print_table(["s to", "ours", "Apache", "ratio (goal <= 1)"], rows)
    return EXIT_OK


def _tail_bytes(directory: Path) -> int:
    """Of journals, behind the last mark: what a start must replay at most."""
    journal_id, offset = struct.unpack(">qq", next(directory.glob("ledgers/**/lastMark")).read_bytes()[:16])
    sizes = {int(path.stem, 16): path.stat().st_size for path in directory.glob("journal/**/*.txn")}
    return sum(size for number, size in sizes.items() if number >= journal_id) - offset


def _range(figures: list[float]) -> str:
    return f"{median(figures):.2f} ({figures[0]:.2f}-{figures[-1]:.2f})"


def _await_unregistered(zookeeper: str, bookie_id: str) -> None:
    """The session of a killed bookie lasts a little longer than it."""
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        deadline = time.monotonic() + LIMIT_S
        while client.exists(f"{ROOT}/available/{bookie_id}") is not None:
            if time.monotonic() > deadline:
                raise DidNotStart(f"{bookie_id} was killed and is still registered after {LIMIT_S:g} s")
            time.sleep(0.1)
    finally:
        client.stop()
        client.close()


def _write_files(uri: str, directory: Path, port: int, ledgers: int, tail_bytes: int) -> None:
    """With one of our bookies: most ledgers are checkpointed, the tail is not."""
    in_tail = max(1, round(ledgers * TAIL_LEDGERS_SHARE))
    bookie = LocalBookie(1, directory, uri, port, SETTINGS)
    bookie.start()
    try:
        _write_ledgers(uri, ledgers - in_tail, FEW_ENTRIES, "writing ledgers")
    finally:
        bookie.stop()
    bookie = LocalBookie(1, directory, uri, port, {**SETTINGS, **NO_CHECKPOINT})
    bookie.start()
    try:
        _write_ledgers(uri, in_tail, max(1, tail_bytes // ENTRY_SIZE // in_tail), "writing the tail")
    finally:
        bookie.kill()


def _write_ledgers(uri: str, count: int, entries: int, what: str) -> None:
    progress = Progress(what, count, lines_every_s=10.0)
    done = 0

    async def use(client: LedgerClient) -> None:
        places = DeferredSemaphore(CONCURRENT_MAX)

        async def write() -> None:
            nonlocal done
            handle = await client.create(ensemble=1, write_quorum=1, ack_quorum=1)
            await handle.append_many([bytes(ENTRY_SIZE)] * entries)
            await handle.close()
            done += 1
            progress.update(done)

        await gatherResults([places.run(lambda: Deferred.fromCoroutine(write())) for _ in range(count)])

    with_client(ClientSettings(metadata_service_uri=uri), use)
    progress.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
