"""Kafka: two brokers, the first of which is the controller too; the ceiling on one hot topic."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.embedded.process import free_port
from tests.benchmarks.hubs.peers.genuine import JVM_OPTIONS, LOGGING
from tests.benchmarks.hubs.peers.peer import START_TIMEOUT_S, Servers, Serving, module_command, python_with
from tests.benchmarks.journals.clients import Failed
from tests.support.java_programs import CACHE, fetch_jars, find_java_executable, java_command

VERSION = "3.9.1"
REQUIREMENT = "confluent-kafka==2.11.1"
POM = Path(__file__).parents[1] / "java" / "pom.xml"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
BROKERS = 2
_STARTED = re.compile(rb"Kafka Server started")


@dataclass(frozen=True, slots=True)
class Kafka:
    """It is here."""

    java: Path
    jars: Path
    python: Path

    durability = (
        f"Kafka {VERSION}, librdkafka: two brokers, two copies, acks=all, min.insync.replicas=2, flush.messages=1: "
        "both have synced a message; readers keep their positions themselves"
    )

    def _command(self, main_class: str, *arguments: object) -> list[str]:
        return java_command(self.java, [LOGGING, self.jars / "*"], main_class, *arguments, options=JVM_OPTIONS)

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Serving]:
        """See Peer."""
        ports = [free_port() for _ in range(BROKERS)]
        controller = free_port()
        with Servers() as servers:
            pids = []
            for number, port in enumerate(ports, 1):
                place = directory / f"kafka-{number}"
                place.mkdir(parents=True)
                listeners, roles = f"PLAINTEXT://127.0.0.1:{port}", "broker"
                if number == 1:
                    listeners, roles = f"{listeners},CONTROLLER://127.0.0.1:{controller}", "broker,controller"
                settings = {
                    "process.roles": roles,
                    "node.id": number,
                    "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                    "controller.listener.names": "CONTROLLER",
                    "listeners": listeners,
                    "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "log.dirs": place / "data",
                    "file.delete.delay.ms": 1000,
                }
                conf = place / "kafka.properties"
                conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
                words = ("format", "-t", CLUSTER_ID, "-c", conf)
                done = subprocess.run(
                    self._command("kafka.tools.StorageTool", *words),
                    capture_output=True,
                    text=True,
                    timeout=START_TIMEOUT_S,
                    check=False,
                )
                if done.returncode != 0:
                    raise Failed(f"Kafka's storage could not be made: {done.stdout}{done.stderr}")
                pids.append(servers.start(f"kafka {number}", self._command("kafka.Kafka", conf), place))
            servers.wait_ready(_STARTED)
            target = ",".join(f"127.0.0.1:{port}" for port in ports)
            yield Serving(module_command(self.python, "kafka_load", target), hub_pids=tuple(pids))


def find() -> Kafka:
    """Raises Missing."""
    java = find_java_executable()
    jars = CACHE / f"kafka-{VERSION}" / "jars"
    fetch_jars(jars, POM, f"Kafka {VERSION}", {"kafka.version": VERSION})
    return Kafka(java, jars, python_with("confluent-kafka", REQUIREMENT))
