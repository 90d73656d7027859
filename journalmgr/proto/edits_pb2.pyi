from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class XAttrProto(_message.Message):
    __slots__ = ("namespace", "name", "value")
    class XAttrNamespaceProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        USER: _ClassVar[XAttrProto.XAttrNamespaceProto]
        TRUSTED: _ClassVar[XAttrProto.XAttrNamespaceProto]
        SECURITY: _ClassVar[XAttrProto.XAttrNamespaceProto]
        SYSTEM: _ClassVar[XAttrProto.XAttrNamespaceProto]
        RAW: _ClassVar[XAttrProto.XAttrNamespaceProto]
    USER: XAttrProto.XAttrNamespaceProto
    TRUSTED: XAttrProto.XAttrNamespaceProto
    SECURITY: XAttrProto.XAttrNamespaceProto
    SYSTEM: XAttrProto.XAttrNamespaceProto
    RAW: XAttrProto.XAttrNamespaceProto
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    namespace: XAttrProto.XAttrNamespaceProto
    name: str
    value: bytes
    def __init__(self, namespace: _Optional[_Union[XAttrProto.XAttrNamespaceProto, str]] = ..., name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class XAttrEditLogProto(_message.Message):
    __slots__ = ("src", "xAttrs")
    SRC_FIELD_NUMBER: _ClassVar[int]
    XATTRS_FIELD_NUMBER: _ClassVar[int]
    src: str
    xAttrs: _containers.RepeatedCompositeFieldContainer[XAttrProto]
    def __init__(self, src: _Optional[str] = ..., xAttrs: _Optional[_Iterable[_Union[XAttrProto, _Mapping]]] = ...) -> None: ...

class AclEntryProto(_message.Message):
    __slots__ = ("type", "scope", "permissions", "name")
    class AclEntryTypeProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        USER: _ClassVar[AclEntryProto.AclEntryTypeProto]
        GROUP: _ClassVar[AclEntryProto.AclEntryTypeProto]
        MASK: _ClassVar[AclEntryProto.AclEntryTypeProto]
        OTHER: _ClassVar[AclEntryProto.AclEntryTypeProto]
    USER: AclEntryProto.AclEntryTypeProto
    GROUP: AclEntryProto.AclEntryTypeProto
    MASK: AclEntryProto.AclEntryTypeProto
    OTHER: AclEntryProto.AclEntryTypeProto
    class AclEntryScopeProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACCESS: _ClassVar[AclEntryProto.AclEntryScopeProto]
        DEFAULT: _ClassVar[AclEntryProto.AclEntryScopeProto]
    ACCESS: AclEntryProto.AclEntryScopeProto
    DEFAULT: AclEntryProto.AclEntryScopeProto
    class FsActionProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[AclEntryProto.FsActionProto]
        EXECUTE: _ClassVar[AclEntryProto.FsActionProto]
        WRITE: _ClassVar[AclEntryProto.FsActionProto]
        WRITE_EXECUTE: _ClassVar[AclEntryProto.FsActionProto]
        READ: _ClassVar[AclEntryProto.FsActionProto]
        READ_EXECUTE: _ClassVar[AclEntryProto.FsActionProto]
        READ_WRITE: _ClassVar[AclEntryProto.FsActionProto]
        PERM_ALL: _ClassVar[AclEntryProto.FsActionProto]
    NONE: AclEntryProto.FsActionProto
    EXECUTE: AclEntryProto.FsActionProto
    WRITE: AclEntryProto.FsActionProto
    WRITE_EXECUTE: AclEntryProto.FsActionProto
    READ: AclEntryProto.FsActionProto
    READ_EXECUTE: AclEntryProto.FsActionProto
    READ_WRITE: AclEntryProto.FsActionProto
    PERM_ALL: AclEntryProto.FsActionProto
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: AclEntryProto.AclEntryTypeProto
    scope: AclEntryProto.AclEntryScopeProto
    permissions: AclEntryProto.FsActionProto
    name: str
    def __init__(self, type: _Optional[_Union[AclEntryProto.AclEntryTypeProto, str]] = ..., scope: _Optional[_Union[AclEntryProto.AclEntryScopeProto, str]] = ..., permissions: _Optional[_Union[AclEntryProto.FsActionProto, str]] = ..., name: _Optional[str] = ...) -> None: ...

class AclEditLogProto(_message.Message):
    __slots__ = ("src", "entries")
    SRC_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    src: str
    entries: _containers.RepeatedCompositeFieldContainer[AclEntryProto]
    def __init__(self, src: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[AclEntryProto, _Mapping]]] = ...) -> None: ...
