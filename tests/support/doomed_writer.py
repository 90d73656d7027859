"""A process of its own that writes ledgers until it is killed, and says on stdout what was acknowledged.

    python -m tests.support.doomed_writer URI SETTINGS LEDGERS      SETTINGS: keyword arguments of ClientSettings, JSON

A line per news: `LEDGER ACKNOWLEDGED`. Whoever kills it reads on to the end: what it said before it died counts.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping

from bookkeeper import BookKeeper
from bookkeeper.config import ClientSettings
from tests.support.ledger_load import Load


def write_and_kill(uri: str, settings: Mapping[str, object], *, ledgers: int, enough: int) -> dict[int, int]:
    """Let it write, and SIGKILL it with adds on their way once each ledger has `enough`; ledger id -> acknowledged."""
    command = [sys.executable, "-m", "tests.support.doomed_writer", uri, json.dumps(settings), str(ledgers)]
    acknowledged: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # it died over this one
            ledger_id, count = map(int, line.split())
            acknowledged[ledger_id] = count
            if len(acknowledged) == ledgers and min(acknowledged.values()) >= enough:
                process.kill()
    assert process.returncode < 0, f"the writer ended by itself, with {process.returncode}"
    return acknowledged


async def _main(uri: str, settings: str, ledgers: str) -> None:
    values = json.loads(settings)
    values["password"] = values["password"].encode()
    async with await BookKeeper.connect(uri, ClientSettings(**values)) as bk:
        loads = [Load(await bk.create(ensemble=3, write_quorum=3, ack_quorum=2)) for _ in range(int(ledgers))]
        told: dict[int, int] = {}
        while all(load.failure is None for load in loads):
            for load in loads:
                if told.get(load.ledger.id) != load.acknowledged:
                    told[load.ledger.id] = load.acknowledged
                    sys.stdout.write(f"{load.ledger.id} {load.acknowledged}\n")
                    sys.stdout.flush()
            await asyncio.sleep(0)
        for load in loads:
            if load.failure is not None:
                raise load.failure


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
