"""A command that is run for each message: what it takes is done, what it refuses is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable

from bookkeeper.console.output import CommandFailed
from hedwig.wire.receiving import Received

NOT_RUN = {126: "could not be executed", 127: "was not found"}
"""What a shell exits with instead of running a command."""

_PLAIN_WORD = re.compile(r"\s*([\w./+@:][\w./+@:-]*)(?=\s|$)")


def check_command(command: str) -> None:
    """Raises CommandFailed for a command that cannot be run, before it costs any message an attempt.

    Only a first word that the shell takes as it stands is looked at; of all others their first run tells.
    """
    found = _PLAIN_WORD.match(command)
    if found is None:
        return
    word = found[1]
    if "/" in word:
        is_there = shutil.which(word) is not None
    else:  # the shell knows its own words and those of PATH
        asked = ["/bin/sh", "-c", 'command -v "$1" > /dev/null 2>&1', "sh", word]
        is_there = subprocess.run(asked, stdin=subprocess.DEVNULL, check=False).returncode == 0
    if not is_there:
        raise CommandFailed(f"--each {command!r}: {word} cannot be run: it is not there, or not executable")


class Each:
    """shown: what the command reads, of a message."""

    def __init__(self, command: str, topic: bytes, shown: Callable[[Received], bytes]) -> None:
        self._command, self._topic, self._shown = command, topic, shown

    def takes(self, message: Received) -> bool:
        """Run it, and wait for its end; whether its exit code is 0.

        Raises CommandFailed where it did not run at all: that is no verdict on the message, and would be the same of
        every other one.
        """
        from hedwig.client.subscriptions.work_queue import attempt

        told = {"HEDWIG_TOPIC": os.fsdecode(self._topic), "HEDWIG_ID": str(message.local_id)}
        told["HEDWIG_ATTEMPT"] = str(attempt(message))
        done = subprocess.run(
            self._command, shell=True, input=self._shown(message), env={**os.environ, **told}, check=False
        )
        if done.returncode in NOT_RUN:
            raise CommandFailed(
                f"--each {self._command!r} {NOT_RUN[done.returncode]} (exit code {done.returncode}): message "
                f"{message.local_id} is not acknowledged, though it counts as tried"
            )
        return done.returncode == 0
