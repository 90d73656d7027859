"""Where the entries of an ensemble go: its channels, and which of them hold which entry. Worked out once for all
ledgers that have the ensemble, because a client may write very many ledgers to few bookies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, cycle
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from bookkeeper.model import BookieId
from bookkeeper.protocol.schedule import holds, write_set

if TYPE_CHECKING:
    from bookkeeper.client.bookies.connection import BookieChannel


class Routes:
    """The ways to one ensemble.

    channels: by ensemble index. index_of: the index of a member. write_sets[e % E]: indexes and channels of entry e.
    """

    __slots__ = ("__weakref__", "_patterns", "channels", "index_of", "striped", "write_sets")

    def __init__(self, ensemble: Sequence[BookieId], channels: Sequence[BookieChannel], write_quorum: int) -> None:
        size = len(ensemble)
        self.channels = tuple(channels)
        self.index_of = {bookie_id: index for index, bookie_id in enumerate(ensemble)}
        self.striped = size > write_quorum
        sets = [write_set(start, size, write_quorum) for start in range(size)]
        self.write_sets = tuple(tuple((index, self.channels[index]) for index in members) for members in sets)
        # _patterns[index][e % E]: which of the E entries from e on `index` holds; it repeats every E entries.
        self._patterns = tuple(
            tuple(
                tuple(holds(index, entry_id, size, write_quorum) for entry_id in range(first, first + size))
                for first in range(size)
            )
            for index in range(size)
        )

    def frames_of(self, index: int, entry_ids: Sequence[int], frames: Sequence[bytes]) -> Sequence[bytes]:
        """The frames whose write set contains `index`."""
        if not self.striped:
            return frames
        patterns, size = self._patterns[index], len(self.channels)
        if isinstance(entry_ids, range):
            return list(compress(frames, cycle(patterns[entry_ids.start % size])))
        return [frame for entry_id, frame in zip(entry_ids, frames, strict=True) if patterns[entry_id % size][0]]


class RouteTable:
    """The routes in use; bounded by the handles that use them."""

    def __init__(self, channel: Callable[[BookieId], BookieChannel]) -> None:
        self._channel = channel
        self._routes: WeakValueDictionary[tuple[tuple[BookieId, ...], int], Routes] = WeakValueDictionary()

    def to(self, ensemble: tuple[BookieId, ...], write_quorum: int) -> Routes:
        """The ways to an ensemble."""
        routes = self._routes.get((ensemble, write_quorum))
        if routes is None:
            routes = Routes(ensemble, [self._channel(bookie_id) for bookie_id in ensemble], write_quorum)
            self._routes[(ensemble, write_quorum)] = routes
        return routes
