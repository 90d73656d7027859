"""What each operation looks like in the XML that Hadoop prints: its elements, in order. Pure.

    FIELDS[opcode]   the elements behind TXID; each writes a value of the operation as nodes and reads it back

A node is a tag with text, or with nodes below it; `xml` turns nodes into characters and characters into elements.
Source: journalmgr/FORMATS.md 5.9, and the output of Hadoop 2.7.7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bookkeeper.errors import InvalidArgument, PortableError
from journalmgr.edits.fields import (
    NO_RPC,
    Acl,
    AclEntry,
    Block,
    CacheDirective,
    CachePool,
    DelegationKey,
    Permission,
    RpcIds,
    TokenIdentifier,
    XAttr,
    XAttrs,
)
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import ALWAYS, ERASURE_CODING_SINCE, SNAPSHOT_MTIME_SINCE

Node = tuple[str, "str | list[Node]"]

_PERMISSIONS = ("---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx")
_SCOPES = ("ACCESS", "DEFAULT")
_TYPES = ("USER", "GROUP", "MASK", "OTHER")
_NAMESPACES = ("USER", "TRUSTED", "SECURITY", "SYSTEM", "RAW")
_RENAME_OPTIONS = ("NONE", "OVERWRITE", "TO_TRASH")
_TOKEN_KIND = "HDFS_DELEGATION_TOKEN"
_MODE_BITS = 0o1777
_UUID = re.compile(r"([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{12})\Z")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}\Z")


class InvalidElement(PortableError):
    """An element that is not what it should be; line: where it begins."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


class Element:
    """One element that was read. Whoever takes its children out says so: `check_all_taken` finds the others."""

    __slots__ = ("children", "line", "tag", "taken", "text")

    def __init__(self, tag: str, line: int) -> None:
        self.tag = tag
        self.line = line
        self.text = ""
        self.children: list[Element] = []
        self.taken: set[str] = set()

    def all(self, tag: str) -> list[Element]:
        """Its children of that tag."""
        self.taken.add(tag)
        return [child for child in self.children if child.tag == tag]

    def maybe(self, tag: str) -> Element | None:
        """Its child of that tag, if it has one."""
        found = self.all(tag)
        if len(found) > 1:
            raise InvalidElement(found[1].line, f"a second {tag} in {self.tag}")
        return found[0] if found else None

    def one(self, tag: str) -> Element:
        """Its child of that tag."""
        found = self.maybe(tag)
        if found is None:
            raise InvalidElement(self.line, f"{self.tag} has no {tag}")
        return found

    def check_all_taken(self) -> None:
        """Raise InvalidElement for a child that nobody asked for."""
        for child in self.children:
            if child.tag not in self.taken:
                raise InvalidElement(child.line, f"{child.tag} is unknown in {self.tag}")

    def integer(self, bits: int = 64) -> int:
        """Its text as a signed number."""
        text = self.text.strip()
        if not _NUMBER.match(text) or not -(1 << bits - 1) <= (value := int(text)) < 1 << bits - 1:
            raise InvalidElement(self.line, f"{self.tag} is {text[:40]!r}, no number of {bits} bits")
        return value

    def choice(self, names: Sequence[str]) -> int:
        """Its text as the position of a name."""
        text = self.text.strip()
        if text not in names:
            raise InvalidElement(self.line, f"{self.tag} is {text[:40]!r}, not one of {', '.join(names)}")
        return names.index(text)

    def boolean(self) -> bool:
        """Its text as true or false."""
        return self.choice(("false", "true")) == 1

    def hexadecimal(self, prefix: str = "") -> bytes:
        """Its text as bytes."""
        text = self.text.strip()
        try:
            if text.startswith(prefix):
                return bytes.fromhex(text.removeprefix(prefix))
        except ValueError:
            pass
        raise InvalidElement(self.line, f"{self.tag} is {text[:40]!r}, not {prefix}... in hexadecimal digits")


class XmlField(NamedTuple):
    """Elements of one value. name: of the operation's attribute; "" for what only the XML has.

    since: the first layout whose records have it, where Hadoop prints it from there on only.
    """

    name: str
    write: Callable[[Any], list[Node]]
    read: Callable[[Element], Any]
    since: int = ALWAYS


def _text(tag: str, name: str) -> XmlField:
    return XmlField(name, lambda value: [(tag, value)], lambda data: data.one(tag).text)


def _int(tag: str, name: str, bits: int = 64, since: int = ALWAYS) -> XmlField:
    return XmlField(name, lambda value: [(tag, str(value))], lambda data: data.one(tag).integer(bits), since)


