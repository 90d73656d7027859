"""The genuine hub on three genuine bookies of its own release, driven by the genuine client (java/HubLoad.java)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.embedded.process import free_port
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from tests.benchmarks.apache.processes import BOOKIES, DISK_SETTINGS, TUNED_SETTINGS, DidNotStart, initialise
from tests.benchmarks.hubs.loads.load import Load
from tests.benchmarks.hubs.peers.peer import Servers, Serving
from tests.benchmarks.journals.clients import Failed
from tests.support.apache import CLASSIC
from tests.support.apache_hedwig import HedwigJars, find_hedwig
from tests.support.java_programs import Missing, compile_drivers, java_command

VERSION = "4.3.2"
SOURCE = Path(__file__).parents[1] / "java" / "HubLoad.java"
LOGGING = Path(__file__).parents[3] / "interop" / "java"

# Tests start faster on one compiler and a simple collector; figures want the machine's usual ones.
JVM_OPTIONS = ("-Xmx1g", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=4",
               "-Djava.net.preferIPv4Stack=true")  # fmt: skip

BOOKIE_SETTINGS = {
    "allowLoopback": "true",
    "advertisedAddress": "127.0.0.1",
    "logSizeLimit": str(1 << 30),  # it refuses its own default
    "diskUsageThreshold": DISK_SETTINGS["diskUsageThreshold"],
    "journalMaxBackups": DISK_SETTINGS["journalMaxBackups"],
    **TUNED_SETTINGS,
}
HUB_MAIN = "org.apache.hedwig.server.netty.PubSubServer"
_HUB_SERVES = re.compile(rb"Going into receive loop")


@dataclass(frozen=True, slots=True)
class Genuine:
    """It is here."""

    jars: HedwigJars
    classes: Path

    durability = (
        f"Apache Hedwig {VERSION}, its hub, its client and {BOOKIES} bookies of its release with "
        "journalFlushWhenQueueEmpty=true: two bookies have synced a message (E3 Qw2 Qa2, its default); its hub has its "
        "defaults, a limit of 5 000 adds/s for each ledger among them"
    )

    def command(self, main_class: str, *arguments: object) -> list[str]:
        """A JVM with the options of a measurement."""
        path = [self.classes, LOGGING, self.jars.jars / "*"]
        return java_command(self.jars.java, path, main_class, *arguments, options=JVM_OPTIONS)

    def load(self, address: str) -> Callable[[Load], Sequence[str]]:
        """The client program."""
        return lambda load: self.command("HubLoad", address, *load.words())

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Serving]:
        """See Peer."""
        directory.mkdir(parents=True)
        with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, Servers() as bookies, Servers() as hubs:
            uri = f"zk+flat://{zookeeper.address}/ledgers"
            try:
                initialise(uri)
            except DidNotStart as error:
                raise Failed(str(error)) from error
            store_pids = []
            for number in range(1, BOOKIES + 1):
                place = directory / f"bookie-{number}"
                place.mkdir()
                settings = {**CLASSIC.bookie_settings(place, uri, free_port()), **BOOKIE_SETTINGS}
                # What the tests make small is usual here.
                for key in ("zkTimeout", "journalPreAllocSizeMB", "skipListSizeLimit"):
                    settings.pop(key, None)
                conf = place / "bookie.conf"
                conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
                command = self.command(CLASSIC.bookie_main, "--conf", conf)
                store_pids.append(bookies.start("Apache's bookie", command, place))
            bookies.wait_ready(CLASSIC.serves)
            place = directory / "hub"
            place.mkdir()
            port = free_port()
            settings = {
                "server_port": str(port),
                "ssl_server_port": str(free_port()),  # advertised, and not bound
                "zk_host": zookeeper.address,
                "zkLedgersRootPath": "/ledgers",
            }
            conf = place / "hub.conf"
            conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            began = time.monotonic()
            hub = hubs.start("Apache's hub", self.command(HUB_MAIN, conf), place)
            hubs.wait_ready(_HUB_SERVES)
            start_s = time.monotonic() - began
            yield Serving(self.load(f"127.0.0.1:{port}:-1"), (hub,), tuple(store_pids), hub_start_s=start_s)


def find() -> Genuine:
    """Raises Missing."""
    try:
        jars = find_hedwig("server", VERSION)
        classes = compile_drivers(jars.java, jars.jars, [SOURCE], f"hub-load-{VERSION}", f"Apache Hedwig {VERSION}")
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        raise Missing(str(error)) from error
    return Genuine(jars, classes)
