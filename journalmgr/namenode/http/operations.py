"""The operations of WebHDFS: name -> method, parameters, and what is asked of the service.

Each takes a Call, asks `look` or `change`, and shapes the answer as Hadoop 2.7's does. Names, parameters and answers
are WebHDFS's; SETQUOTA and LISTSTATUS_BATCH are those of Hadoop 3.

    a change with X-Request-Id   is done once, however often it comes: creating, appending, deleting, renaming, linking,
                                 putting together, attributes
    any other change             may be repeated: it sets something to what the request says

CREATE and APPEND want their content in a second step, as of a data node: without a body and without `data=true` the
answer is 307 with the Location to send it to, which is this server again. A body in the first step is taken at once.

Differs from Apache: SETREPLICATION of a directory is refused and not answered with false; RENAME says false without
`renameoptions`, and why it cannot be with them, as there. Permissions are not checked. Operations of Hadoop that are
missing here are refused by name, each with an alternative (`UNSUPPORTED`).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from journalmgr.edits.fields import AclEntry
from journalmgr.errors import NotSupported
from journalmgr.namenode.errors import (
    ContentTooLarge,
    FileAlreadyExists,
    FileNotFound,
    ParentNotDirectory,
    RenameRefused,
    RequestRefused,
)
from journalmgr.namenode.http import acl
from journalmgr.namenode.http.answers import ENCODINGS, chosen_xattrs, decoded, encoded, summary_steps, xattr_name
from journalmgr.namenode.http.messages import (
    BYTES_TYPE,
    Answer,
    BadRequest,
    HttpRequest,
    Parameter,
    Parameters,
    boolean,
    choice,
    flags,
    json_answer,
    maybe_empty,
    octal,
    target_of,
    whole,
    words,
)
from journalmgr.namenode.namespace import checks
from journalmgr.namenode.namespace.operations import (
    REPLICATION_MAX,
    STORAGE_POLICIES,
    Caller,
    Operations,
    Requests,
    XAttrMode,
)
from journalmgr.namenode.namespace.status import Page, list_page, status_of
from journalmgr.namenode.namespace.tree import CONTENT_BYTES_MAX, CONTENT_XATTR, USER_XATTR, File, Inode, Namespace
from journalmgr.namenode.namespace.xattrs import NAMESPACES
from journalmgr.namenode.service import NameService

T = TypeVar("T")

PREFIX = "/webhdfs/v1"
USER_DEFAULT = "dr.who"
"""Who asks if `user.name` does not say, as in Hadoop without authentication."""

CONTENT_NAME = f"{NAMESPACES[USER_XATTR]}.{CONTENT_XATTR}"
SOURCES_MAX = 1024
"""Of one CONCAT: its request is one line."""

_I64_MAX = 2**63 - 1
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}[$]?")


@dataclass(frozen=True, slots=True)
class Call:
    """One request of WebHDFS. now: milliseconds. parameters: by name, read as declared."""

    service: NameService
    request: HttpRequest
    path: str
    caller: Caller
    now: int
    parameters: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    async def look(self, question: Callable[[Namespace], T]) -> T:
        """What a question finds."""
        return await self.service.look(question)

    async def change(
        self,
        request: Callable[[Requests], Operations],
        if_repeated: Callable[[Requests], Operations] = lambda requests: (),
    ) -> bool:
        """Carry a change out; once it is durable, whether there was anything to do, or was when it was first asked for.

        if_repeated: what may still be missing of a call that is remembered.
        """
        some = False

        def once(requests: Requests) -> Operations:
            nonlocal some
            rpc = self.caller.rpc
            if rpc.client_id and self.service.machine.namespace.done(rpc.client_id, rpc.call_id) is not None:
                some = True
                # The first attempt may not be durable yet: the service waits for the end of the log all the same.
                return if_repeated(requests)
            operations = request(requests)
            some = bool(operations)
            return operations

        await self.service.change(once)
        return some

    @property
    def content(self) -> bytes | None:
        """What comes with the request; None if the client is to be told where to send it."""
        if self.request.body is None and not self["data"]:
            return None
        return self.request.body or b""

    @property
    def host(self) -> str:
        """How the client calls this server."""
        return self.request.headers.get("host") or self.service.address

    def redirect(self, **more: str) -> Answer:
        """Where to go on: here. As a document with `noredirect=true`."""
        query = [
            pair
            for pair in self.request.query.split("&")
            if pair and pair.partition("=")[0].lower() not in ("noredirect", *more)
        ]
        target = target_of(self.request.path, "&".join([*query, urlencode(more)] if more else query))
        location = f"http://{self.host}{target}"
        if self["noredirect"]:
            return json_answer({"Location": location})
        return Answer(307, content_type=BYTES_TYPE, headers={"Location": location})


Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Operation:
    """method: of HTTP."""

    name: str
    method: str
    parameters: Sequence[Parameter]
    answer: Handler


OPERATIONS: dict[str, Operation] = {}
"""By name, in upper case."""

_NO_SNAPSHOTS = (
    "this name node has no snapshots; copy the files to keep with OPEN and CREATE (`journalmgr fs get`, `put`)"
)
_NO_BLOCKS = "content is in the name node, and there are no blocks; read it with OPEN (`journalmgr fs cat`)"
_NO_TOKENS = (
    "this name node issues no delegation tokens; name the user with user.name, or send a token of "
    "journalmgr.http.token-file in the header Authorization"
)
_NO_ERASURE_CODING = "this name node has no erasure coding; leave it out"
_SEE_STATUS = "this name node does not have it; GETFILESTATUS shows storagePolicy, and GETCONTENTSUMMARY quotas"

UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys(
        (
            *("ALLOWSNAPSHOT", "CREATESNAPSHOT", "DELETESNAPSHOT", "DISALLOWSNAPSHOT", "RENAMESNAPSHOT"),
            *("GETSNAPSHOTDIFF", "GETSNAPSHOTDIFFLISTING", "GETSNAPSHOTLIST", "GETSNAPSHOTTABLEDIRECTORYLIST"),
        ),
        _NO_SNAPSHOTS,
    ),
    **dict.fromkeys(("GETFILECHECKSUM", "GET_BLOCK_LOCATIONS", "GETFILEBLOCKLOCATIONS"), _NO_BLOCKS),
    **dict.fromkeys(
        ("GETDELEGATIONTOKEN", "GETDELEGATIONTOKENS", "RENEWDELEGATIONTOKEN", "CANCELDELEGATIONTOKEN"), _NO_TOKENS
    ),
    **dict.fromkeys(
        ("SETECPOLICY", "GETECPOLICY", "UNSETECPOLICY", "GETECPOLICIES", "GETECCODECS"), _NO_ERASURE_CODING
    ),
    **dict.fromkeys(
        ("GETSTORAGEPOLICY", "GETALLSTORAGEPOLICY", "SATISFYSTORAGEPOLICY", "GETQUOTAUSAGE", "GETSTATUS"), _SEE_STATUS
    ),
    "UNSETSTORAGEPOLICY": "this name node cannot remove a storage policy; set another one with SETSTORAGEPOLICY",
    "SETQUOTABYSTORAGETYPE": "this name node has no quotas by storage type; set storagespacequota with SETQUOTA",
    "TRUNCATE": "this name node does not shorten files; write the file again with CREATE and overwrite=true "
    "(`journalmgr fs put -f`)",
    "CHECKACCESS": "this name node does not enforce permissions; GETFILESTATUS and GETACLSTATUS show them",
    **dict.fromkeys(
        ("GETTRASHROOT", "GETTRASHROOTS"),
        "this name node has no trash; move a file with RENAME instead of deleting it (`journalmgr fs mv`)",
    ),
    "GETSERVERDEFAULTS": "this name node has no defaults for data nodes; name replication and blocksize in CREATE",
    "GETLINKTARGET": "GETFILESTATUS of the link shows its target as symlink",
}
"""Operations of Hadoop that are missing here -> reason and alternative."""


def _operation(name: str, method: str, *parameters: Parameter) -> Callable[[Handler], Handler]:
    def declare(answer: Handler) -> Handler:
        OPERATIONS[name] = Operation(name, method, parameters, answer)
        return answer

    return declare


def _done() -> Answer:
    return Answer(content_type=BYTES_TYPE)


def _said(value: bool) -> Answer:
    return json_answer({"boolean": value})


# --- looking


@_operation("GETFILESTATUS", "GET")
async def _get_file_status(call: Call) -> Answer:
    status = await call.look(lambda namespace: status_of(checks.existing(namespace, call.path)))
    return json_answer({"FileStatus": status.to_json()})


@_operation("LISTSTATUS", "GET")
async def _list_status(call: Call) -> Answer:
    """A directory of more than one page is sent page by page: what comes or goes meanwhile may or may not be in it."""
    page = await call.look(_page(call.path, ""))
    begin, end = b'{"FileStatuses":{"FileStatus":[', b"]}}"
    if not page.remaining:
        return Answer(body=begin + _entries(page) + end)

    async def rest(page: Page) -> AsyncIterator[bytes]:
        while page.remaining:
            page = await call.look(_page(call.path, page.entries[-1].path_suffix))
            if page.entries:
                yield b"," + _entries(page)
        yield end

    return Answer(body=begin + _entries(page), pieces=rest(page))


@_operation("LISTSTATUS_BATCH", "GET", maybe_empty("startafter", ""))
async def _list_status_batch(call: Call) -> Answer:
    page = await call.look(_page(call.path, call["startafter"]))
    entries = [status.to_json() for status in page.entries]
    partial = {"FileStatuses": {"FileStatus": entries}}
    return json_answer({"DirectoryListing": {"partialListing": partial, "remainingEntries": page.remaining}})


def _page(path: str, start_after: str) -> Callable[[Namespace], Page]:
    return lambda namespace: list_page(checks.existing(namespace, path), start_after)


def _entries(page: Page) -> bytes:
    return ",".join([json.dumps(status.to_json(), separators=(",", ":")) for status in page.entries]).encode()


@_operation("GETCONTENTSUMMARY", "GET")
async def _get_content_summary(call: Call) -> Answer:
    inode = await call.look(lambda namespace: checks.followed(namespace, call.path))
    return json_answer({"ContentSummary": await call.service.slices.run(summary_steps(inode))})


@_operation(
    "OPEN",
    "GET",
    whole("offset", 0, _I64_MAX, 0),
    whole("length", 0, _I64_MAX, None),
    boolean("noredirect", False),
)
async def _open(call: Call) -> Answer:
    content = await call.look(lambda namespace: _content(checks.file(namespace, call.path), call.path))
    if call["noredirect"]:
        return call.redirect()
    if call["offset"] > len(content):
        raise RequestRefused(f"{call.path} has {len(content)} bytes: there is no offset {call['offset']}")
    last = len(content) if call["length"] is None else call["offset"] + call["length"]
    return Answer(body=content[call["offset"] : last], content_type=BYTES_TYPE)


def _content(file: File, path: str) -> bytes:
    if file.blocks:
        raise RequestRefused(f"{path} has its content in {len(file.blocks)} blocks, and there are no data nodes here")
    return file.content or b""


@_operation("GETHOMEDIRECTORY", "GET")
async def _get_home_directory(call: Call) -> Answer:
    return json_answer({"Path": f"/user/{call.caller.user}"})


@_operation(
    "GETXATTRS",
    "GET",
    words("xattr.name", (), repeated=True),
    choice("encoding", {name: name for name in ENCODINGS}, "hex"),
)
async def _get_xattrs(call: Call) -> Answer:
    attributes = await call.look(
        lambda namespace: chosen_xattrs(checks.followed(namespace, call.path), call.path, list(call["xattr.name"]))
    )
    shown = [{"name": xattr_name(item), "value": encoded(item.value, call["encoding"])} for item in attributes]
    return json_answer({"XAttrs": shown})


@_operation("LISTXATTRS", "GET")
async def _list_xattrs(call: Call) -> Answer:
    attributes = await call.look(lambda namespace: checks.followed(namespace, call.path).xattrs)
    # A text with a list in it, as in Hadoop.
    return json_answer({"XAttrNames": json.dumps([xattr_name(item) for item in attributes])})


@_operation("GETACLSTATUS", "GET")
async def _get_acl_status(call: Call) -> Answer:
    status = await call.look(lambda namespace: acl.status(checks.followed(namespace, call.path)))
    return json_answer({"AclStatus": status})


# --- names


@_operation("MKDIRS", "PUT", octal("permission", 0o755))
async def _mkdirs(call: Call) -> Answer:
    await call.change(lambda requests: requests.mkdirs(call.path, call.caller, call.now, call["permission"]))
    return _said(True)


@_operation("CREATESYMLINK", "PUT", words("destination"), choice("createparent", {"false": False}, False))
async def _create_symlink(call: Call) -> Answer:
    await call.change(lambda requests: requests.symlink(call.path, call["destination"], call.caller, call.now))
    return _done()


@_operation("DELETE", "DELETE", boolean("recursive", False))
async def _delete(call: Call) -> Answer:
    some = await call.change(
        lambda requests: requests.delete(call.path, call.caller, call.now, recursive=call["recursive"])
    )
    return _said(some)


@_operation(
    "RENAME",
    "PUT",
    words("destination"),
    flags("renameoptions", "none", "overwrite"),
)
async def _rename(call: Call) -> Answer:
    source, target, options = call.path, _absolute(call["destination"]), call["renameoptions"]
    if not options:
        try:
            await call.change(lambda requests: requests.rename_into(source, target, call.caller, call.now))
        except (FileNotFound, FileAlreadyExists, ParentNotDirectory, RenameRefused):
            return _said(False)
        return _said(True)
    overwrite = "overwrite" in options
    await call.change(lambda requests: requests.rename(source, target, call.caller, call.now, overwrite=overwrite))
    return _done()


# --- files

CREATE_FLAGS = (
    "create",
    "overwrite",
    "sync_block",
    "lazy_persist",
    "new_block",
    "no_local_write",
    "should_replicate",
    "ignore_client_locality",
    "no_local_rack",
)
"""Values of Hadoop's `createflag`. All but the first two are hints for DataNodes."""