def _byte(tag: str, name: str, since: int = ALWAYS) -> XmlField:
    # Bytes are signed in Java.
    return XmlField(
        name,
        lambda value: [(tag, str(value - 256 if value > 127 else value))],
        lambda data: data.one(tag).integer(8) & 0xFF,
        since,
    )


def _bool(tag: str, name: str) -> XmlField:
    return XmlField(name, lambda value: [(tag, "true" if value else "false")], lambda data: data.one(tag).boolean())


def _constant(tag: str, text: str) -> XmlField:
    return XmlField("", lambda _: [(tag, text)], lambda data: data.maybe(tag))


LENGTH = _constant("LENGTH", "0")


def _mode(value: int) -> str:
    return str(value & _MODE_BITS)  # Hadoop knows no other bits


def _write_rpc(value: RpcIds) -> list[Node]:
    digits = value.client_id.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return [("RPC_CLIENTID", "-".join(parts) if digits else ""), ("RPC_CALLID", str(value.call_id))]


def _read_rpc(data: Element) -> RpcIds:
    client, call = data.maybe("RPC_CLIENTID"), data.maybe("RPC_CALLID")
    text = "" if client is None else client.text.strip()
    if client is not None and text and not _UUID.match(text):
        raise InvalidElement(client.line, f"RPC_CLIENTID is {text[:40]!r}, no UUID")
    client_id = bytes.fromhex(text.replace("-", ""))
    return RpcIds(client_id, NO_RPC.call_id if call is None else call.integer(32))


def _write_block(value: Block) -> Node:
    numbers = (("BLOCK_ID", value.block_id), ("NUM_BYTES", value.size), ("GENSTAMP", value.generation_stamp))
    return ("BLOCK", [(tag, str(number)) for tag, number in numbers])


def _read_block(block: Element) -> Block:
    value = Block(block.one("BLOCK_ID").integer(), block.one("NUM_BYTES").integer(), block.one("GENSTAMP").integer())
    block.check_all_taken()
    return value


def _write_permission(value: Permission) -> list[Node]:
    inner: list[Node] = [("USERNAME", value.user), ("GROUPNAME", value.group), ("MODE", _mode(value.mode))]
    return [("PERMISSION_STATUS", inner)]


def _read_permission(data: Element) -> Permission:
    status = data.one("PERMISSION_STATUS")
    value = Permission(status.one("USERNAME").text, status.one("GROUPNAME").text, status.one("MODE").integer(16))
    status.check_all_taken()
    return value


def _write_entries(value: Sequence[AclEntry]) -> list[Node]:
    nodes: list[Node] = []
    for entry in value:
        inner: list[Node] = [("SCOPE", _SCOPES[entry.scope]), ("TYPE", _TYPES[entry.type])]
        if entry.name:
            inner.append(("NAME", entry.name))
        nodes.append(("ENTRY", [*inner, ("PERM", _PERMISSIONS[entry.permission])]))
    return nodes


def _read_entries(data: Element) -> tuple[AclEntry, ...]:
    return tuple(map(_read_entry, data.all("ENTRY")))


def _read_entry(entry: Element) -> AclEntry:
    name = entry.maybe("NAME")
    scope, kind = entry.one("SCOPE").choice(_SCOPES), entry.one("TYPE").choice(_TYPES)
    permission = entry.one("PERM").choice(_PERMISSIONS)
    entry.check_all_taken()
    return AclEntry(kind, scope, permission, None if name is None else name.text)


def _write_attributes(value: XAttrs) -> list[Node]:
    nodes: list[Node] = []
    for attribute in value.attributes:
        inner: list[Node] = [("NAMESPACE", _NAMESPACES[attribute.namespace]), ("NAME", attribute.name)]
        if attribute.value is not None:
            inner.append(("VALUE", f"0x{attribute.value.hex()}"))
        nodes.append(("XATTR", inner))
    return nodes


def _read_attributes(data: Element) -> XAttrs:
    return XAttrs(None, tuple(map(_read_attribute, data.all("XATTR"))))


def _read_attribute(attribute: Element) -> XAttr:
    value = attribute.maybe("VALUE")
    namespace, name = attribute.one("NAMESPACE").choice(_NAMESPACES), attribute.one("NAME").text
    attribute.check_all_taken()
    return XAttr(namespace, name, None if value is None else value.hexadecimal("0x"))


def _write_options(value: Sequence[int]) -> list[Node]:
    unnamed = [option for option in value if not 0 <= option < len(_RENAME_OPTIONS)]
    if unnamed:
        raise InvalidArgument(
            f"a rename with option {unnamed[0]}, which has no name in XML; named are 0 to {len(_RENAME_OPTIONS) - 1}: "
            "write JSON"
        )
    return [("OPTIONS", "|".join(_RENAME_OPTIONS[option] for option in value))]


