"""Ledger id <-> path below the ledgers root, for each layout. Pure. Source: bookkeeper/wire/FORMATS.md 4.1, 4.4.

flat                 /L0000012345                         at least 10 digits
legacy hierarchical  /00/0001/L2345                       10 digits, split 2-4-4
long hierarchical    /000/0000/0000/0001/L2345            19 digits, split 3-4-4-4-4
hierarchical         10 digits below 2147483647, 19 from there on
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bookkeeper.errors import InvalidMetadata
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.model import LedgerId

SHORT_ID_LIMIT = 2147483647
"""Ids from here on have the long path. Note: 2**31 - 1, not 2**31."""

LEDGER_ID_MAX = 2**63 - 1

NO_CLUSTER_REMEDY = (
    "make one with 'bookkeeper shell initnewcluster' or 'metaformat', or correct the root; if there was one, restore a "
    "copy of ZooKeeper's data instead"
)
"""Ends the message of a NotInitialised."""

SPECIAL_NAMES = frozenset({"available", "cookies", "LAYOUT", "INSTANCEID", "underreplication", "idgen", "idgen-long"})
"""Children of the root that are never ledgers; neither is anything that starts with `ID-`, or disableHealthCheck."""

DISABLE_HEALTH_CHECK = "disableHealthCheck"
SEQUENTIAL_PREFIX = "ID-"

_FLAT_NAME = re.compile(r"L(\d{10,19})", re.ASCII)
_SHORT_PARENT = re.compile(r"\d{2}", re.ASCII)
_LONG_PARENT = re.compile(r"\d{3}", re.ASCII)
_MIDDLE = re.compile(r"\d{4}", re.ASCII)
_LEAF = re.compile(r"L(\d{4})", re.ASCII)


def flat_path(ledger_id: int) -> str:
    """`/L0000012345`."""
    return f"/L{ledger_id:010d}"


def short_path(ledger_id: int) -> str:
    """`/00/0001/L2345`; for ids below 10**10."""
    digits = f"{ledger_id:010d}"
    return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def long_path(ledger_id: int) -> str:
    """`/000/0000/0000/0001/L2345`."""
    digits = f"{ledger_id:019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def hierarchical_path(ledger_id: int) -> str:
    """Short below SHORT_ID_LIMIT, long from there on."""
    return short_path(ledger_id) if ledger_id < SHORT_ID_LIMIT else long_path(ledger_id)


_PATH_OF: dict[LayoutKind, Callable[[int], str]] = {
    LayoutKind.FLAT: flat_path,
    LayoutKind.LEGACY_HIERARCHICAL: short_path,
    LayoutKind.LONG_HIERARCHICAL: long_path,
    LayoutKind.HIERARCHICAL: hierarchical_path,
}

LEDGER_ID_LIMITS: dict[LayoutKind, int] = {
    LayoutKind.FLAT: LEDGER_ID_MAX,
    LayoutKind.LEGACY_HIERARCHICAL: 10**10 - 1,
    LayoutKind.LONG_HIERARCHICAL: LEDGER_ID_MAX,
    LayoutKind.HIERARCHICAL: LEDGER_ID_MAX,
}
"""Greatest ledger id that each layout has a path for."""


def ledger_path(kind: LayoutKind, ledger_id: int) -> str:
    """The path below the root. Raises InvalidMetadata for an id the layout has no place for."""
    if not 0 <= ledger_id <= LEDGER_ID_LIMITS[kind]:
        raise InvalidMetadata(
            f"ledger id {ledger_id} is outside 0..{LEDGER_ID_LIMITS[kind]}, the range of the {kind.word} layout"
        )
    return _PATH_OF[kind](ledger_id)


def ledger_id_of(kind: LayoutKind, path: str) -> LedgerId:
    """The inverse of `ledger_path`. Raises InvalidMetadata when the path is not one that `ledger_path` makes."""
    ledger_id = possible_ledger_id(path)
    if ledger_id is not None and ledger_id <= LEDGER_ID_LIMITS[kind] and _PATH_OF[kind](ledger_id) == path:
        return ledger_id
    raise InvalidMetadata(f"{path!r} is not a ledger path of the {kind.word} layout")


def possible_ledger_id(path: str) -> LedgerId | None:
    """Return the ledger id that the digits of a path below the root spell, in any layout or place; or None."""
    digits = "".join(part.removeprefix("L") for part in path.split("/")[1:])
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and int(digits) <= LEDGER_ID_MAX):
        return None
    return LedgerId(int(digits))


def flat_ledger_name(name: str) -> bool:
    """Whether a child of the root is a ledger of the flat layout."""
    return _FLAT_NAME.fullmatch(name) is not None


def is_parent_name(kind: LayoutKind, name: str) -> bool:
    """Whether a child of the root is a ledger, or a directory of ledgers, of this layout."""
    if kind is LayoutKind.FLAT:
        return flat_ledger_name(name)
    short = kind is not LayoutKind.LONG_HIERARCHICAL and _SHORT_PARENT.fullmatch(name) is not None
    long = kind is not LayoutKind.LEGACY_HIERARCHICAL and _LONG_PARENT.fullmatch(name) is not None
    return short or long


def is_any_parent_name(name: str) -> bool:
    """Whether a child of the root belongs to the ledgers of any layout."""
    return any(is_parent_name(kind, name) for kind in LayoutKind)


def is_special_name(name: str) -> bool:
    """Whether a child of the root is one of the cluster's own."""
    return name in SPECIAL_NAMES or name == DISABLE_HEALTH_CHECK or name.startswith(SEQUENTIAL_PREFIX)


def depth_below(parent_name: str) -> int:
    """Levels from a child of the root down to its ledgers: 0 flat, 2 short, 4 long."""
    if parent_name.startswith("L"):
        return 0
    return 2 if len(parent_name) == 2 else 4


def is_directory_name(name: str) -> bool:
    """Whether a name is that of a directory between the first level and the leaves."""
    return _MIDDLE.fullmatch(name) is not None


def is_leaf_name(name: str) -> bool:
    """Whether a name is that of a ledger in a hierarchical layout."""
    return _LEAF.fullmatch(name) is not None