@_operation(
    "CREATE",
    "PUT",
    boolean("overwrite", False),
    flags("createflag", *CREATE_FLAGS),
    octal("permission", 0o644),
    whole("replication", 1, REPLICATION_MAX, None),
    whole("blocksize", 1, _I64_MAX, None),
    boolean("createparent", True),
    boolean("noredirect", False),
    boolean("data", False),
)
async def _create(call: Call) -> Answer:
    content = call.content
    if content is None:
        return call.redirect(data="true")
    await call.change(lambda requests: _put(requests, call, content), lambda requests: _finish(requests, call))
    location = f"http://{call.host}{target_of(call.request.path)}"
    return Answer(201, content_type=BYTES_TYPE, headers={"Location": location})


def _put(requests: Requests, call: Call, content: bytes) -> Operations:
    return requests.put(
        call.path,
        content,
        call.caller,
        call.now,
        mode=call["permission"],
        overwrite=call["overwrite"] or "overwrite" in call["createflag"],
        create_parents=call["createparent"],
        replication=call["replication"],
        block_size=call["blocksize"],
    )


def _finish(requests: Requests, call: Call) -> Operations:
    # A crash between the two operations of `put` leaves a file that nobody else closes.
    file = call.service.machine.namespace.find(call.path)
    if isinstance(file, File) and file.lease is not None and file.lease.client_name == call.caller.client_name:
        return requests.complete(call.path, call.caller, call.now)
    return ()