def _read_options(data: Element) -> tuple[int, ...]:
    options = data.one("OPTIONS")
    names = options.text.strip()
    if not names:
        return ()
    if any(name not in _RENAME_OPTIONS for name in names.split("|")):
        raise InvalidElement(options.line, f"OPTIONS is {names[:40]!r}; known are {', '.join(_RENAME_OPTIONS)}")
    return tuple(map(_RENAME_OPTIONS.index, names.split("|")))


def _write_sources(value: Sequence[str]) -> list[Node]:
    return [("SOURCES", [(f"SOURCE{number}", source) for number, source in enumerate(value, 1)])]


def _read_sources(data: Element) -> tuple[str, ...]:
    sources = data.one("SOURCES")
    for number, source in enumerate(sources.children, 1):
        if source.tag != f"SOURCE{number}":
            raise InvalidElement(source.line, f"{source.tag} where SOURCE{number} should be")
    return tuple(source.text for source in sources.children)


def _write_token(value: TokenIdentifier) -> list[Node]:
    inner: list[Node] = [
        ("KIND", _TOKEN_KIND),
        ("SEQUENCE_NUMBER", str(value.sequence_number)),
        ("OWNER", value.owner),
        ("RENEWER", value.renewer),
        ("REALUSER", value.real_user),
        ("ISSUE_DATE", str(value.issue_date)),
        ("MAX_DATE", str(value.max_date)),
        ("MASTER_KEY_ID", str(value.master_key_id)),
    ]
    return [("DELEGATION_TOKEN_IDENTIFIER", inner)]


def _read_token(data: Element) -> TokenIdentifier:
    token = data.one("DELEGATION_TOKEN_IDENTIFIER")
    token.one("KIND").choice((_TOKEN_KIND,))
    value = TokenIdentifier(
        version=0,
        owner=token.one("OWNER").text,
        renewer=token.one("RENEWER").text,
        real_user=token.one("REALUSER").text,
        issue_date=token.one("ISSUE_DATE").integer(),
        max_date=token.one("MAX_DATE").integer(),
        sequence_number=token.one("SEQUENCE_NUMBER").integer(32),
        master_key_id=token.one("MASTER_KEY_ID").integer(32),
    )
    token.check_all_taken()
    return value


def _write_key(value: DelegationKey) -> list[Node]:
    inner: list[Node] = [("KEY_ID", str(value.key_id)), ("EXPIRY_DATE", str(value.expiry_date))]
    if value.key is not None:
        inner.append(("KEY", value.key.hex()))
    return [("DELEGATION_KEY", inner)]


def _read_key(data: Element) -> DelegationKey:
    key = data.one("DELEGATION_KEY")
    secret = key.maybe("KEY")
    value = DelegationKey(
        key.one("KEY_ID").integer(32),
        key.one("EXPIRY_DATE").integer(),
        None if secret is None else secret.hexadecimal(),
    )
    key.check_all_taken()
    return value


def _given(*pairs: tuple[str, Any]) -> list[Node]:
    return [(tag, str(value)) for tag, value in pairs if value is not None]


def _text_if_given(data: Element, tag: str) -> str | None:
    found = data.maybe(tag)
    return None if found is None else found.text


def _integer_if_given(data: Element, tag: str, bits: int = 64) -> int | None:
    found = data.maybe(tag)
    return None if found is None else found.integer(bits)


def _write_directive(value: CacheDirective) -> list[Node]:
    return _given(
        ("ID", value.id),
        ("PATH", value.path),
        ("REPLICATION", value.replication),
        ("POOL", value.pool),
        ("EXPIRATION", value.expiry_ms),
    )


def _read_directive(data: Element) -> CacheDirective:
    return CacheDirective(
        id=data.one("ID").integer(),
        path=_text_if_given(data, "PATH"),
        replication=_integer_if_given(data, "REPLICATION", 16),
        pool=_text_if_given(data, "POOL"),
        expiry_ms=_integer_if_given(data, "EXPIRATION"),
    )


def _write_pool(value: CachePool) -> list[Node]:
    return _given(
        ("POOLNAME", value.name),
        ("OWNERNAME", value.owner),
        ("GROUPNAME", value.group),
        ("MODE", None if value.mode is None else _mode(value.mode)),
        ("LIMIT", value.limit),
        ("MAXRELATIVEEXPIRY", value.max_relative_expiry_ms),
    )


