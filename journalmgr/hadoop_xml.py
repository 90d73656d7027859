"""The properties of a Hadoop configuration file, as hdfs-site.xml: names and values with their lines. Pure.

    <configuration> <property> <name>KEY</name> <value>TEXT</value> <final>true</final> </property> ... </configuration>

`${KEY}` in a value stands for the value of KEY in the same file, innermost and leftmost first, as in Hadoop. A value
keeps its references, with a fault, in three cases: KEY is not set; SUBSTITUTIONS_MAX replacements leave references (as
in a cycle); or all replacements together lengthen the values of the file by more than GROWTH_MAX characters. The work
is therefore at most SUBSTITUTIONS_MAX times the size of the file plus the growth.

Differs from Apache: Java system properties are not used, and files that include others (xi:include) are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from bookkeeper.config.properties import FILE_SIZE_MAX, BadLine, Property

SUBSTITUTIONS_MAX = 20
"""References that are replaced in one value, as in Hadoop (Configuration.MAX_SUBST)."""

GROWTH_MAX = FILE_SIZE_MAX
"""Characters by which references may lengthen all values of one file together."""

_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_PARTS = ("name", "value")
_KNOWN = frozenset({*_PARTS, "description", "final", "source"})


@dataclass(frozen=True, slots=True)
class HadoopProperty(Property):
    """fault: why the value keeps its references, or "" if it has none."""

    fault: str = ""


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


def parse_hadoop_xml(text: str) -> tuple[list[HadoopProperty], list[BadLine]]:
    """The properties in order, and what is wrong with the file. A property without a value is left out, as in Hadoop.

    Of a name that is set more than once the last counts, as in Hadoop. References are resolved.
    """
    parser = expat.ParserCreate("UTF-8")  # the text is decoded, so the declared encoding is ignored
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
    resolver = _Resolver({name: found.value for name, found in by_name.items()})
    resolved = []
    for found in by_name.values():
        value, fault = resolver.resolve(found.value)
        resolved.append(HadoopProperty(found.name, value, found.line, fault))
    return resolved, reading.bad


class _Resolver:
    """Resolves the values of a file. Keeps the remaining growth for all of them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._growth_left = GROWTH_MAX

    def resolve(self, written: str) -> tuple[str, str]:
        """Return the value and "", or the unresolved value and the reason."""
        value, reference = written, ""
        for _ in range(SUBSTITUTIONS_MAX + 1):
            found = _VARIABLE.search(value)
            if found is None:
                return value, ""
            reference, replacement = found[0], self._values.get(found[1])
            if replacement is None:
                return written, f"this file does not set {reference}"
            growth = len(replacement) - len(reference)
            if growth > self._growth_left:
                return written, (
                    f"{reference} lengthens the values of this file by more than {GROWTH_MAX} characters; "
                    "write a shorter value"
                )
            self._growth_left -= max(0, growth)
            value = value[: found.start()] + replacement + value[found.end() :]
        return written, (
            f"its references are not resolved after {SUBSTITUTIONS_MAX} replacements, the last one of {reference} (a "
            "cycle of references never ends); write the value without them"
        )
