"""The MetadataStore over a Tree: where its parts are put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.metadata.bookies.cookies import ZnodeCookies
from bookkeeper.metadata.bookies.list import ZnodeBookies
from bookkeeper.metadata.bookies.registration import ZnodeRegistration
from bookkeeper.metadata.cluster.admin import ZnodeAdmin
from bookkeeper.metadata.cluster.history import ZnodeHistory
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.cluster.stored_layout import StoredLayout
from bookkeeper.metadata.ledgers.store import ZnodeLedgers
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings, MetadataStore, StoreState, Watch
from bookkeeper.metadata.tree import Tree
from bookkeeper.metadata.underreplication.tree import ZnodeUnderreplication

if TYPE_CHECKING:
    from random import Random

    from bookkeeper.ports import Clock


class ZnodeStore:
    """All metadata of the cluster under `root`.

    kind: the layout that the configuration asks for; None takes the stored one.
    """

    def __init__(
        self, tree: Tree, root: str, kind: LayoutKind | None, clock: Clock, random: Random, settings: MetadataSettings
    ) -> None:
        layout = StoredLayout(root, kind)
        self.tree = tree
        """The session's znodes, for programs that keep something of their own beside the cluster's."""
        self.root = root
        """The znode above all of the cluster's."""
        self._clock = clock
        self._settings = settings
        self.ledgers = ZnodeLedgers(tree, root, layout, clock, random, settings)
        self.bookies = ZnodeBookies(tree, root, clock, settings)
        self.registration = ZnodeRegistration(tree, root, clock, settings)
        self.cookies = ZnodeCookies(tree, root, clock, settings)
        self.underreplication = ZnodeUnderreplication(tree, root, clock, settings)
        self.history = ZnodeHistory(root, layout, lambda purpose: Errand(tree, clock, settings, purpose))
        self.admin = ZnodeAdmin(tree, root, layout, clock, random, settings, self.underreplication.forget)

    @property
    def state(self) -> StoreState:
        """What the connection is worth right now."""
        return self.tree.state

    @property
    def sessions_refused(self) -> int:
        """See MetadataStore."""
        return self.tree.sessions_refused

    @property
    def description(self) -> str:
        """Servers and root."""
        return f"{self.tree.description}{self.root}"

    def watch_state(self, on_change: Callable[[StoreState], object]) -> Watch:
        """See MetadataStore."""
        return self.tree.watch_state(on_change)

    def sync(self) -> Deferred[None]:
        """See MetadataStore."""
        return Deferred.fromCoroutine(Errand(self.tree, self._clock, self._settings, "sync").sync())

    def close(self) -> Deferred[None]:
        """See MetadataStore."""
        self.ledgers.close()
        return self.tree.close()


if TYPE_CHECKING:

    def _is_a_metadata_store(store: ZnodeStore) -> MetadataStore:
        return store
