"""Errors of the name node, one class per reason. Pure.

    JournalError
      ReplayError              a transaction of the journal does not fit the namespace: nothing of it was applied
        SnapshotsRefused       it is about snapshots, which this name node does not have
      ImageError               bytes of an image
        ImageCorrupt             they are not what was written: with the offset
        ImageUnsupported         no image of ours, or of a later format
      RequestRefused           a client asked for what cannot be; nothing was logged, nothing changed
        InvalidPath  FileNotFound  FileAlreadyExists  ParentNotDirectory  NotADirectory  NotAFile
        PathIsNotEmptyDirectory  UnresolvedLink  LeaseHeld  LeaseAbsent  QuotaExceeded  LimitExceeded
        ContentTooLarge  RenameRefused  XAttrRefused  AclRefused  NotPossible

`hadoop_name` of a refusal is the exception that HDFS answers with: clients of its HTTP interface look at that name.
"""

from __future__ import annotations

from typing import ClassVar

from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import AnyOp
from journalmgr.errors import JournalError

HDFS_PROTOCOL = "org.apache.hadoop.hdfs.protocol"
HADOOP_FS = "org.apache.hadoop.fs"

_NAMES = {int(opcode): opcode.hadoop_name for opcode in OpCode}


class ReplayError(JournalError):
    """A transaction that does not fit. txid, opcode: its own; path: which it names, empty where it names none.

    The namespace is as it was before the transaction.
    """

    def __init__(self, op: AnyOp, why: str, *, path: str = "") -> None:
        self.txid = op.txid
        self.opcode = int(op.opcode)
        self.path = path
        self.why = why
        name = _NAMES.get(self.opcode, f"opcode {self.opcode}")
        super().__init__(f"txid {op.txid}, {name}{f' of {path}' if path else ''}: {why}")


class SnapshotsRefused(ReplayError):
    """The transaction is about snapshots."""


class ImageError(JournalError):
    """offset: where in the image, bytes. source: its name, for messages."""

    def __init__(self, why: str, *, offset: int, source: str = "") -> None:
        super().__init__(f"{source or 'image'} at offset {offset}: {why}")
        self.why = why
        self.offset = offset
        self.source = source


class ImageCorrupt(ImageError):
    """The bytes are not what was written."""


class ImageUnsupported(ImageError):
    """No image of ours, or one of a format that is not known."""


class RequestRefused(JournalError):
    """A request that the namespace does not allow; nothing was logged."""

    hadoop_name: ClassVar[str] = "java.io.IOException"


class InvalidPath(RequestRefused):
    """Not absolute, an empty component, `.` or `..`, a colon."""

    hadoop_name = f"{HADOOP_FS}.InvalidPathException"


class FileNotFound(RequestRefused):
    """There is nothing at the path."""

    hadoop_name = "java.io.FileNotFoundException"


class FileAlreadyExists(RequestRefused):
    """There is something already."""

    hadoop_name = f"{HADOOP_FS}.FileAlreadyExistsException"


class ParentNotDirectory(RequestRefused):
    """A component before the last is a file."""

    hadoop_name = f"{HADOOP_FS}.ParentNotDirectoryException"


class NotADirectory(RequestRefused):
    """What is asked for only directories have."""

    hadoop_name = f"{HADOOP_FS}.PathIsNotDirectoryException"


class NotAFile(RequestRefused):
    """What is asked for only files have."""

    hadoop_name = "java.io.FileNotFoundException"


class PathIsNotEmptyDirectory(RequestRefused):
    """The directory has children, and nobody said that they may go."""

    hadoop_name = f"{HADOOP_FS}.PathIsNotEmptyDirectoryException"


class UnresolvedLink(RequestRefused):
    """A component is a symbolic link, which clients follow themselves. target: where it points."""

    hadoop_name = f"{HDFS_PROTOCOL}.UnresolvedPathException"

    def __init__(self, message: str, *, target: str) -> None:
        super().__init__(message)
        self.target = target


class LeaseHeld(RequestRefused):
    """Somebody writes the file. holder: who."""

    hadoop_name = f"{HDFS_PROTOCOL}.AlreadyBeingCreatedException"

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class LeaseAbsent(RequestRefused):
    """The client does not write the file, or not any more."""

    hadoop_name = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"


class QuotaExceeded(RequestRefused):
    """path: of the directory whose quota it is."""

    hadoop_name = f"{HDFS_PROTOCOL}.QuotaExceededException"

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class LimitExceeded(RequestRefused):
    """A name too long, a path too deep, a directory too full."""

    hadoop_name = f"{HDFS_PROTOCOL}.FSLimitException"


class ContentTooLarge(RequestRefused):
    """More content than a file may carry here. limit: bytes."""

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class RenameRefused(RequestRefused):
    """The root, or into the own tree, or a file onto a directory."""


class XAttrRefused(RequestRefused):
    """An attribute that is there already, or not there, or too large, or one too many."""


class AclRefused(RequestRefused):
    """A list that is none."""

    hadoop_name = f"{HDFS_PROTOCOL}.AclException"


class NotPossible(RequestRefused):
    """An argument that makes no sense for this path."""

    hadoop_name = "org.apache.hadoop.HadoopIllegalArgumentException"
