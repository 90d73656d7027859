"""A tree of znodes as one session sees it: the seam under the metadata store.

`session.ZooKeeperSession` is the real one, `memory.session.MemorySession` the simulated one. A Tree does one attempt of
one operation and says what became of it; retrying, and finding out what became of a lost write, is `outcome.Outcomes`.

Order: operations of one session take effect, and are answered, in the order of the calls. A watch fires once, at the
first change after the read that set it, or with LOST when the connection went (then it has to be set anew).

Data may be null, which to ZooKeeper is not the same as empty: None writes it, and Java programs tell the two apart.

Thread: reactor.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bookkeeper.errors import MetadataError, MetadataTooLarge, MetadataUnavailable
from bookkeeper.metadata.store import StoreState, Watch

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred


class NodeAbsent(MetadataError):
    """No znode at the path (for a create: at its parent's path)."""


class NodeExists(MetadataError):
    """There is a znode at the path."""


class NodeChanged(MetadataError):
    """The znode has another version than the one named."""


class NodeNotEmpty(MetadataError):
    """The znode has children."""


class NotAttempted(MetadataUnavailable):
    """The operation certainly did not happen: it was not sent, or it was a read."""


class OutcomeOpen(MetadataUnavailable):
    """A change was sent and its answer was lost; it may have happened, or may yet."""


class TreeEvent(enum.Enum):
    """Why a watch fired."""

    CHANGED = "changed"  # created, deleted, new data, or children came or went
    LOST = "lost"  # the connection went; the watch is no longer set


WatchListener = Callable[[TreeEvent], object]


class NodeKind(enum.Enum):
    """How a znode is created."""

    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"  # goes with the session
    EPHEMERAL_SEQUENTIAL = "ephemeral sequential"  # and its name gains ten digits


class Access(enum.Enum):
    """Who may do what with a new znode. Source: bookkeeper/wire/FORMATS.md 4.9."""

    DEFAULT = "default"  # creator: all, where security is on; else open
    OPEN = "open"  # world: all


@dataclass(frozen=True, slots=True)
class Stat:
    """What the store says of a znode.

    creation_id: number of the transaction that made it, rising over the whole tree: a re-created node has a new one.
    owner: session id of an ephemeral node, 0 for a persistent one.
    created_ms, modified_ms: when it was made, and when its data was last written (if never: made); by the store's
    clock, in milliseconds since 1970.
    children_made: children ever created, modulo 2**31: the number of the next sequential child.
    """

    version: int
    creation_id: int
    owner: int
    children_count: int
    created_ms: int = 0
    modified_ms: int = 0
    children_made: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a transaction: make a node, not a sequential one."""

    path: str
    data: bytes = b""
    kind: NodeKind = NodeKind.PERSISTENT


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a transaction: remove the node that has `version`."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a transaction: the node has `version`."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Write:
    """Part of a transaction: replace the data that has `version`."""

    path: str
    data: bytes
    version: int


Step = Create | Write | Delete | Check

STEP_SIZE = 80
"""Upper bound of an operation's bytes beside path and data: headers, lengths, version, flags, one open ACL."""


def operation_size(path: str, data: bytes | None = None) -> int:
    """Return an upper bound of the bytes of one operation in a request."""
    path_size = len(path) if path.isascii() else len(path.encode(errors="surrogatepass"))
    return STEP_SIZE + path_size + len(data or b"")


def step_size(step: Step) -> int:
    """Return an upper bound of the bytes of a step in a transaction."""
    return operation_size(step.path, step.data if isinstance(step, Create | Write) else None)


def transaction_size(steps: Iterable[Step]) -> int:
    """Return an upper bound of the bytes of a transaction."""
    return sum(map(step_size, steps))


def largest_path(steps: Iterable[Step]) -> str:
    """Return the path of the largest step of a transaction."""
    return max(steps, key=step_size).path


def too_large(operation: str, path: str, size: int, limit: int) -> MetadataTooLarge:
    """Return the error for a request of `size` bytes that is not sent."""
    return MetadataTooLarge(
        f"{operation} {path}: the request has {size} bytes, more than the {limit} of zkMaxRequestSizeBytes, and was "
        "not sent; store less there, or raise jute.maxbuffer of all ZooKeeper servers and Apache clients, then "
        "zkMaxRequestSizeBytes",
        path=path,
        size=size,
        limit=limit,
    )


class Tree(Protocol):
    """One session's znodes.

    Every failure is one of the errors above, AccessDenied, MetadataUnavailable or MetadataTooLarge. A request larger
    than `MetadataSettings.request_size_max` fails with MetadataTooLarge in every state and is not sent. A server would
    close the connection, all calls in progress would fail, and a retry would do the same.
    """

    @property
    def state(self) -> StoreState:
        """What the connection is worth right now."""

    @property
    def session_id(self) -> int:
        """Number of the present session; another after each loss. 0 before the first."""

    @property
    def sessions_refused(self) -> int:
        """Sessions that were given up because the servers may have an older state than this process has seen.

        Counted once the new session has had an answer.
        """

    @property
    def description(self) -> str:
        """The servers, for messages."""

    def watch_state(self, on_change: Callable[[StoreState], object]) -> Watch:
        """Hear of every change of `state`; LOST before the CONNECTED of the next session."""

    def create(
        self, path: str, data: bytes | None, kind: NodeKind = NodeKind.PERSISTENT, access: Access = Access.DEFAULT
    ) -> Deferred[str]:
        """Make a node; its path. Raises NodeExists, NodeAbsent (no parent)."""

    def read(self, path: str, watch: WatchListener | None = None) -> Deferred[tuple[bytes, Stat]]:
        """Data and stat; null data reads as b"". Raises NodeAbsent (then no watch is set)."""

    def stat(self, path: str, watch: WatchListener | None = None) -> Deferred[Stat | None]:
        """Stat, or None where there is no node; the watch is set either way."""

    def children(self, path: str, watch: WatchListener | None = None) -> Deferred[list[str]]:
        """Names, in no order. Raises NodeAbsent (then no watch is set)."""

    def write(self, path: str, data: bytes | None, version: int) -> Deferred[Stat]:
        """Replace the data that has `version`. Raises NodeAbsent, NodeChanged."""

    def delete(self, path: str, version: int) -> Deferred[None]:
        """Remove the node that has `version`. Raises NodeAbsent, NodeChanged, NodeNotEmpty."""

    def transact(self, steps: Sequence[Step]) -> Deferred[None]:
        """All steps or none. Raises the first failed step's error."""

    def sync(self) -> Deferred[None]:
        """Fires once later reads see all that was written before the call."""

    def forget(self, path: str, watch: WatchListener) -> None:
        """Do not fire this watch of `path`. Harmless when it is not set."""

    def close(self) -> Deferred[None]:
        """End the session. Never fails."""
