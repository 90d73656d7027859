"""How commands that make ledgers read their options: quorums that follow the ensemble."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.cli.output import EXIT_USAGE, CommandFailed

ENSEMBLE = 3
QUORUM = 2
"""Copies, and copies to wait for, where the ensemble has room for them."""

QUORUM_DEFAULT = f"{QUORUM}, or fewer if --ensemble is smaller"
ACK_QUORUM_DEFAULT = f"{QUORUM}, or fewer if the write quorum is smaller"


@dataclass(frozen=True, slots=True)
class Quorums:
    """ensemble >= write >= ack >= 1."""

    ensemble: int
    write: int
    ack: int


def quorums_of(ensemble: int, write: int | None, ack: int | None) -> Quorums:
    """The quorums of a new ledger; those not given fit themselves to what is. Raises CommandFailed where none can."""
    write = min(QUORUM, ensemble) if write is None else write
    ack = min(QUORUM, write) if ack is None else ack
    if not ensemble >= write >= ack >= 1:
        raise CommandFailed(
            f"ensemble {ensemble}, write quorum {write}, ack quorum {ack}: "
            "need ensemble >= write quorum >= ack quorum >= 1",
            EXIT_USAGE,
        )
    return Quorums(ensemble, write, ack)