def _read_pool(data: Element) -> CachePool:
    return CachePool(
        name=data.one("POOLNAME").text,
        owner=_text_if_given(data, "OWNERNAME"),
        group=_text_if_given(data, "GROUPNAME"),
        mode=_integer_if_given(data, "MODE", 16),
        limit=_integer_if_given(data, "LIMIT"),
        max_relative_expiry_ms=_integer_if_given(data, "MAXRELATIVEEXPIRY"),
    )


def _write_acl(value: Acl) -> list[Node]:
    return [("SRC", value.src), *_write_entries(value.entries)]


def _read_acl(data: Element) -> Acl:
    return Acl(data.one("SRC").text, _read_entries(data))


def _write_attributes_of(value: XAttrs) -> list[Node]:
    return [("SRC", value.src or ""), *_write_attributes(value)]


def _read_attributes_of(data: Element) -> XAttrs:
    return XAttrs(data.one("SRC").text, _read_attributes(data).attributes)


def _unless_empty(tag: str, name: str) -> XmlField:
    # Empty means unchanged; Hadoop leaves the element out.
    return XmlField(name, lambda value: [(tag, value)] if value else [], lambda data: _text_if_given(data, tag) or "")


RPC = XmlField("rpc", _write_rpc, _read_rpc)
PERMISSION = XmlField("permission", _write_permission, _read_permission)
ENTRIES = XmlField("acl", _write_entries, _read_entries)
BLOCKS = XmlField(
    "blocks",
    lambda value: list(map(_write_block, value)),
    lambda data: tuple(map(_read_block, data.all("BLOCK"))),
)
TOKEN = XmlField("token", _write_token, _read_token)
EXPIRY = _int("EXPIRY_TIME", "expiry")
DIRECTIVE = XmlField("directive", _write_directive, _read_directive)
POOL = XmlField("pool", _write_pool, _read_pool)
ATTRIBUTES_OF = XmlField("xattrs", _write_attributes_of, _read_attributes_of)
PATH, SRC, DST = _text("PATH", "path"), _text("SRC", "src"), _text("DST", "dst")
REPLICATION = _int("REPLICATION", "replication", 16)
MTIME, ATIME, TIMESTAMP = _int("MTIME", "mtime"), _int("ATIME", "atime"), _int("TIMESTAMP", "timestamp")
SNAPSHOT_ROOT, SNAPSHOT_NAME = _text("SNAPSHOTROOT", "root"), _text("SNAPSHOTNAME", "name")
SNAPSHOT_MTIME = _int("MTIME", "mtime", since=SNAPSHOT_MTIME_SINCE)
INODE_ID = _int("INODEID", "inode_id")
NS_QUOTA, DS_QUOTA = _int("NSQUOTA", "namespace_quota"), _int("DSQUOTA", "space_quota")
FILE = (LENGTH, INODE_ID, PATH, REPLICATION, MTIME, ATIME, _int("BLOCKSIZE", "block_size"))

