"""Extended attributes that clients may set: their names, and how large and how many they may be. Pure.

Source: limits are Hadoop 2.7's defaults (dfs.namenode.fs-limits.max-xattr-size, max-xattrs-per-inode).
"""

from __future__ import annotations

from journalmgr.edits.fields import XAttr
from journalmgr.namenode.errors import ContentTooLarge, XAttrRefused
from journalmgr.namenode.namespace import checks
from journalmgr.namenode.namespace.tree import (
    CONTENT_BYTES_MAX,
    CONTENT_XATTR,
    USER_XATTR,
    XATTR_BYTES_MAX,
    XATTRS_MAX,
    Inode,
)

NAMESPACES = ("user", "trusted", "security", "system", "raw")


def content(path: str, content: bytes) -> XAttr:
    """The attribute that holds what a file does. Raises ContentTooLarge."""
    if len(content) > CONTENT_BYTES_MAX:
        raise ContentTooLarge(
            f"{path}: {len(content)} bytes of content; a file carries at most {CONTENT_BYTES_MAX} here, in the "
            f"attribute {NAMESPACES[USER_XATTR]}.{CONTENT_XATTR}",
            limit=CONTENT_BYTES_MAX,
        )
    return XAttr(USER_XATTR, CONTENT_XATTR, content)


def named(path: str, name: str, value: bytes | None) -> XAttr:
    """The attribute of a name such as user.origin. Raises XAttrRefused."""
    prefix, _, rest = name.partition(".")
    if prefix.lower() not in NAMESPACES or not rest:
        raise XAttrRefused(
            f"{path}: {name!r} is no name of an attribute: one begins with {', '.join(NAMESPACES)} and ."
        )
    if prefix.lower() == "system":
        raise XAttrRefused(f"{path}: {name!r}: those of the system are its own")
    checks.check_text("the attribute", rest)
    size = len(rest.encode()) + len(value or b"")
    if size > XATTR_BYTES_MAX:
        raise XAttrRefused(f"{path}: {name!r} has {size} bytes with its value; at most {XATTR_BYTES_MAX} are possible")
    return XAttr(NAMESPACES.index(prefix.lower()), rest, value)


def has(inode: Inode, attribute: XAttr) -> bool:
    """Whether there is one of this name."""
    return any((item.namespace, item.name) == (attribute.namespace, attribute.name) for item in inode.xattrs)


def check_count(inode: Inode, path: str, attribute: XAttr) -> None:
    """Raise XAttrRefused if it is one too many."""
    if len(inode.xattrs) >= XATTRS_MAX and not has(inode, attribute):
        raise XAttrRefused(f"{path} has {len(inode.xattrs)} attributes, and at most {XATTRS_MAX}")
