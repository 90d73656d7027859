from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StorageInfoProto(_message.Message):
    __slots__ = ("layoutVersion", "namespceID", "clusterID", "cTime")
    LAYOUTVERSION_FIELD_NUMBER: _ClassVar[int]
    NAMESPCEID_FIELD_NUMBER: _ClassVar[int]
    CLUSTERID_FIELD_NUMBER: _ClassVar[int]
    CTIME_FIELD_NUMBER: _ClassVar[int]
    layoutVersion: int
    namespceID: int
    clusterID: str
    cTime: int
    def __init__(self, layoutVersion: _Optional[int] = ..., namespceID: _Optional[int] = ..., clusterID: _Optional[str] = ..., cTime: _Optional[int] = ...) -> None: ...

class NamespaceInfoProto(_message.Message):
    __slots__ = ("buildVersion", "unused", "blockPoolID", "storageInfo", "softwareVersion", "capabilities")
    BUILDVERSION_FIELD_NUMBER: _ClassVar[int]
    UNUSED_FIELD_NUMBER: _ClassVar[int]
    BLOCKPOOLID_FIELD_NUMBER: _ClassVar[int]
    STORAGEINFO_FIELD_NUMBER: _ClassVar[int]
    SOFTWAREVERSION_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    buildVersion: str
    unused: int
    blockPoolID: str
    storageInfo: StorageInfoProto
    softwareVersion: str
    capabilities: int
    def __init__(self, buildVersion: _Optional[str] = ..., unused: _Optional[int] = ..., blockPoolID: _Optional[str] = ..., storageInfo: _Optional[_Union[StorageInfoProto, _Mapping]] = ..., softwareVersion: _Optional[str] = ..., capabilities: _Optional[int] = ...) -> None: ...

class VersionProto(_message.Message):
    __slots__ = ("layoutVersion", "namespaceInfo")
    LAYOUTVERSION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACEINFO_FIELD_NUMBER: _ClassVar[int]
    layoutVersion: int
    namespaceInfo: NamespaceInfoProto
    def __init__(self, layoutVersion: _Optional[int] = ..., namespaceInfo: _Optional[_Union[NamespaceInfoProto, _Mapping]] = ...) -> None: ...

class EditLogLedgerProto(_message.Message):
    __slots__ = ("dataLayoutVersion", "ledgerId", "firstTxId", "lastTxId")
    DATALAYOUTVERSION_FIELD_NUMBER: _ClassVar[int]
    LEDGERID_FIELD_NUMBER: _ClassVar[int]
    FIRSTTXID_FIELD_NUMBER: _ClassVar[int]
    LASTTXID_FIELD_NUMBER: _ClassVar[int]
    dataLayoutVersion: int
    ledgerId: int
    firstTxId: int
    lastTxId: int
    def __init__(self, dataLayoutVersion: _Optional[int] = ..., ledgerId: _Optional[int] = ..., firstTxId: _Optional[int] = ..., lastTxId: _Optional[int] = ...) -> None: ...

class MaxTxIdProto(_message.Message):
    __slots__ = ("txId",)
    TXID_FIELD_NUMBER: _ClassVar[int]
    txId: int
    def __init__(self, txId: _Optional[int] = ...) -> None: ...

class CurrentInprogressProto(_message.Message):
    __slots__ = ("path", "hostname")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    path: str
    hostname: str
    def __init__(self, path: _Optional[str] = ..., hostname: _Optional[str] = ...) -> None: ...
