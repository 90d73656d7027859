"""Names for a new namespace, of the form that Hadoop gives them.

cluster id      CID-<random UUID>
namespace id    1 .. 2^31-1
block pool id   BP-<0 .. 2^31-2>-<address of this host>-<milliseconds since 1970>
"""

from __future__ import annotations

import random
import uuid

from journalmgr.model import NamespaceInfo

_INT32_MAX = 2**31 - 1


def new_namespace(
    rng: random.Random,
    *,
    address: str,
    now_ms: int,
    cluster_id: str | None = None,
    namespace_id: int | None = None,
    block_pool_id: str | None = None,
) -> NamespaceInfo:
    """A namespace with these names; those that are None are made up."""
    return NamespaceInfo(
        namespace_id=rng.randint(1, _INT32_MAX) if namespace_id is None else namespace_id,
        cluster_id=f"CID-{uuid.UUID(int=rng.getrandbits(128), version=4)}" if cluster_id is None else cluster_id,
        block_pool_id=f"BP-{rng.randrange(_INT32_MAX)}-{address}-{now_ms}" if block_pool_id is None else block_pool_id,
    )
