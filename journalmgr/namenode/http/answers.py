"""What WebHDFS answers with: attributes, summaries, and errors with their status. Without effects."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Generator

from bookkeeper.errors import BookKeeperError, InvalidArgument
from journalmgr.edits.fields import XAttr
from journalmgr.errors import NotSupported, TransactionTooLarge
from journalmgr.namenode.errors import (
    ContentTooLarge,
    FileNotFound,
    InvalidPath,
    NotAFile,
    NotPossible,
    RequestRefused,
    XAttrRefused,
)
from journalmgr.namenode.http.messages import Answer, BadRequest, Overloaded, json_answer
from journalmgr.namenode.namespace.tree import Directory, File, Inode, space_of, subtree
from journalmgr.namenode.namespace.xattrs import NAMESPACES
from journalmgr.namenode.service import NotActive

ENCODINGS = ("text", "hex", "base64")

RETRIABLE = "org.apache.hadoop.ipc.RetriableException"
RETRY_AFTER_S = 1

_STATUS: dict[type[BookKeeperError], int] = {
    FileNotFound: 404,
    NotAFile: 404,
    InvalidPath: 400,
    NotPossible: 400,
    ContentTooLarge: 413,
}
"""Those of Hadoop: 404 for what is not there, 400 for arguments, 403 for all else that is refused."""


def error_answer(error: BookKeeperError) -> Answer:
    """A RemoteException. What is neither a refusal nor a fault of the request is trouble with the log, 503: what became
    of a change is open, and whoever asks again with the same X-Request-Id will know.
    """
    headers = {}
    if isinstance(error, BadRequest):
        status, name = error.status, error.hadoop_name
    elif isinstance(error, RequestRefused):
        status, name = _STATUS.get(type(error), 403), error.hadoop_name
    elif isinstance(error, NotActive):
        status, name = 403, error.hadoop_name
        if error.active:
            headers["X-Active-Server"] = error.active
    elif isinstance(error, NotSupported):
        status, name = 400, "java.lang.UnsupportedOperationException"
    elif isinstance(error, InvalidArgument):
        status, name = 400, BadRequest.hadoop_name
    elif isinstance(error, TransactionTooLarge):
        status, name = 413, RequestRefused.hadoop_name
    else:
        status, name = 503, RETRIABLE
        headers["Retry-After"] = str(RETRY_AFTER_S)
    message = str(error)
    if status == 503 and not isinstance(error, Overloaded):
        message += "; what became of the request is open: repeat it with the same X-Request-Id"
    answer = remote_exception(name, message, status)
    answer.headers.update(headers)
    return answer


def remote_exception(name: str, message: str, status: int) -> Answer:
    """WebHDFS's object of an error. name: of the Java class, whole."""
    return json_answer(
        {"RemoteException": {"exception": name.rpartition(".")[2], "javaClassName": name, "message": message}}, status
    )


SUMMED_INODES = 256
"""Inodes of one step of `summary_steps`."""


def summary_steps(inode: Inode) -> Generator[None, None, dict[str, object]]:
    """WebHDFS's ContentSummary of a tree. A link counts as a file, as in HDFS. length: of blocks or content.

    Changes between two steps may be counted or not, as in HDFS.
    """
    directories = files = length = space = 0
    for number, node in enumerate(subtree(inode), 1):
        if number % SUMMED_INODES == 0:
            yield
        if isinstance(node, Directory):
            directories += 1
            continue
        files += 1
        if isinstance(node, File):
            length += node.length
            space += space_of(node)
    quota = inode.quota if isinstance(inode, Directory) else None
    return {
        "directoryCount": directories,
        "fileCount": files,
        "length": length,
        "quota": -1 if quota is None or quota.names is None else quota.names,
        "spaceConsumed": space,
        "spaceQuota": -1 if quota is None or quota.space is None else quota.space,
    }


# --- attributes


def xattr_name(attribute: XAttr) -> str:
    """With its namespace, as user.origin."""
    return f"{NAMESPACES[attribute.namespace]}.{attribute.name}"


def chosen_xattrs(inode: Inode, path: str, names: list[str]) -> list[XAttr]:
    """Those of an inode with these names, all without any. Raises XAttrRefused if one is missing."""
    if not names:
        return list(inode.xattrs)
    found = {xattr_name(attribute): attribute for attribute in inode.xattrs}
    chosen = []
    for name in names:
        prefix, dot, rest = name.partition(".")
        attribute = found.get(f"{prefix.lower()}{dot}{rest}")
        if attribute is None:
            raise XAttrRefused(f"{path} has no attribute {name}; it has {', '.join(found) or 'none'}")
        chosen.append(attribute)
    return chosen


def encoded(value: bytes | None, encoding: str) -> str | None:
    """A value as WebHDFS writes it: "text" with its quotes, 0x and hexadecimal digits, 0s and base64."""
    if value is None:
        return None
    if encoding == "hex":
        return "0x" + value.hex()
    if encoding == "base64":
        return "0s" + base64.b64encode(value).decode()
    return '"' + value.decode(errors="replace") + '"'


def decoded(text: str) -> bytes:
    """The value that such a text stands for; text without quotes stands for itself. Raises ValueError."""
    if re.match("0[xX]", text):
        return bytes.fromhex(text[2:])
    if re.match("0[sS]", text):
        try:
            return base64.b64decode(text[2:], validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return text.encode()
