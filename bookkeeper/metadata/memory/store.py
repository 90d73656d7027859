"""Metadata in memory, for simulation and tests: a simulated ZooKeeper under the very code that runs on the real one.

    shared = MemoryMetadata()                                   # the servers: one per simulated cluster
    store = MemoryMetadataStore(shared, clock, random, faults)  # a MetadataStore: one per simulated process

Deterministic: the same clock, random and calls give the same run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookkeeper.metadata.cluster.layout import DEFAULT_KIND, Layout, LayoutKind
from bookkeeper.metadata.memory.session import Fault, MemoryFaults, MemorySession, SharedZnodes
from bookkeeper.metadata.memory.tree import TreeCopy
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.metadata.uri import DEFAULT_ROOT
from bookkeeper.metadata.znode_store import ZnodeStore

if TYPE_CHECKING:
    from random import Random

    from bookkeeper.ports import Clock

__all__ = ["Fault", "MemoryFaults", "MemoryMetadata", "MemoryMetadataStore"]

INSTANCE_ID = "00000000-0000-4000-8000-000000000000"
"""Instance id of a cluster that is born initialised."""


class MemoryMetadata:
    """What all processes of a simulated cluster share. Holds an initialised cluster unless made by `empty`.

    clock: the servers' own; give one where processes have clocks that stop with them, or a dead process's session would
    never end.
    """

    def __init__(
        self, root: str = DEFAULT_ROOT, kind: LayoutKind = DEFAULT_KIND, *, clock: Clock | None = None
    ) -> None:
        self.root = root
        self.znodes = SharedZnodes(clock)
        parents = root.split("/")[1:]
        for depth in range(1, len(parents) + 1):
            self._make("/" + "/".join(parents[:depth]))
        self._make(f"{root}/available")
        self._make(f"{root}/available/readonly")
        self._make(f"{root}/INSTANCEID", INSTANCE_ID.encode())
        self._make(f"{root}/LAYOUT", Layout(kind).format())

    @classmethod
    def empty(cls, root: str = DEFAULT_ROOT, *, clock: Clock | None = None) -> MemoryMetadata:
        """Servers without any cluster."""
        shared = cls.__new__(cls)
        shared.root = root
        shared.znodes = SharedZnodes(clock)
        return shared

    def set_sequence(self, path: str, value: int) -> None:
        """Let the next sequential child of `path` get this number: ids near an overflow."""
        self.znodes.set_sequence(path, value)

    def copy(self) -> TreeCopy:
        """Return a copy of all znodes, for `restore`."""
        return self.znodes.leader.copy()

    def restore(self, copy: TreeCopy, *stores: MemoryMetadataStore) -> None:
        """Expire the sessions of `stores`, which restored servers refuse, then replace all znodes by an older copy."""
        for store in stores:
            store.refuse_session()
        self.znodes.restore(copy)

    def stored(self, path: str) -> bytes | None:
        """The bytes at an absolute path, if any: what tests look at. None also where the data is null."""
        node = self.znodes.leader.nodes.get(path)
        return None if node is None else node.data

    def exists(self, path: str) -> bool:
        """Whether there is a node at an absolute path."""
        return path in self.znodes.leader.nodes

    def damage(self, path: str, data: bytes) -> None:
        """Replace the bytes at an absolute path, as an operator's accident would."""
        self.znodes.write(path, data, self.znodes.leader.nodes[path].version)

    def plant(self, path: str, data: bytes = b"") -> None:
        """Create the znode at an absolute path, with its missing parents, as another program would."""
        parts = path.split("/")[1:]
        for depth in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:depth])
            if above not in self.znodes.leader.nodes:
                self._make(above, data if above == path else b"")

    def _make(self, path: str, data: bytes = b"") -> None:
        self.znodes.create(path, data, NodeKind.PERSISTENT, 0)


class MemoryMetadataStore(ZnodeStore):
    """One process's connection to a simulated cluster.

    faults: None answers at once, inside the call, and never fails; watches then fire inside the call that causes them.
    """

    def __init__(
        self,
        shared: MemoryMetadata,
        clock: Clock,
        random: Random,
        faults: MemoryFaults | None = None,
        *,
        settings: MetadataSettings | None = None,
        layout: LayoutKind | None = None,
    ) -> None:
        settings = settings or MetadataSettings()
        self._session = MemorySession(shared.znodes, clock, random, faults, settings)
        super().__init__(self._session, shared.root, layout, clock, random, settings)

    def cut_connection(self, for_s: float) -> None:
        """The connection goes now and comes back after `for_s` seconds; the session ends if that is too long."""
        self._session.cut_connection(for_s)

    def expire_session(self, reconnect_s: float = 0.0) -> None:
        """The server ends the session now; a new one begins after `reconnect_s` seconds."""
        self._session.expire_session(reconnect_s)

    def refuse_session(self) -> None:
        """End the session as servers with an older state do; a new one begins."""
        self._session.sessions_refused += 1
        self._session.expire_session()

    def crash(self) -> None:
        """The process is gone: nothing answers any more, and its registration lingers until the session times out."""
        self._session.crash()
