"""LAYOUT: which scheme of ledger paths a cluster uses. Pure. Source: bookkeeper/wire/FORMATS.md 4.2."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from bookkeeper.errors import LayoutMismatch, MetadataCorrupt, MetadataTooNew

LAYOUT_FORMAT_VERSION = 2
MANAGER_VERSION = 1
_CLASS_PREFIX = "org.apache.bookkeeper.meta."
_VERSION_DIGITS_MAX = 9


class LayoutKind(enum.Enum):
    """A scheme of ledger paths. The values are the class names that the cluster stores."""

    FLAT = _CLASS_PREFIX + "FlatLedgerManagerFactory"
    HIERARCHICAL = _CLASS_PREFIX + "HierarchicalLedgerManagerFactory"
    LEGACY_HIERARCHICAL = _CLASS_PREFIX + "LegacyHierarchicalLedgerManagerFactory"
    LONG_HIERARCHICAL = _CLASS_PREFIX + "LongHierarchicalLedgerManagerFactory"

    @property
    def word(self) -> str:
        """For people, as a metadataServiceUri has it: hierarchical, longhierarchical, flat."""
        return self.name.replace("_", "").lower()


DEFAULT_KIND = LayoutKind.HIERARCHICAL

# A format-1 layout names the type instead of the class.
_FORMAT_1_NAMES = {"flat": LayoutKind.FLAT, "hierarchical": LayoutKind.HIERARCHICAL}


@dataclass(frozen=True, slots=True)
class Layout:
    """A stored layout."""

    kind: LayoutKind
    manager_version: int = MANAGER_VERSION

    def format(self) -> bytes:
        """The bytes of the LAYOUT node."""
        return f"{LAYOUT_FORMAT_VERSION}\n{self.kind.value}:{self.manager_version}".encode("ascii")


def parse_layout(data: bytes, path: str) -> Layout:
    """Read the LAYOUT node at `path`. Raises MetadataCorrupt, MetadataTooNew, LayoutMismatch (not supported)."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise MetadataCorrupt(f"{path}: the ledger layout is not text: {error}") from error
    if len(lines) < 2:
        raise MetadataCorrupt(f"{path}: the ledger layout has {len(lines)} line(s), not 2: {data[:100]!r}")
    format_version = _number(lines[0], path)
    if format_version > LAYOUT_FORMAT_VERSION:
        raise MetadataTooNew(
            f"{path}: layout format {format_version}; this release reads up to {LAYOUT_FORMAT_VERSION}"
        )
    if format_version < 1:
        raise MetadataCorrupt(f"{path}: layout format {format_version} does not exist")
    parts = lines[1].split(":")
    if len(parts) != 2:
        raise MetadataCorrupt(f"{path}: {lines[1][:200]!r} is not <ledger manager>:<version>")
    name, manager_version = parts[0], _number(parts[1], path)
    kind = _FORMAT_1_NAMES.get(name) if format_version == 1 else _kind_of_class(name)
    if kind is None:
        known = ", ".join(kind.value for kind in LayoutKind)
        raise LayoutMismatch(f"{path}: ledger manager {name[:200]!r} is not supported; supported are {known}")
    if manager_version != MANAGER_VERSION:
        raise LayoutMismatch(f"{path}: version {manager_version} of {name} is not supported; only {MANAGER_VERSION} is")
    return Layout(kind, manager_version)


def _kind_of_class(name: str) -> LayoutKind | None:
    try:
        return LayoutKind(name)
    except ValueError:
        return None


def _number(text: str, path: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS_MAX):
        raise MetadataCorrupt(f"{path}: {text[:100]!r} is not a version number")
    return int(text)
