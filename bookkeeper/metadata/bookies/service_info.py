"""What a bookie publishes about itself, as bytes. Pure. Source: bookkeeper/wire/FORMATS.md 4.6."""

from __future__ import annotations

import re

from google.protobuf.message import DecodeError

from bookkeeper.errors import InvalidArgument, MetadataCorrupt
from bookkeeper.metadata.textproto import require_complete
from bookkeeper.model import BookieId, BookieServiceInfo, Endpoint
from bookkeeper.wire.proto.DataFormats_pb2 import BookieServiceInfoFormat

_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+", re.ASCII)  # `:-_` is a range, in Apache's pattern as well
_RESERVED_ID = "readonly"

BOOKIE_RPC = "bookie-rpc"
_PORT_MAX = 65535


def check_bookie_id(bookie_id: str) -> None:
    """Raise InvalidArgument unless this can be the id of a bookie, which names a znode."""
    if _BOOKIE_ID.fullmatch(bookie_id) is None or bookie_id.lower() == _RESERVED_ID:
        raise InvalidArgument(
            f"{bookie_id!r} cannot be a bookie's id: it must consist of letters, digits and :;<=>?@[\\]^_.- "
            f"and must not be {_RESERVED_ID!r}"
        )


def format_service_info(info: BookieServiceInfo) -> bytes:
    """The bytes of a registration node."""
    message = BookieServiceInfoFormat(properties=dict(info.properties))
    for endpoint in info.endpoints:
        message.endpoints.add(
            id=endpoint.id,
            port=endpoint.port,
            host=endpoint.host,
            protocol=endpoint.protocol,
            auth=endpoint.auth,
            extensions=endpoint.extensions,
        )
    return message.SerializeToString(deterministic=True)


def parse_service_info(data: bytes, bookie_id: BookieId, path: str) -> BookieServiceInfo:
    """Read the registration node at `path`; empty data means the address in the id. Raises MetadataCorrupt."""
    if not data:
        return service_info_of_id(bookie_id)
    message = BookieServiceInfoFormat()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MetadataCorrupt(f"{path}: not a protobuf BookieServiceInfoFormat: {error}") from error
    require_complete(message, path)
    endpoints = tuple(
        Endpoint(
            endpoint.id,
            endpoint.host,
            endpoint.port,
            endpoint.protocol,
            tuple(endpoint.auth),
            tuple(endpoint.extensions),
        )
        for endpoint in message.endpoints
    )
    return BookieServiceInfo(endpoints, dict(message.properties))


def service_info_of_id(bookie_id: BookieId) -> BookieServiceInfo:
    """What a bookie that publishes nothing means: one endpoint, its id read as host:port; none if it is not one."""
    host, _, port = bookie_id.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= _PORT_MAX):
        return BookieServiceInfo(())
    return BookieServiceInfo((Endpoint(bookie_id, host, int(port), BOOKIE_RPC),))
