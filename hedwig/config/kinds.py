"""How the text of a hub's settings is read, where the kinds of `bookkeeper.config.keys` are not enough."""

from __future__ import annotations

import re
from typing import TypeVar

from bookkeeper.config.keys import Kind, repeated
from bookkeeper.config.security import TLS_VERSIONS
from bookkeeper.system.hosts import check_no_number
from bookkeeper.texts import parse_json
from hedwig.model import HubAddress
from hedwig.wire.records import parse_address

T = TypeVar("T")

RETENTION = ("keep_ms", "keep_bytes", "limit_ms", "limit_bytes", "keep_unsubscribed_ms")
"""The numbers that say what of a topic stays and what goes: of all topics, or of those whose names begin alike."""

_REGION = re.compile(r"[^/\x00-\x20\x7f-\x9f]{1,255}")


def or_default(kind: Kind[T], default: T) -> Kind[T]:
    """An empty value is the default: Apache's file has such lines in comments."""
    return Kind(kind.unit, lambda value: kind.parse(value) if value else default)


def or_none(kind: Kind[int]) -> Kind[int | None]:
    return Kind(kind.unit, lambda value: kind.parse(value) if value else None)


def region_name() -> Kind[str]:
    def parse(value: str) -> str:
        if _REGION.fullmatch(value) is None or value in (".", ".."):
            raise ValueError("not a name: it becomes a part of a znode's path; use letters and digits")
        return value

    return Kind("name", parse)


def hub_addresses() -> Kind[tuple[HubAddress, ...]]:
    def parse(value: str) -> tuple[HubAddress, ...]:
        found = tuple(parse_address(each) for each in value.split())
        for twice in repeated(found):
            raise ValueError(f"{twice} stands there twice")
        for each in found:
            check_no_number(each.host)
        return found

    return Kind("host:port:sslport, separated by spaces", parse)


def tls_versions() -> Kind[tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in value.split(",") if part.strip())
        wrong = next((name for name in names if name not in TLS_VERSIONS), None)
        if wrong is not None or not names:
            raise ValueError(f"{wrong or value!r} is not one of {', '.join(TLS_VERSIONS)}")
        return names

    return Kind("comma-separated, of TLSv1.2 and TLSv1.3", parse)


def name_prefixes() -> Kind[tuple[bytes, ...]]:
    def parse(value: str) -> tuple[bytes, ...]:
        return tuple(part.strip().encode() for part in value.split(",") if part.strip())

    return Kind("beginnings of names, comma-separated", parse)


def retention_numbers() -> Kind[tuple[tuple[bytes, tuple[tuple[str, int], ...]], ...]]:
    def parse(value: str) -> tuple[tuple[bytes, tuple[tuple[str, int], ...]], ...]:
        if not value:
            return ()
        try:
            found = parse_json(value)
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError('want {"BEGINNING": {"keep_ms": NUMBER, ...}, ...}')
        return tuple((beginning.encode(), numbers(beginning, given)) for beginning, given in found.items())

    def numbers(beginning: str, given: object) -> tuple[tuple[str, int], ...]:
        if not beginning or not isinstance(given, dict) or not given:
            raise ValueError(f'{beginning!r}: want the beginning of a name, and {{"keep_ms": NUMBER, ...}}')
        for name, number in given.items():
            if name not in RETENTION:
                raise ValueError(f"{beginning!r}: {name!r} is not one of {', '.join(RETENTION)}")
            if type(number) is not int or not 0 <= number <= 2**62:
                raise ValueError(f"{beginning!r}: {name} is {number!r}, and must be a whole number from 0 on")
        return tuple(given.items())

    return Kind("JSON", parse)


def check_host(value: str) -> str:
    if re.search(r"[\s:/;,]", value):
        raise ValueError("not a host: write the name or the IPv4 address alone; the port is server_port")
    return check_no_number(value)