@_operation("APPEND", "POST", boolean("noredirect", False), boolean("data", False))
async def _append(call: Call) -> Answer:
    more = call.content
    if more is None:
        return call.redirect(data="true")

    def append(requests: Requests) -> Operations:
        namespace = call.service.machine.namespace
        requests.append(call.path, call.caller)  # nobody else may be writing it; it stays closed
        whole_content = _content(checks.file(namespace, call.path), call.path) + more
        # Not opened and closed again: all that there is to lose between two operations is the time.
        return (
            *requests.set_xattr(call.path, CONTENT_NAME, _fitting(call.path, whole_content), call.caller),
            *requests.set_times(call.path, mtime=call.now),
        )

    await call.change(append)
    return _done()


def _fitting(path: str, content: bytes) -> bytes:
    if len(content) > CONTENT_BYTES_MAX:
        raise ContentTooLarge(
            f"{path} would have {len(content)} bytes of content; a file carries at most {CONTENT_BYTES_MAX} here",
            limit=CONTENT_BYTES_MAX,
        )
    return content


@_operation("CONCAT", "POST", words("sources"))
async def _concat(call: Call) -> Answer:
    sources = [_absolute(source) for source in call["sources"].split(",")]
    if len(sources) > SOURCES_MAX:
        raise BadRequest(f"parameter sources names {len(sources)} files; at most {SOURCES_MAX} go into one request")
    await call.change(lambda requests: requests.concat(call.path, sources, call.caller, call.now))
    return _done()


