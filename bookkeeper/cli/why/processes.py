"""What processes with auto-recovery say over HTTP: of a ledger their worker failed on, and of their auditor.

Where a process serves HTTP is known of registered bookies that publish it, and of those that the command line names:
one that runs beside no bookie is recorded nowhere. Whoever cannot be asked leaves the reason in the place of an answer.
Bounds: ASKED_MAX processes, all of them at once, two requests each, ALL_TIMEOUT_S altogether. Thread: any; it blocks.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ASKED_MAX = 16
TIMEOUT_S = 2.0
ALL_TIMEOUT_S = 4.0
ANSWER_MAX = 256 * 1024

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ProcessAnswer:
    """One process's. where: "bookie ID" or "HOST:PORT".

    works: a replication worker runs there; trouble: what it says of the ledger, None where it never failed on it.
    auditor: what its auditor, elected or not, says of itself; None where none runs. error: why it could not be asked.
    """

    where: str
    works: bool = False
    trouble: Mapping[str, Any] | None = None
    auditor: Mapping[str, Any] | None = None
    error: str = ""

    @property
    def audits(self) -> bool:
        """Whether its auditor is the elected one, as it says."""
        return self.auditor is not None and self.auditor.get("elected") is True


def ask_processes(ledger_id: int, servers: Sequence[tuple[str, Address]]) -> tuple[ProcessAnswer, ...]:
    """Ask the first ASKED_MAX of them at the same time. Who has not answered after ALL_TIMEOUT_S is not waited for."""
    asked = servers[:ASKED_MAX]
    answers: dict[int, ProcessAnswer] = {}  # by the place in `asked`

    def ask(number: int, where: str, address: Address) -> None:
        answers[number] = _ask(ledger_id, where, address)

    threads = [
        threading.Thread(target=ask, args=(number, where, address), name=f"ask {where}", daemon=True)
        for number, (where, address) in enumerate(asked)
    ]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + ALL_TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    return tuple(
        answers.get(number) or ProcessAnswer(where, error=f"{host}:{port}: no whole answer within {ALL_TIMEOUT_S:g} s")
        for number, (where, (host, port)) in enumerate(asked)
    )


def _ask(ledger_id: int, where: str, address: Address) -> ProcessAnswer:
    try:
        troubles = _get(address, f"troubles?ledger_id={ledger_id}")
        auditor = _get(address, "auditor")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return ProcessAnswer(where, error=f"{address[0]}:{address[1]}: {error}" if str(error) else repr(error))
    return ProcessAnswer(
        where,
        works=isinstance(troubles, list),
        trouble=troubles[0] if isinstance(troubles, list) and troubles and isinstance(troubles[0], dict) else None,
        auditor=auditor if isinstance(auditor, dict) else None,
    )


def _get(address: Address, path: str) -> Any:
    """The answer's JSON; None where the process has no such thing. Raises OSError, HTTPException, ValueError."""
    host, port = address
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"/api/v1/autorecovery/{path}")
        answer = connection.getresponse()
        body = answer.read(ANSWER_MAX)
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        if answer.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"HTTP status {answer.status} for {path}")
        return json.loads(body)
    finally:
        connection.close()