FIELDS: dict[OpCode, tuple[XmlField, ...]] = {
    OpCode.ADD: (
        *FILE,
        _text("CLIENT_NAME", "client_name"),
        _text("CLIENT_MACHINE", "client_machine"),
        _bool("OVERWRITE", "overwrite"),
        BLOCKS,
        PERMISSION,
        ENTRIES,
        _byte("ERASURE_CODING_POLICY_ID", "erasure_coding_policy_id", ERASURE_CODING_SINCE),
        RPC,
    ),
    OpCode.CLOSE: (
        *FILE,
        _constant("CLIENT_NAME", ""),
        _constant("CLIENT_MACHINE", ""),
        _constant("OVERWRITE", "false"),
        BLOCKS,
        PERMISSION,
    ),
    OpCode.MKDIR: (
        LENGTH,
        INODE_ID,
        PATH,
        _int("TIMESTAMP", "mtime"),
        PERMISSION,
        ENTRIES,
        XmlField("xattrs", _write_attributes, _read_attributes),
    ),
    OpCode.DELETE: (LENGTH, PATH, TIMESTAMP, RPC),
    OpCode.RENAME_OLD: (LENGTH, SRC, DST, TIMESTAMP, RPC),
    OpCode.RENAME: (LENGTH, SRC, DST, TIMESTAMP, XmlField("options", _write_options, _read_options), RPC),
    OpCode.SET_REPLICATION: (PATH, REPLICATION),
    OpCode.SET_PERMISSIONS: (
        SRC,
        XmlField("mode", lambda value: [("MODE", _mode(value))], lambda data: data.one("MODE").integer(16)),
    ),
    OpCode.SET_OWNER: (SRC, _unless_empty("USERNAME", "user"), _unless_empty("GROUPNAME", "group")),
    OpCode.TIMES: (LENGTH, PATH, MTIME, ATIME),
    OpCode.ADD_BLOCK: (PATH, BLOCKS, RPC),
    OpCode.UPDATE_BLOCKS: (PATH, BLOCKS, RPC),
    OpCode.ALLOCATE_BLOCK_ID: (_int("BLOCK_ID", "block_id"),),
    OpCode.SET_GENSTAMP_V1: (_int("GENSTAMP", "generation_stamp"),),
    OpCode.SET_GENSTAMP_V2: (_int("GENSTAMPV2", "generation_stamp"),),
    OpCode.SYMLINK: (LENGTH, INODE_ID, PATH, _text("VALUE", "target"), MTIME, ATIME, PERMISSION, RPC),
    OpCode.APPEND: (
        PATH,
        _text("CLIENT_NAME", "client_name"),
        _text("CLIENT_MACHINE", "client_machine"),
        _bool("NEWBLOCK", "new_block"),
        RPC,
    ),
    OpCode.TRUNCATE: (
        SRC,
        _text("CLIENTNAME", "client_name"),
        _text("CLIENTMACHINE", "client_machine"),
        _int("NEWLENGTH", "new_length"),
        TIMESTAMP,
        BLOCKS,
    ),
    OpCode.CONCAT_DELETE: (
        LENGTH,
        _text("TRG", "target"),
        TIMESTAMP,
        XmlField("sources", _write_sources, _read_sources),
        RPC,
    ),
    OpCode.SET_QUOTA: (SRC, NS_QUOTA, DS_QUOTA),
    OpCode.SET_QUOTA_BY_STORAGETYPE: (SRC, _int("STORAGETYPE", "storage_type", 32), DS_QUOTA),
    OpCode.SET_NS_QUOTA: (SRC, NS_QUOTA),
    OpCode.CLEAR_NS_QUOTA: (SRC,),
    OpCode.REASSIGN_LEASE: (_text("LEASEHOLDER", "holder"), PATH, _text("NEWHOLDER", "new_holder")),
    OpCode.GET_DELEGATION_TOKEN: (TOKEN, EXPIRY),
    OpCode.RENEW_DELEGATION_TOKEN: (TOKEN, EXPIRY),
    OpCode.CANCEL_DELEGATION_TOKEN: (TOKEN,),
    OpCode.UPDATE_MASTER_KEY: (XmlField("key", _write_key, _read_key),),
    OpCode.CREATE_SNAPSHOT: (SNAPSHOT_ROOT, SNAPSHOT_NAME, SNAPSHOT_MTIME, RPC),
    OpCode.DELETE_SNAPSHOT: (SNAPSHOT_ROOT, SNAPSHOT_NAME, SNAPSHOT_MTIME, RPC),
    OpCode.RENAME_SNAPSHOT: (
        SNAPSHOT_ROOT,
        _text("SNAPSHOTOLDNAME", "old_name"),
        _text("SNAPSHOTNEWNAME", "new_name"),
        SNAPSHOT_MTIME,
        RPC,
    ),
    OpCode.ALLOW_SNAPSHOT: (SNAPSHOT_ROOT,),
    OpCode.DISALLOW_SNAPSHOT: (SNAPSHOT_ROOT,),
    OpCode.ADD_CACHE_DIRECTIVE: (DIRECTIVE, RPC),
    OpCode.MODIFY_CACHE_DIRECTIVE: (DIRECTIVE, RPC),
    OpCode.REMOVE_CACHE_DIRECTIVE: (_int("ID", "id"), RPC),
    OpCode.ADD_CACHE_POOL: (POOL, RPC),
    OpCode.MODIFY_CACHE_POOL: (POOL, RPC),
    OpCode.REMOVE_CACHE_POOL: (_text("POOLNAME", "name"), RPC),
    OpCode.SET_ACL: (XmlField("acl", _write_acl, _read_acl),),
    OpCode.SET_XATTR: (ATTRIBUTES_OF, RPC),
    OpCode.REMOVE_XATTR: (ATTRIBUTES_OF, RPC),
    OpCode.ROLLING_UPGRADE_START: (_int("STARTTIME", "time"),),
    OpCode.ROLLING_UPGRADE_FINALIZE: (_int("FINALIZETIME", "time"),),
    OpCode.SET_STORAGE_POLICY: (PATH, _byte("POLICYID", "policy_id")),
    OpCode.START_LOG_SEGMENT: (),
    OpCode.END_LOG_SEGMENT: (),
}
