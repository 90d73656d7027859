"""A command that is run for each message: what it takes is done, what it refuses is not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from hedwig.wire.receiving import Received


class Each:
    """shown: what the command reads, of a message."""

    def __init__(self, command: str, topic: bytes, shown: Callable[[Received], bytes]) -> None:
        self._command, self._topic, self._shown = command, topic, shown

    def takes(self, message: Received) -> bool:
        """Run it, and wait for its end; whether its exit code is 0."""
        from hedwig.client.queueing import attempt

        told = {"HEDWIG_TOPIC": os.fsdecode(self._topic), "HEDWIG_ID": str(message.local_id)}
        told["HEDWIG_ATTEMPT"] = str(attempt(message))
        done = subprocess.run(
            self._command, shell=True, input=self._shown(message), env={**os.environ, **told}, check=False
        )
        return done.returncode == 0
