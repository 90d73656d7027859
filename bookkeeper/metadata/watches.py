"""Who listens to what: watches by path, and lists of listeners. Thread: reactor."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Generic, ParamSpec

from twisted.logger import Logger

from bookkeeper.metadata.tree import TreeEvent, WatchListener

P = ParamSpec("P")

log = Logger()


class WatchKind(enum.Enum):
    """What a watch looks at."""

    NODE = "node"  # the node and its data
    CHILDREN = "children"


class WatchBook:
    """The listeners of one session, by path. A path needs one watch on the server however many listen to it."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[WatchKind, str], dict[WatchListener, None]] = {}

    def add(self, kind: WatchKind, path: str, listener: WatchListener) -> None:
        """Fire `listener` once, at the next event of `path`."""
        self._listeners.setdefault((kind, path), {})[listener] = None

    def forget(self, path: str, listener: WatchListener) -> None:
        """Do not fire it."""
        for kind in WatchKind:
            listeners = self._listeners.get((kind, path))
            if listeners is not None:
                listeners.pop(listener, None)
                if not listeners:
                    del self._listeners[kind, path]

    def fire(self, kind: WatchKind, path: str) -> None:
        """The watched thing changed."""
        for listener in self._listeners.pop((kind, path), {}):
            call_listener(listener, TreeEvent.CHANGED)

    def lose_all(self) -> None:
        """The connection went and all watches with it."""
        lost, self._listeners = self._listeners, {}
        for listeners in lost.values():
            for listener in listeners:
                call_listener(listener, TreeEvent.LOST)

    def clear(self) -> None:
        """Forget all, silently."""
        self._listeners.clear()


def call_listener(listener: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Call somebody else's code; what it raises is logged, for it must not stop the other listeners."""
    try:
        listener(*args, **kwargs)
    except Exception:  # noqa: BLE001 - the edge to the listener
        log.failure("A listener of the metadata store failed")


class Listeners(Generic[P]):
    """Callbacks that stay until they are cancelled."""

    def __init__(self) -> None:
        self._listeners: dict[_Subscription[P], None] = {}

    def add(self, listener: Callable[P, object]) -> _Subscription[P]:
        """Call `listener` from now on."""
        subscription = _Subscription(listener, self._listeners)
        self._listeners[subscription] = None
        return subscription

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call them all, in the order they were added; one cancelled meanwhile is not called."""
        for subscription in list(self._listeners):
            if subscription in self._listeners:
                call_listener(subscription.listener, *args, **kwargs)

    def __len__(self) -> int:
        return len(self._listeners)


class _Subscription(Generic[P]):
    def __init__(self, listener: Callable[P, object], among: dict[_Subscription[P], None]) -> None:
        self.listener = listener
        self._among = among

    def cancel(self) -> None:
        self._among.pop(self, None)
