"""Effective settings of any table of keys: command line over environment over file over default.

    texts     from_conf, from_environment, from_command_line -> Given, one per key and place
    a table   a frozen settings class whose fields are declared by `keys.key`, with `faults()` between them
    rules     what names and values may be given at all: `Rules`, one per program

Everything is checked before anything is used, and one ConfigurationError lists every fault with where it stands.
Thread: any; reads the file once, synchronously, at start.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from bookkeeper.config.keys import Key, keys_of
from bookkeeper.config.properties import FILE_SIZE_MAX, parse_properties
from bookkeeper.errors import ConfigurationError

HIDDEN = "(hidden)"


class Settings(Protocol):
    """A settings class that `load_table` fills. It may also have `switched_off`; see SharedSettings."""

    def faults(self) -> Iterable[tuple[tuple[str, ...], str]]:
        """What is wrong between keys, each of which is right by itself: the keys, and why."""


S = TypeVar("S", bound=Settings)


class Source(enum.IntEnum):
    """Where a value came from; a greater one takes precedence."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    COMMAND_LINE = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the effective value of a key came from."""

    source: Source
    place: str
    """For messages: "/etc/bk_server.conf:12", "environment BK_bookiePort", "command line", "default"."""
    line: int = 0
    """Line of the file, from 1; 0 where there is none."""


DEFAULT_ORIGIN = Origin(Source.DEFAULT, "default")


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key that was set and has no effect; to be told once at start."""

    name: str
    reason: str
    origin: Origin
    is_warning: bool = False
    """True for a key of a feature that is off: the operator who set the key may expect the feature to be on."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `config show`."""

    key: Key
    text: str
    """The value as written, or its default; secrets are hidden."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Checked settings, and where each value came from."""

    settings: S
    rows: tuple[Row, ...]
    ignored: tuple[Ignored, ...]
    texts: Mapping[str, str] = field(repr=False)
    """What was given, by key, as written, secrets included: to give it on to somebody who has neither file nor
    environment."""

    def origin(self, name: str) -> Origin:
        """Where the effective value of a key came from. Raises KeyError for a name that is not in this table."""
        return {row.key.name: row.origin for row in self.rows}[name]


@dataclass(frozen=True, slots=True)
class ConfText:
    """The text of a configuration file that was read already, and its name for messages."""

    name: str
    text: str

    def origin(self, line: int) -> Origin:
        """A line of it, from 1."""
        return Origin(Source.FILE, f"{self.name}:{line}", line)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and where."""

    origin: Origin
    text: str


@dataclass(frozen=True, slots=True)
class Given:
    """One key, as it was set in one place."""

    name: str
    text: str
    origin: Origin


FAULTS_MAX = 100
"""Number of faults after which the check of a file ends. A file with more faults is probably the wrong file."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be given besides what the table reads.

    judge: why a key has no effect, None if it has; raises ValueError for one that must not stand at all.
    aliases: older name -> key; the key wins where both are set.
    """

    judge: Callable[[Given], str | None]
    aliases: Mapping[str, str] = field(default_factory=dict)


def load_table(
    cls: type[S],
    rules: Rules,
    texts: Iterable[Given],
    faults: list[Fault],
    *,
    unset: Callable[[str], Origin] | None = None,
) -> Loaded[S]:
    """Make settings of what was given. faults: those that were found on the way here; raises with all of them.

    unset: where a key would stand that is not set, for a fault of keys of which none is; `default` if None.
    Raises ConfigurationError.
    """
    ignored: dict[str, Ignored] = {}
    best: dict[str, Given] = {}
    for given in texts:
        if len(faults) > FAULTS_MAX:
            break  # a suggestion for an unknown key takes milliseconds, and a file may have thousands of them
        try:
            reason = rules.judge(given)
        except ValueError as error:
            faults.append(Fault(given.origin, str(error)))
            continue
        if reason is not None:
            ignored[given.name] = Ignored(given.name, reason, given.origin)
        elif (held := best.get(given.name)) is None or held.origin.source < given.origin.source:
            best[given.name] = given
        elif held.text != given.text:
            # Which of the two was meant is not ours to guess.
            faults.append(Fault(given.origin, f"{given.name} is set again (first at {held.origin.place})"))
    for old, name in rules.aliases.items():
        if old in best and name not in best:
            best[name] = best[old]
    table = keys_of(cls)
    values, broken = _parse_values(table, best, faults)
    settings = cls(**values)
    for names, why in settings.faults():
        if not broken.intersection(names):
            faults.append(Fault(_origin(names, best, unset), why))
    if faults:
        raise _error(faults)
    for names, reason in getattr(settings, "switched_off", tuple)():
        for key in (table[name] for name in names if name in best):
            if key.kind.parse(best[key.name].text) != key.kind.parse(key.default):
                ignored[key.name] = Ignored(key.name, reason, best[key.name].origin, is_warning=True)
    rows = tuple(_row(key, best.get(key.name)) for key in table.values())
    told = {name: best[name].text for name in table if name in best}
    return Loaded(settings, rows, tuple(ignored.values()), told)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` with the nearest known name, or nothing."""
    by_folded = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[near[0]]}?" if near else ""


