"""The znodes of a simulated ZooKeeper: one leader's tree, followers that lag behind it, and sessions.

    writes -> leader tree -> log of transactions -> every follower, each in order, some later than others
    reads  <- the tree of the session's own server, leader or follower

A watch lives in the tree it was set on and fires when that tree changes: what a lagging follower has not applied, its
watchers have not missed. Pure data; time and faults are `session`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bookkeeper.metadata.tree import (
    Create,
    Delete,
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeKind,
    NodeNotEmpty,
    Stat,
    Step,
    Write,
)

SEQUENCE_MASK = 2**32 - 1

FiredWatch = Callable[[], object]
"""A watch as set on a tree: called once. Equal ones are set once."""


@dataclass(slots=True)
class _Node:
    data: bytes | None
    creation_id: int
    owner: int
    created_ms: int = 0
    modified_ms: int = 0
    version: int = 0
    sequence: int = 0  # children ever created; ZooKeeper's cversion, a signed 32-bit number
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        made = self.sequence & (2**31 - 1)
        count = len(self.children)
        return Stat(self.version, self.creation_id, self.owner, count, self.created_ms, self.modified_ms, made)


@dataclass(frozen=True, slots=True)
class _Made:
    path: str
    data: bytes | None
    owner: int


@dataclass(frozen=True, slots=True)
class _Written:
    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class _Removed:
    path: str


_Part = _Made | _Written | _Removed


@dataclass(frozen=True, slots=True)
class _Change:
    """One transaction: what is done, in order, and when. No server ever shows a part of it."""

    number: int
    parts: tuple[_Part, ...]
    at_ms: int


def parent_of(path: str) -> str:
    """The parent's path; `/` for a child of the root."""
    return path.rpartition("/")[0] or "/"


class TreeCopy:
    """One server's copy of all znodes, with the watches set on it."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0)}
        self.applied = 0
        self.behind: deque[_Change] = deque()
        self._data_watches: dict[str, list[FiredWatch]] = {}
        self._child_watches: dict[str, list[FiredWatch]] = {}

    def read(self, path: str, watch: FiredWatch | None) -> tuple[bytes, Stat]:
        """Data and stat of a node. Raises NodeAbsent."""
        node = self._node(path)
        self._arm(self._data_watches, path, watch)
        return node.data or b"", node.stat()

    def stat(self, path: str, watch: FiredWatch | None) -> Stat | None:
        """Stat of a node, or None."""
        node = self.nodes.get(path)
        self._arm(self._data_watches, path, watch)
        return None if node is None else node.stat()

    def children(self, path: str, watch: FiredWatch | None) -> list[str]:
        """Names of a node's children. Raises NodeAbsent."""
        node = self._node(path)
        self._arm(self._child_watches, path, watch)
        return list(node.children)

    def apply(self, change: _Change) -> list[FiredWatch]:
        """Make one change; the watches that it fires, in order."""
        fired: list[FiredWatch] = []
        for part in change.parts:
            path = part.path
            if isinstance(part, _Made):
                parent = self.nodes[parent_of(path)]
                parent.children[path.rpartition("/")[2]] = None
                parent.sequence = (parent.sequence + 1) & SEQUENCE_MASK
                self.nodes[path] = _Node(part.data, change.number, part.owner, change.at_ms, change.at_ms)
                fired += self._data_watches.pop(path, [])
                fired += self._child_watches.pop(parent_of(path), [])
            elif isinstance(part, _Written):
                node = self.nodes[path]
                node.data = part.data
                node.version += 1
                node.modified_ms = change.at_ms
                fired += self._data_watches.pop(path, [])
            else:
                del self.nodes[path]
                self.nodes[parent_of(path)].children.pop(path.rpartition("/")[2])
                fired += self._data_watches.pop(path, [])
                fired += self._child_watches.pop(path, [])
                fired += self._child_watches.pop(parent_of(path), [])
        self.applied = change.number
        return fired

    def catch_up(self, number: int) -> list[FiredWatch]:
        """Apply what is waiting up to transaction `number`; the watches that this fires."""
        fired: list[FiredWatch] = []
        while self.behind and self.behind[0].number <= number:
            fired += self.apply(self.behind.popleft())
        return fired

    def copy(self) -> TreeCopy:
        """A copy of the nodes, without watches."""
        twin = TreeCopy()
        twin.nodes = {path: replace(node, children=dict(node.children)) for path, node in self.nodes.items()}
        twin.applied = self.applied
        return twin

    def _node(self, path: str) -> _Node:
        node = self.nodes.get(path)
        if node is None:
            raise NodeAbsent(path)
        return node

    @staticmethod
    def _arm(watches: dict[str, list[FiredWatch]], path: str, watch: FiredWatch | None) -> None:
        if watch is not None:
            listeners = watches.setdefault(path, [])
            if watch not in listeners:
                listeners.append(watch)