# --- attributes


@_operation("SETPERMISSION", "PUT", octal("permission"))
async def _set_permission(call: Call) -> Answer:
    await call.change(lambda requests: requests.set_permission(call.path, call["permission"]))
    return _done()


@_operation("SETOWNER", "PUT", maybe_empty("owner", ""), maybe_empty("group", ""))
async def _set_owner(call: Call) -> Answer:
    await call.change(lambda requests: requests.set_owner(call.path, call["owner"], call["group"]))
    return _done()


@_operation("SETTIMES", "PUT", whole("modificationtime", -1, _I64_MAX, -1), whole("accesstime", -1, _I64_MAX, -1))
async def _set_times(call: Call) -> Answer:
    await call.change(lambda requests: requests.set_times(call.path, call["modificationtime"], call["accesstime"]))
    return _done()


@_operation("SETREPLICATION", "PUT", whole("replication", 1, REPLICATION_MAX))
async def _set_replication(call: Call) -> Answer:
    await call.change(lambda requests: requests.set_replication(call.path, call["replication"]))
    return _said(True)


@_operation(
    "SETSTORAGEPOLICY",
    "PUT",
    choice("storagepolicy", {name.lower(): number for number, name in STORAGE_POLICIES.items()}),
)
async def _set_storage_policy(call: Call) -> Answer:
    await call.change(lambda requests: requests.set_storage_policy(call.path, call["storagepolicy"]))
    return _done()


