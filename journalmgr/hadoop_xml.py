"""The properties of a Hadoop configuration file, as hdfs-site.xml: names and values with their lines. Pure.

    <configuration> <property> <name>KEY</name> <value>TEXT</value> <final>true</final> </property> ... </configuration>

`${KEY}` in a value stands for the value of KEY in the same file. Differs from Apache: what the Java machine has of that
name is not looked at, and files that are included (xi:include) are not followed but refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from bookkeeper.config.properties import BadLine, Property

SUBSTITUTIONS_MAX = 20
"""Rounds of resolving one value, as in Hadoop."""

_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_PARTS = ("name", "value")
_KNOWN = frozenset({*_PARTS, "description", "final", "source"})


@dataclass(slots=True)
class _Reading:
    """What is open, and what was found."""

    parser: expat.XMLParserType
    path: list[str] = field(default_factory=list)
    parts: dict[str, list[str]] = field(default_factory=dict)
    line: int = 0
    found: list[Property] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)

    def on_start(self, tag: str, _attributes: object) -> None:
        self.path.append(tag)
        line = self.parser.CurrentLineNumber
        depth = len(self.path)
        if depth == 1 and tag != "configuration":
            self.bad.append(BadLine(line, f"<{tag}> where <configuration> should be"))
        elif depth == 2:
            self.parts, self.line = {}, line
            if tag != "property":
                self.bad.append(BadLine(line, f"<{tag}> is not followed; put its properties into this file"))
        elif depth == 3 and self.path[1] == "property":
            if tag not in _KNOWN:
                self.bad.append(BadLine(line, f"<{tag}> has no place in a property"))
            self.parts[tag] = []
            if tag == "name":
                self.line = line

    def on_text(self, text: str) -> None:
        if len(self.path) == 3 and self.path[2] in self.parts:
            self.parts[self.path[2]].append(text)

    def on_end(self, tag: str) -> None:
        if len(self.path) == 2 and tag == "property":
            name = "".join(self.parts.get("name", ())).strip()
            if not name:
                self.bad.append(BadLine(self.line, "a property without a name"))
            elif "value" in self.parts:
                self.found.append(Property(name, "".join(self.parts["value"]).strip(), self.line))
        self.path.pop()

    def on_doctype(self, *_: object) -> None:
        self.bad.append(BadLine(self.parser.CurrentLineNumber, "a document type: its entities are not resolved"))


def parse_hadoop_xml(text: str) -> tuple[list[Property], list[BadLine]]:
    """The properties in order, and what is wrong with the file. A property without a value is left out, as in Hadoop.

    Of a name that is set more than once the last counts, as in Hadoop. References are resolved.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    reading = _Reading(parser)
    parser.StartElementHandler = reading.on_start
    parser.EndElementHandler = reading.on_end
    parser.CharacterDataHandler = reading.on_text
    parser.StartDoctypeDeclHandler = reading.on_doctype
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        reading.bad.append(BadLine(error.lineno, f"no XML: {expat.ErrorString(error.code)}"))
    by_name = {found.name: found for found in reading.found}
    values = {name: found.value for name, found in by_name.items()}
    resolved = [Property(found.name, _resolved(found.value, values), found.line) for found in by_name.values()]
    return resolved, reading.bad


def unresolved(value: str) -> str | None:
    """The first reference in a value that nothing resolved; None where there is none."""
    found = _VARIABLE.search(value)
    return found[0] if found else None


def _resolved(value: str, values: dict[str, str]) -> str:
    for _ in range(SUBSTITUTIONS_MAX):
        replaced = _VARIABLE.sub(lambda found: values.get(found[1], found[0]), value)
        if replaced == value:
            break
        value = replaced
    return value
