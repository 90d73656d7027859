"""The genuine client in one Java process, for as many commands as a run has. See HedwigTool.java."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.apache.content import fingerprint, payload
from tests.support.apache_hedwig.fetched import HedwigJars
from tests.support.java_programs import CommandFailed, Driver


class HedwigError(CommandFailed):
    """The genuine client failed; `code` is the status's number, `message` begins with the classes of the exceptions."""


class HedwigClient(Driver):
    """One Java process of one release's client. A context manager."""

    failure = HedwigError

    def __init__(self, jars: HedwigJars, log_path: Path) -> None:
        """Start it. log_path: where its standard error goes."""
        self.version = jars.version
        super().__init__(jars.command("HedwigTool", classes=[jars.tool_classes()]), log_path, "Hedwig's client")


def numbered(seed: int, numbers: Sequence[int], size_max: int, first_id: int = 1) -> list[str]:
    """What `received` prints of these messages of a seed, the first of which has this id."""
    lines = []
    for local_id, number in enumerate(numbers, first_id):
        body = payload(seed, number, size_max)
        lines.append(f"{local_id} {fingerprint(body)} {number} {len(body).to_bytes(4).hex()} numbered")
    return lines
