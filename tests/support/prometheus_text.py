"""Prometheus' text format 0.0.4, read strictly: what a scraper would refuse, or would take for something else, raises.

A family is HELP, TYPE, then its samples in one block; its name is used once. Summaries have quantiles, `_sum` and
`_count` for each set of the other labels, and no sample comes twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) (\S.*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|summary|histogram|untyped)")
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (\S+)")
_VALUE = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|NaN|[+-]Inf")


@dataclass(slots=True)
class Family:
    """One metric. samples: (name, labels as they are written) -> value."""

    help: str
    type: str = ""
    samples: dict[tuple[str, tuple[str, ...]], float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """All families by name. Raises ValueError with the line."""
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    families: dict[str, Family] = {}
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        where = f"line {number}: {line!r}"
        if found := _HELP.fullmatch(line):
            if found[1] in families:
                raise ValueError(f"{where}: {found[1]} comes twice")
            if name and not families[name].type:
                raise ValueError(f"{where}: {name} has no TYPE")
            name = found[1]
            families[name] = Family(found[2])
        elif found := _TYPE.fullmatch(line):
            if found[1] != name or families[name].type:
                raise ValueError(f"{where}: not behind its HELP")
            families[name].type = found[2]
        elif found := _SAMPLE.fullmatch(line):
            if not name or not families[name].type:
                raise ValueError(f"{where}: no TYPE before it")
            _take(families[name], name, found, where)
        else:
            raise ValueError(f"{where}: neither HELP, TYPE nor a sample")
    for name, family in families.items():
        _check(name, family)
    return families


def _take(family: Family, name: str, found: re.Match[str], where: str) -> None:
    endings = ("", "_sum", "_count") if family.type == "summary" else ("",)
    if found[1] not in [name + ending for ending in endings]:
        raise ValueError(f"{where}: no sample of {name}")
    if not _VALUE.fullmatch(found[3]):
        raise ValueError(f"{where}: no number")
    labels = tuple(sorted(re.findall(_LABEL, found[2] or "")))
    names = [label.partition("=")[0] for label in labels]
    if len(set(names)) < len(names) or (found[1], labels) in family.samples:
        raise ValueError(f"{where}: twice")
    family.samples[found[1], labels] = float(found[3])


def _check(name: str, family: Family) -> None:
    if not family.type or not family.samples:
        raise ValueError(f"{name} has no TYPE or no sample")
    if family.type == "counter" and any(value < 0 for value in family.samples.values()):
        raise ValueError(f"{name} is a counter below 0")
    if family.type != "summary":
        return
    for sample, labels in family.samples:
        others = tuple(label for label in labels if not label.startswith("quantile="))
        if (sample == name) != (others != labels):
            raise ValueError(f"{name}: a quantile label belongs to {name} alone, and {name} needs it")
        if not {(f"{name}_sum", others), (f"{name}_count", others)} <= set(family.samples):
            raise ValueError(f"{name}{{{','.join(others)}}} has no _sum or no _count")
