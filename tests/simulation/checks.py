"""Checkers of the world around the ledgers: the metadata as it is stored, and what a closed client leaves behind.

MetadataWatch   I-13 states only go forward, a closed end never changes; I-17 fragment keys rise, none is lost.
                (That every change names a version, I-15, the simulated metadata servers assert by themselves.)
left_behind     timers and connections of a process that has closed everything it had
"""

from __future__ import annotations

from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.ledgers.codec import parse_ledger
from bookkeeper.metadata.ledgers.paths import ledger_path
from bookkeeper.model import LedgerId, LedgerMetadata
from tests.simulation.history import Violation
from tests.simulation.world import SimulatedClient, World


class MetadataWatch:
    """Looks at the ledgers given to it after every change of the metadata."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: dict[int, tuple[bytes, LedgerMetadata]] = {}
        world.metadata.znodes.on_change.append(self._look)

    def add(self, ledger_id: int) -> None:
        """Check this ledger from now on."""
        data = self._stored(ledger_id)
        assert data is not None
        self._seen[ledger_id] = data, parse_ledger(data, str(ledger_id))

    def _stored(self, ledger_id: int) -> bytes | None:
        metadata = self._world.metadata
        return metadata.stored(metadata.root + ledger_path(LayoutKind.HIERARCHICAL, LedgerId(ledger_id)))

    def _look(self) -> None:
        for ledger_id, (before, old) in list(self._seen.items()):
            data = self._stored(ledger_id)
            if data is None or data == before:
                continue
            new = parse_ledger(data, str(ledger_id))
            self._seen[ledger_id] = data, new
            try:
                check_step(ledger_id, old, new)
            except Violation as violation:
                self._world.errors.append(violation)


def check_step(ledger_id: int, old: LedgerMetadata, new: LedgerMetadata) -> None:
    """Raise Violation unless a ledger's metadata may go from `old` to `new`."""
    if old.is_closed or new.state.value < old.state.value:
        raise Violation(
            f"I-13: ledger {ledger_id} went from {old.state.name} ({old.last_entry_id}, {old.length}) to "
            f"{new.state.name} ({new.last_entry_id}, {new.length})"
        )
    shape = (old.ensemble_size, old.write_quorum, old.ack_quorum, old.password, old.digest_type, old.creator_token)
    if shape != (new.ensemble_size, new.write_quorum, new.ack_quorum, new.password, new.digest_type, new.creator_token):
        raise Violation(f"I-01: ledger {ledger_id} changed its sizes or its identity")
    if new.fragments[: len(old.fragments) - 1] != old.fragments[:-1] or len(new.fragments) < len(old.fragments):
        raise Violation(f"I-17: ledger {ledger_id}: fragments {old.fragments} became {new.fragments}")
    if new.fragments[len(old.fragments) - 1].first_entry_id != old.last_fragment.first_entry_id:
        raise Violation(f"I-17: ledger {ledger_id}: fragments {old.fragments} became {new.fragments}")


def left_behind(world: World, client: SimulatedClient) -> list[str]:
    """What a client that was closed still holds: timers that will run in it, connections that it keeps."""
    timers = [f"a timer for {timer.description}" for timer in world.clock.pending(client.process)]
    ends = [end for connection in world.network.connections for end in connection.ends]
    return timers + [f"a connection to {end.peer.host}" for end in ends if end.process is client.process]