# --- texts


def from_conf(conf: Path | ConfText | None, faults: list[Fault]) -> Iterator[Given]:
    """What a .conf file sets."""
    if isinstance(conf, Path):
        conf = read_conf(conf, faults)
    if conf is None:
        return
    properties, bad = parse_properties(conf.text)
    faults.extend(Fault(conf.origin(line.line), line.why) for line in bad)
    for found in properties:
        yield Given(found.name, found.value, conf.origin(found.line))


def read_conf(path: Path, faults: list[Fault]) -> ConfText | None:
    """The text of a configuration file; None, and a fault, where there is none to be had."""
    origin = Origin(Source.FILE, str(path))
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX + 1)
        if len(data) <= FILE_SIZE_MAX:
            return ConfText(str(path), data.decode("utf-8"))
        faults.append(Fault(origin, f"larger than {FILE_SIZE_MAX} bytes, which no configuration is"))
    except OSError as error:
        faults.append(Fault(origin, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        faults.append(Fault(origin, f"not UTF-8 text (byte {error.start})"))
    return None


def from_environment(environ: Mapping[str, str], prefix: str) -> Iterator[Given]:
    """What variables set whose names are `prefix` and a key. One all in upper case is none: no key is."""
    for variable, text in environ.items():
        name = variable.removeprefix(prefix)
        if name != variable and name != name.upper():
            yield Given(name, text.strip(), Origin(Source.ENVIRONMENT, f"environment {variable}"))


def from_command_line(overrides: Mapping[str, str]) -> Iterator[Given]:
    """What -D sets."""
    for name, text in overrides.items():
        yield Given(name, text.strip(), Origin(Source.COMMAND_LINE, "command line"))


# --- the table


def _error(faults: list[Fault]) -> ConfigurationError:
    """All faults in the order in which somebody who corrects them meets them: down the file, then what is around it."""
    ordered = sorted(faults, key=lambda fault: (fault.origin.source, fault.origin.line))
    listed = "".join(f"\n  {fault.origin.place}: {fault.text}" for fault in ordered[:FAULTS_MAX])
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    if len(faults) > FAULTS_MAX:
        count = f"more than {FAULTS_MAX} faults"
        listed += "\n  and more: correct these first, or name the right file"
    return ConfigurationError(f"{count} in the configuration:{listed}")


def _row(key: Key, given: Given | None) -> Row:
    text = key.default if given is None else given.text
    return Row(key, HIDDEN if key.secret and text else text, DEFAULT_ORIGIN if given is None else given.origin)


def _parse_values(
    table: Mapping[str, Key], best: Mapping[str, Given], faults: list[Fault]
) -> tuple[dict[str, Any], set[str]]:
    """Return keyword arguments of the settings class, and the keys whose text could not be read."""
    values: dict[str, Any] = {}
    broken: set[str] = set()
    for name, key in table.items():
        given = best.get(name)
        if given is None:
            continue
        try:
            values[key.attribute] = key.kind.parse(given.text)
        except ValueError as error:
            shown = HIDDEN if key.secret else given.text
            faults.append(Fault(given.origin, f"{given.name}={shown}: {error}"))
            broken.add(name)
    return values, broken


def _origin(names: tuple[str, ...], best: Mapping[str, Given], unset: Callable[[str], Origin] | None) -> Origin:
    """Where to look for a fault between keys: the places of those that were set at all."""
    origins = list(dict.fromkeys(best[name].origin for name in names if name in best))
    if not origins:
        return DEFAULT_ORIGIN if unset is None else unset(names[0])
    return Origin(origins[0].source, ", ".join(origin.place for origin in origins), origins[0].line)
