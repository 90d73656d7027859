"""Transactions about what is beside the tree: counters, upgrades, tokens, cache pools. Pure; a part of `apply`.

Kept for whoever reads them from an image, and so that the journal of a NameNode that has them can be replayed; nothing
here caches a block or checks a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from journalmgr.edits import ops as o
from journalmgr.namenode.errors import ReplayError
from journalmgr.namenode.namespace.tree import Namespace

# --- counters ---------------------------------------------------------------------------------------------------------


def _allocate_block_id(namespace: Namespace, op: o.AllocateBlockId) -> None:
    namespace.last_block_id = op.block_id


def _set_genstamp_v1(namespace: Namespace, op: o.SetGenstampV1) -> None:
    namespace.generation_stamp_v1 = op.generation_stamp


def _set_genstamp_v2(namespace: Namespace, op: o.SetGenstampV2) -> None:
    namespace.generation_stamp_v2 = op.generation_stamp


def _segment_mark(namespace: Namespace, op: o.StartLogSegment | o.EndLogSegment) -> None:
    """It takes a txid and changes nothing else."""


def _rolling_upgrade_start(namespace: Namespace, op: o.RollingUpgradeStart) -> None:
    if namespace.rolling_upgrade_start is not None:
        raise ReplayError(op, f"one began at {namespace.rolling_upgrade_start} and is not over")
    namespace.rolling_upgrade_start = op.time


def _rolling_upgrade_finalize(namespace: Namespace, op: o.RollingUpgradeFinalize) -> None:
    if namespace.rolling_upgrade_start is None:
        raise ReplayError(op, "no rolling upgrade was begun")
    namespace.rolling_upgrade_start = None


# --- tokens and caches: kept for whoever reads them -------------------------------------------------------------------


def _get_token(namespace: Namespace, op: o.GetDelegationToken) -> None:
    if op.token in namespace.tokens:
        raise ReplayError(op, f"the token of sequence number {op.token.sequence_number} exists already")
    namespace.tokens[op.token] = op.expiry
    namespace.token_sequence_number = max(namespace.token_sequence_number, op.token.sequence_number)


def _renew_token(namespace: Namespace, op: o.RenewDelegationToken) -> None:
    _known_token(namespace, op)
    namespace.tokens[op.token] = op.expiry


def _cancel_token(namespace: Namespace, op: o.CancelDelegationToken) -> None:
    _known_token(namespace, op)
    del namespace.tokens[op.token]


def _known_token(namespace: Namespace, op: o.RenewDelegationToken | o.CancelDelegationToken) -> None:
    if op.token not in namespace.tokens:
        raise ReplayError(op, f"there is no token of sequence number {op.token.sequence_number} of {op.token.owner!r}")


def _master_key(namespace: Namespace, op: o.UpdateMasterKey) -> None:
    namespace.delegation_keys[op.key.key_id] = op.key


def _add_directive(namespace: Namespace, op: o.AddCacheDirective) -> None:
    directive = op.directive
    if directive.id in namespace.cache_directives:
        raise ReplayError(op, f"there is a cache directive {directive.id} already")
    _known_pool(namespace, op, directive.pool)
    namespace.cache_directives[directive.id] = directive
    namespace.last_cache_directive_id = max(namespace.last_cache_directive_id, directive.id)


def _modify_directive(namespace: Namespace, op: o.ModifyCacheDirective) -> None:
    was = namespace.cache_directives.get(op.directive.id)
    if was is None:
        raise ReplayError(op, f"there is no cache directive {op.directive.id}")
    if op.directive.pool is not None:
        _known_pool(namespace, op, op.directive.pool)
    namespace.cache_directives[was.id] = type(was)(*_merged(was, op.directive))


def _remove_directive(namespace: Namespace, op: o.RemoveCacheDirective) -> None:
    if op.id not in namespace.cache_directives:
        raise ReplayError(op, f"there is no cache directive {op.id}")
    del namespace.cache_directives[op.id]


def _add_pool(namespace: Namespace, op: o.AddCachePool) -> None:
    if op.pool.name in namespace.cache_pools:
        raise ReplayError(op, f"there is a cache pool {op.pool.name!r} already")
    namespace.cache_pools[op.pool.name] = op.pool


def _modify_pool(namespace: Namespace, op: o.ModifyCachePool) -> None:
    _known_pool(namespace, op, op.pool.name)
    was = namespace.cache_pools[op.pool.name]
    namespace.cache_pools[was.name] = type(was)(*_merged(was, op.pool))


def _remove_pool(namespace: Namespace, op: o.RemoveCachePool) -> None:
    _known_pool(namespace, op, op.name)
    del namespace.cache_pools[op.name]
    kept = {number: item for number, item in namespace.cache_directives.items() if item.pool != op.name}
    namespace.cache_directives = kept


def _known_pool(namespace: Namespace, op: o.Op, name: str | None) -> None:
    if name not in namespace.cache_pools:
        raise ReplayError(op, f"there is no cache pool {name!r}")


def _merged(was: Iterable[Any], change: Iterable[Any]) -> list[Any]:
    return [old if new is None else new for old, new in zip(was, change, strict=True)]


CHANGES: dict[type[o.Op], Callable[[Namespace, Any], None]] = {
    o.AllocateBlockId: _allocate_block_id,
    o.SetGenstampV1: _set_genstamp_v1,
    o.SetGenstampV2: _set_genstamp_v2,
    o.StartLogSegment: _segment_mark,
    o.EndLogSegment: _segment_mark,
    o.RollingUpgradeStart: _rolling_upgrade_start,
    o.RollingUpgradeFinalize: _rolling_upgrade_finalize,
    o.GetDelegationToken: _get_token,
    o.RenewDelegationToken: _renew_token,
    o.CancelDelegationToken: _cancel_token,
    o.UpdateMasterKey: _master_key,
    o.AddCacheDirective: _add_directive,
    o.ModifyCacheDirective: _modify_directive,
    o.RemoveCacheDirective: _remove_directive,
    o.AddCachePool: _add_pool,
    o.ModifyCachePool: _modify_pool,
    o.RemoveCachePool: _remove_pool,
}
"""What each operation does; raises ReplayError, and nothing changed then."""