class Znodes:
    """The leader: decides every change, and passes it to the followers."""

    def __init__(self) -> None:
        self.leader = TreeCopy()
        self.followers: list[TreeCopy] = []
        self.on_change: list[Callable[[], object]] = []
        self.now_ms: Callable[[], int] = lambda: 0
        self._owned: dict[int, dict[str, None]] = {}

    def add_follower(self) -> TreeCopy:
        """A new server that is up to date now."""
        follower = self.leader.copy()
        self.followers.append(follower)
        return follower

    def remove_follower(self, follower: TreeCopy) -> None:
        """The server is no longer needed."""
        self.followers = [other for other in self.followers if other is not follower]

    def catch_up(self, follower: TreeCopy, number: int) -> None:
        """Bring a follower up to transaction `number` and tell its watchers."""
        self._tell(follower.catch_up(number))

    def create(self, path: str, data: bytes | None, kind: NodeKind, session_id: int) -> str:
        """Make a node; its path."""
        parent = self.leader.nodes.get(parent_of(path))
        if parent is None or parent.owner:
            raise NodeAbsent(f"{parent_of(path)} (parent of {path})")
        if kind is NodeKind.EPHEMERAL_SEQUENTIAL:
            number = parent.sequence if parent.sequence < 2**31 else parent.sequence - 2**32
            path += f"{number:010d}"
        if path in self.leader.nodes:
            raise NodeExists(path)
        owner = 0 if kind is NodeKind.PERSISTENT else session_id
        if owner:
            self._owned.setdefault(owner, {})[path] = None
        self._commit(_Made(path, data, owner))
        return path

    def write(self, path: str, data: bytes | None, version: int) -> Stat:
        """Replace a node's data."""
        self._check(path, version)
        self._commit(_Written(path, data))
        return self.leader.nodes[path].stat()

    def delete(self, path: str, version: int) -> None:
        """Remove a node without children."""
        node = self._check(path, version)
        if node.children:
            raise NodeNotEmpty(path)
        if node.owner:
            self._owned[node.owner].pop(path)
        self._commit(_Removed(path))

    def transact(self, steps: Sequence[Step], session_id: int) -> None:
        """All steps or none."""
        trial = _Trial(self.leader.nodes, session_id)
        for step in steps:
            trial.take(step)
        parts: list[_Part] = []
        for step in steps:
            if isinstance(step, Create):
                owner = session_id if step.kind is NodeKind.EPHEMERAL else 0
                if owner:
                    self._owned.setdefault(owner, {})[step.path] = None
                parts.append(_Made(step.path, step.data, owner))
            elif isinstance(step, Write):
                parts.append(_Written(step.path, step.data))
            elif isinstance(step, Delete):
                for owned in self._owned.values():
                    owned.pop(step.path, None)
                parts.append(_Removed(step.path))
        if parts:
            self._commit(*parts)

    def end_session(self, session_id: int) -> None:
        """Remove what the session owns."""
        paths = tuple(self._owned.pop(session_id, {}))
        if paths:
            self._commit(*map(_Removed, paths))

    def restore(self, copy: TreeCopy) -> None:
        """Replace the znodes of all servers by an older copy. End all sessions first."""
        for server in (self.leader, *self.followers):
            server.nodes = copy.copy().nodes
            server.applied = copy.applied
            server.behind.clear()
        self._owned = {}
        for path, node in copy.nodes.items():
            if node.owner:
                self._owned.setdefault(node.owner, {})[path] = None

    def set_sequence(self, path: str, value: int) -> None:
        """Let the next sequential child of `path` have this number: how tests come near an overflow."""
        for copy in (self.leader, *self.followers):
            copy.nodes[path].sequence = value & SEQUENCE_MASK

    def _check(self, path: str, version: int) -> _Node:
        node = self.leader.nodes.get(path)
        if node is None:
            raise NodeAbsent(path)
        _check_version(path, node.version, version)
        return node

    def _commit(self, *parts: _Part) -> None:
        change = _Change(self.leader.applied + 1, parts, self.now_ms())
        fired = self.leader.apply(change)
        for follower in self.followers:
            follower.behind.append(change)
        self._tell(fired)
        for listener in list(self.on_change):
            listener()

    @staticmethod
    def _tell(fired: list[FiredWatch]) -> None:
        for watch in fired:
            watch()


class _Trial:
    """Whether the steps of a transaction can be done one after the other: each sees what those before it did."""

    def __init__(self, nodes: Mapping[str, _Node], session_id: int) -> None:
        self._nodes = nodes
        self._session_id = session_id
        self._changed: dict[str, tuple[int, int, int] | None] = {}  # version, children, owner; None: removed

    def take(self, step: Step) -> None:
        """Raises what the step is refused with."""
        parent = parent_of(step.path)
        found = self._look(step.path)
        if isinstance(step, Create):
            if found is not None:
                raise NodeExists(step.path)
            above = self._look(parent)
            if above is None or above[2]:
                raise NodeAbsent(parent)  # nothing is made below an ephemeral node
            self._changed[step.path] = 0, 0, self._session_id if step.kind is NodeKind.EPHEMERAL else 0
            self._count(parent, 1)
            return
        if found is None:
            raise NodeAbsent(step.path)
        version, children, owner = found
        _check_version(step.path, version, step.version)
        if isinstance(step, Write):
            self._changed[step.path] = version + 1, children, owner
        elif isinstance(step, Delete):
            if children:
                raise NodeNotEmpty(step.path)
            self._changed[step.path] = None
            self._count(parent, -1)

    def _look(self, path: str) -> tuple[int, int, int] | None:
        if path in self._changed:
            return self._changed[path]
        node = self._nodes.get(path)
        return None if node is None else (node.version, len(node.children), node.owner)

    def _count(self, path: str, added: int) -> None:
        found = self._look(path)
        assert found is not None
        self._changed[path] = found[0], found[1] + added, found[2]


def _check_version(path: str, found: int, named: int) -> None:
    # -1 would be "any version" to a real server; nothing of ours may send it (I-15).
    assert named >= 0, f"unconditional change of {path}"
    if found != named:
        raise NodeChanged(f"{path} has version {found}, not {named}")