@_operation(
    "SETQUOTA",
    "PUT",
    whole("namespacequota", -1, _I64_MAX - 1, None),
    whole("storagespacequota", -1, _I64_MAX - 1, None),
)
async def _set_quota(call: Call) -> Answer:
    names, space = call["namespacequota"], call["storagespacequota"]
    await call.change(lambda requests: requests.set_quota(call.path, names=names, space=space))
    return _done()


@_operation(
    "SETXATTR",
    "PUT",
    words("xattr.name"),
    Parameter("xattr.value", decoded, "a text, 0x and hexadecimal digits, or 0s and base64", None),
    flags("flag", "create", "replace"),
)
async def _set_xattr(call: Call) -> Answer:
    name, value, allowed = call["xattr.name"], call["xattr.value"], call["flag"]
    mode = XAttrMode(*allowed) if len(allowed) == 1 else XAttrMode.SET
    await call.change(lambda requests: requests.set_xattr(call.path, name, value, call.caller, mode))
    return _done()


@_operation("REMOVEXATTR", "PUT", words("xattr.name"))
async def _remove_xattr(call: Call) -> Answer:
    await call.change(lambda requests: requests.remove_xattr(call.path, call["xattr.name"], call.caller))
    return _done()


# --- access control lists

_SPEC = Parameter("aclspec", acl.parse, "entries such as user::rw-,user:carla:r--,group::r--,other::---")
_NAMES = Parameter("aclspec", partial(acl.parse, permissions=False), "entries without permissions, such as user:carla:")


@_operation("SETACL", "PUT", _SPEC)
async def _set_acl(call: Call) -> Answer:
    await call.change(lambda requests: requests.set_acl(call.path, call["aclspec"]))
    return _done()


@_operation("MODIFYACLENTRIES", "PUT", _SPEC)
async def _modify_acl_entries(call: Call) -> Answer:
    return await _change_acl(call, lambda inode: acl.modified(inode, call["aclspec"]))


@_operation("REMOVEACLENTRIES", "PUT", _NAMES)
async def _remove_acl_entries(call: Call) -> Answer:
    return await _change_acl(call, lambda inode: acl.reduced(inode, call["aclspec"]))


@_operation("REMOVEDEFAULTACL", "PUT")
async def _remove_default_acl(call: Call) -> Answer:
    return await _change_acl(call, acl.without_default)


@_operation("REMOVEACL", "PUT")
async def _remove_acl(call: Call) -> Answer:
    await call.change(lambda requests: requests.remove_acl(call.path))
    return _done()


async def _change_acl(call: Call, change: Callable[[Inode], tuple[AclEntry, ...]]) -> Answer:
    def request(requests: Requests) -> Operations:
        inode = checks.followed(call.service.machine.namespace, call.path)
        return requests.set_acl(call.path, change(inode))

    await call.change(request)
    return _done()


# --- requests


def _absolute(path: str) -> str:
    """As the path of the request itself: nothing behind a last slash."""
    return path.rstrip("/") or "/"


def answer(service: NameService, request: HttpRequest, now: int) -> Awaitable[Answer]:
    """Carry out a request whose path begins with PREFIX. Raises BadRequest, and what the service fails with."""
    parameters = Parameters(request.query)
    name = parameters.text("op").upper()
    operation = OPERATIONS.get(name)
    if operation is None and name in UNSUPPORTED:
        raise NotSupported(f"{name}: {UNSUPPORTED[name]}")
    if operation is None or operation.method != request.method:
        known = sorted(each.name for each in OPERATIONS.values() if each.method == request.method)
        elsewhere = f"; it goes with {operation.method}" if operation is not None else ""
        raise BadRequest(
            f"parameter op={name!r} is no operation of {request.method}{elsewhere}; "
            f"there are {', '.join(known) or 'none'}"
        )
    user = parameters.text("user.name", USER_DEFAULT)
    if not _USER.fullmatch(user):
        raise BadRequest(f"parameter user.name={user!r}: it is letters, digits, and any of . _ -")
    rpc = request.rpc
    caller = Caller(user, f"HTTP_{rpc.client_id.hex() or user}", "", rpc)
    values = parameters.read(operation.parameters, name)
    return operation.answer(Call(service, request, _absolute(request.path[len(PREFIX) :]), caller, now, values))
