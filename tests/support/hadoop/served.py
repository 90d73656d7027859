"""Our inodes as a NameNode serves them: what HadoopTool's `tree` tells of each."""

from __future__ import annotations

from typing import Any

from journalmgr.edits.fields import AclEntry
from journalmgr.namenode.namespace import tree as inodes


def acl_text(entry: AclEntry) -> str:
    """As Hadoop prints it."""
    bits = "".join(letter if entry.permission & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
    kind = ("user", "group", "mask", "other")[entry.type]
    return f"{'default:' if entry.scope else ''}{kind}:{entry.name or ''}:{bits}"


SHOWN = {
    *("kind", "owner", "group", "mode", "mtime", "atime", "length"),
    *("blocks", "replication", "block_size", "target", "xattrs", "acl"),
}


def shown(inode: inodes.Inode) -> dict[str, Any]:
    """As HadoopTool's `tree` tells it."""
    told: dict[str, Any] = {"owner": inode.permission.user, "group": inode.permission.group}
    told["mode"] = inode.permission.mode
    if isinstance(inode, inodes.Symlink):
        return told | {"kind": "link", "target": inode.target}
    told["mtime"] = inode.mtime
    told["acl"] = [acl_text(entry) for entry in inode.acl]
    told["xattrs"] = {f"user.{item.name}": (item.value or b"").hex() for item in inode.xattrs}
    if isinstance(inode, inodes.Directory):
        return told | {"kind": "directory"}
    assert isinstance(inode, inodes.File)
    return told | {
        "kind": "file",
        "length": inode.length,
        "blocks": len(inode.blocks),
        "replication": inode.replication,
        "block_size": inode.block_size,
        "atime": inode.atime,
    }
