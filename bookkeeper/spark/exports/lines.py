"""Lines of JSON in an export: what every kind of export has in common. Pure.

A line is a JSON object without spaces, its keys ascending. The manifest has `format` and `contents`, a part for each
kind of thing that is exported; who reads it refuses a format or kind that it does not know, since to leave that out
would be to lose it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bookkeeper.errors import BookKeeperError
from bookkeeper.texts import parse_json

FORMAT = 1


class NotAnExport(BookKeeperError):
    """What was to be an export is none, is one of another version, or is not what was exported; why is in the text."""


def json_line(fields: Mapping[str, object]) -> str:
    """A line, without its end."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


class Fields:
    """The fields of a JSON object."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        try:
            found = parse_json(text)
        except ValueError as error:
            raise NotAnExport(f"{where}: no JSON: {error}") from error
        if not isinstance(found, dict):
            raise NotAnExport(f"{where}: no JSON object")
        self._found: dict[str, Any] = found

    @classmethod
    def of(cls, found: object, where: str) -> Fields:
        """Of an object inside another."""
        return cls(json.dumps(found), where)

    def value(self, name: str, kind: type) -> Any:
        """Of exactly that type. Raises NotAnExport, as all of these do."""
        found = self._found.get(name)
        if type(found) is not kind:
            raise self.wrong(name)
        return found

    def text(self, name: str) -> str:
        """A text."""
        found: str = self.value(name, str)
        return found

    def text_or_none(self, name: str) -> str | None:
        """A text; None for null, or nothing."""
        return None if self._found.get(name) is None else self.text(name)

    def whole(self, name: str) -> int:
        """A whole number from 0 on."""
        found: int = self.value(name, int)
        if found < 0:
            raise self.wrong(name)
        return found

    def whole_or_none(self, name: str) -> int | None:
        """The same; None for null, or nothing."""
        return None if self._found.get(name) is None else self.whole(name)

    def wrong(self, name: str) -> NotAnExport:
        """What is said of a field."""
        return NotAnExport(f"{self._where}: {name} is {self._found.get(name)!r:.100}")


def check_kind(manifest: Fields, kind: str) -> Fields:
    """The one part of a manifest, of that kind. Raises NotAnExport, also for a format that is not known."""
    version = manifest.whole("format")
    if version != FORMAT:
        raise NotAnExport(f"manifest: format {version}; this release knows {FORMAT}. Use the release that exported it")
    parts = [Fields.of(each, "manifest, contents") for each in manifest.value("contents", list)]
    kinds = [part.text("kind") for part in parts]
    if kinds != [kind]:
        raise NotAnExport(
            f"manifest: contents of the kinds {', '.join(kinds) or 'none'}; this release knows {kind} here. Use the "
            "command for these, or the release that exported it"
        )
    return parts[0]
