"""What processes with auto-recovery say over HTTP: of a ledger their worker failed on, and of their auditor.

Where a process serves HTTP is known of registered bookies that publish it, of processes that announce themselves in the
metadata store, and of those that the command line names. Whoever cannot be asked leaves the reason in the place of an
answer. Bounds: ASKED_MAX processes, all of them at once, two requests each, `http_questions` has the time. Thread: any;
it blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bookkeeper.console.http_questions import ALL_TIMEOUT_S, ERRORS, Address, all_at_once, get_json, why_out_of_reach
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess

ASKED_MAX = 32


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom to ask. where: as people are told. process: as it announced itself, if it did."""

    where: str
    address: Address | None
    process: RecoveryProcess | None = None


@dataclass(frozen=True, slots=True)
class ProcessAnswer:
    """One process's. where, process: as of Asked.

    works: a replication worker runs there; trouble: what it says of the ledger, None where it never failed on it.
    auditor: what its auditor, elected or not, says of itself; None where none runs. error: why it could not be asked.
    """

    where: str
    works: bool = False
    trouble: Mapping[str, Any] | None = None
    auditor: Mapping[str, Any] | None = None
    error: str = ""
    process: RecoveryProcess | None = None

    @property
    def audits(self) -> bool:
        """Whether its auditor is the elected one, as it says."""
        return self.auditor is not None and self.auditor.get("elected") is True


def whom_to_ask(
    named: Sequence[Address], announced: Sequence[RecoveryProcess], bookies: Sequence[tuple[str, Address]]
) -> list[Asked]:
    """Each process once: the named ones, those that announced themselves, then bookies by id.

    A bookie beside which one announced itself is that one, also where it serves HTTP on loopback only and publishes
    another address.
    """
    by_address = {process.http: process for process in announced if process.http is not None}
    ids = {address: bookie_id for bookie_id, address in bookies}
    asked = [Asked(f"{host}:{port}", (host, port), by_address.get((host, port))) for host, port in named]
    asked += [Asked(_where(process, ids), process.http, process) for process in announced if process.http not in named]
    known = {each.address for each in asked}
    beside = {process.bookie_id for process in announced if process.http is not None}
    return asked + [
        Asked(f"bookie {bookie_id}", address)
        for bookie_id, address in bookies
        if address not in known and bookie_id not in beside
    ]


def _where(process: RecoveryProcess, ids: Mapping[Address, str]) -> str:
    bookie_id = None if process.http is None else ids.get(process.http)
    return str(process) if bookie_id is None else f"bookie {bookie_id}"


def ask_processes(ledger_id: int, asked: Sequence[Asked]) -> tuple[ProcessAnswer, ...]:
    """Ask the first ASKED_MAX of them at the same time."""
    asked = asked[:ASKED_MAX]
    answers = all_at_once([partial(_ask, ledger_id, each) for each in asked])
    late = f"no whole answer within {ALL_TIMEOUT_S:g} s"
    return tuple(
        answer or ProcessAnswer(each.where, error=f"{each.address}: {late}", process=each.process)
        for each, answer in zip(asked, answers, strict=True)
    )


def _ask(ledger_id: int, asked: Asked) -> ProcessAnswer:
    process, address = asked.process, asked.address
    error = "" if process is None else why_out_of_reach(process)
    if error or address is None:
        return ProcessAnswer(asked.where, error=error, process=process)
    try:
        troubles = get_json(address, f"/api/v1/autorecovery/troubles?ledger_id={ledger_id}")
        auditor = get_json(address, "/api/v1/autorecovery/auditor")
    except ERRORS as failure:
        why = f"{address[0]}:{address[1]}: {failure}" if str(failure) else repr(failure)
        return ProcessAnswer(asked.where, error=why, process=process)
    return ProcessAnswer(
        asked.where,
        works=isinstance(troubles, list),
        trouble=troubles[0] if isinstance(troubles, list) and troubles and isinstance(troubles[0], dict) else None,
        auditor=auditor if isinstance(auditor, dict) else None,
        process=process,
    )
