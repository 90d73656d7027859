"""Effective settings out of command line, environment, file and defaults, in that order of precedence.

Everything is checked before anything is used, and one ConfigurationError lists every fault with where it stands.
Thread: any; reads the file once, synchronously, at start.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from bookkeeper.config.client import ClientSettings
from bookkeeper.config.ignored import IGNORED, REFUSED, SWITCHES, ignored_reason
from bookkeeper.config.keys import Key, keys_of
from bookkeeper.config.properties import FILE_SIZE_MAX, parse_properties
from bookkeeper.config.server import ServerSettings
from bookkeeper.config.shared import SharedSettings
from bookkeeper.errors import ConfigurationError

S = TypeVar("S", ServerSettings, ClientSettings, SharedSettings)

ENVIRONMENT_PREFIX = "BK_"
ALIASES = {"journalDirectory": "journalDirectories"}
"""Older name -> key; the key wins where both are set."""
HIDDEN = "(hidden)"


class Use(enum.Enum):
    """What a bookie's configuration is loaded for."""

    SERVE = "a bookie is to run with it, so that it must mean what it says"
    INSPECT = "somebody looks into the files of a bookie, ours or Apache's, or wants to be its client"


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

    def origin(self, name: str) -> Origin:
        """Where the effective value of a key came from. Raises KeyError for a name that is not in this table."""
        return {row.key.name: row.origin for row in self.rows}[name]


@dataclass(frozen=True, slots=True)
class ConfText:
    """The text of a .conf file that was read already, and its name for messages."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class _Fault:
    origin: Origin
    text: str


@dataclass(frozen=True, slots=True)
class _Given:
    name: str
    text: str
    origin: Origin


def load_server(
    conf: Path | ConfText | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    use: Use = Use.SERVE,
) -> Loaded[ServerSettings]:
    """Return a bookie's settings.

    conf: a .conf file, or None for none. overrides: from the command line. environ: the process's own by default.
    Raises ConfigurationError, listing all faults.
    """
    return _load(ServerSettings, conf, overrides or {}, os.environ if environ is None else environ, use)


def load_client(
    conf: str | Path | ConfText | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded[ClientSettings]:
    """Return a client's settings, in `.settings`: of a file, below the environment, below `overrides` (by key).

    conf: a path, or None for no file. One file may serve bookies and clients: each reads its own keys. Otherwise as
    `load_server`.
    """
    conf = Path(conf) if isinstance(conf, str) else conf
    return _load(ClientSettings, conf, overrides or {}, os.environ if environ is None else environ, Use.INSPECT)


def load_shared(
    conf: Path | ConfText | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded[SharedSettings]:
    """Return how to talk to the metadata store; a file for bookies will do, one for clients too. As `load_server`."""
    return _load(SharedSettings, conf, overrides or {}, os.environ if environ is None else environ, Use.INSPECT)


@cache
def known_names() -> frozenset[str]:
    """All keys that may be set anywhere, ignored and refused ones included (families only by their prefix)."""
    return frozenset([*keys_of(ServerSettings), *keys_of(ClientSettings), *IGNORED, *REFUSED, *SWITCHES, *ALIASES])


def unknown_key(name: str) -> str:
    """Say that a key is unknown, and which known one is nearest."""
    by_folded = {known.lower(): known for known in known_names()}
    near = get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return f"unknown key {name!r}" + (f"; did you mean {by_folded[near[0]]}?" if near else "")


def _load(
    cls: type[S], conf: Path | ConfText | None, overrides: Mapping[str, str], environ: Mapping[str, str], use: Use
) -> Loaded[S]:
    faults: list[_Fault] = []
    ignored: dict[str, Ignored] = {}
    best: dict[str, _Given] = {}
    for given in (*_from_conf(conf, faults), *_from_environment(environ), *_from_command_line(overrides)):
        reason = _disposition(given, use, faults)
        if reason is not None:
            ignored[given.name] = Ignored(given.name, reason, given.origin)
        elif (held := best.get(given.name)) is None or held.origin.source < given.origin.source:
            best[given.name] = given
        elif held.text != given.text:
            # Only a file can name a key twice; which of the two was meant is not ours to guess.
            faults.append(_Fault(given.origin, f"{given.name} is set again (first at {held.origin.place})"))
    for old, name in ALIASES.items():
        if old in best and name not in best:
            best[name] = best[old]
    table = keys_of(cls)
    values, broken = _parse_values(table, best, faults)
    settings = cls(**values)
    for names, why in settings.faults():
        if not broken.intersection(names):
            faults.append(_Fault(_origin(names, best), why))
    if faults:
        raise _error(faults)
    rows = tuple(_row(key, best.get(key.name)) for key in table.values())
    return Loaded(settings, rows, tuple(ignored.values()))


def _error(faults: list[_Fault]) -> ConfigurationError:
    """All faults in the order in which somebody who corrects them meets them: down the file, then what is around it."""
    ordered = sorted(faults, key=lambda fault: (fault.origin.source, fault.origin.line))
    listed = "".join(f"\n  {fault.origin.place}: {fault.text}" for fault in ordered)
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return ConfigurationError(f"{count} in the configuration:{listed}")


def _row(key: Key, given: _Given | None) -> Row:
    text = key.default if given is None else given.text
    return Row(key, HIDDEN if key.secret and text else text, DEFAULT_ORIGIN if given is None else given.origin)


def _read(path: Path, faults: list[_Fault]) -> ConfText | None:
    origin = Origin(Source.FILE, str(path))
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX + 1)
        if len(data) <= FILE_SIZE_MAX:
            return ConfText(str(path), data.decode("utf-8"))
        faults.append(_Fault(origin, f"larger than {FILE_SIZE_MAX} bytes, which no configuration is"))
    except OSError as error:
        faults.append(_Fault(origin, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        faults.append(_Fault(origin, f"not UTF-8 text (byte {error.start})"))
    return None


def _from_conf(conf: Path | ConfText | None, faults: list[_Fault]) -> Iterator[_Given]:
    if isinstance(conf, Path):
        conf = _read(conf, faults)
    if conf is None:
        return
    properties, bad = parse_properties(conf.text)
    faults.extend(_Fault(_in_file(conf, line.line), line.why) for line in bad)
    for found in properties:
        yield _Given(found.name, found.value, _in_file(conf, found.line))


def _in_file(conf: ConfText, line: int) -> Origin:
    return Origin(Source.FILE, f"{conf.name}:{line}", line)


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for variable, text in environ.items():
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        # The upstream container image has variables such as BK_DATA_DIR beside BK_<key>; no key is all upper case.
        if name != variable and name != name.upper():
            yield _Given(name, text.strip(), Origin(Source.ENVIRONMENT, f"environment {variable}"))


def _from_command_line(overrides: Mapping[str, str]) -> Iterator[_Given]:
    for name, text in overrides.items():
        yield _Given(name, text.strip(), Origin(Source.COMMAND_LINE, "command line"))


def _disposition(given: _Given, use: Use, faults: list[_Fault]) -> str | None:
    """Return why a key has no effect, or None if it has; note it as a fault if it must not stand at all."""
    refusal = REFUSED.get(given.name) or SWITCHES.get(given.name)
    if refusal is not None:
        if given.text.lower() not in refusal.harmless:
            if given.name in SWITCHES and use is Use.INSPECT:
                return refusal.why
            faults.append(_Fault(given.origin, f"{given.name}={given.text} is refused: {refusal.why}"))
        return "its value is what this release always does"
    reason = ignored_reason(given.name)
    if reason is None and given.name not in known_names():
        faults.append(_Fault(given.origin, unknown_key(given.name)))
    return reason


def _parse_values(
    table: Mapping[str, Key], best: Mapping[str, _Given], faults: list[_Fault]
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
            faults.append(_Fault(given.origin, f"{given.name}={shown}: {error}"))
            broken.add(name)
    return values, broken


def _origin(names: tuple[str, ...], best: Mapping[str, _Given]) -> Origin:
    """Where to look for a fault between keys: the places of those that were set at all."""
    origins = list(dict.fromkeys(best[name].origin for name in names if name in best))
    if not origins:
        return DEFAULT_ORIGIN
    return Origin(origins[0].source, ", ".join(origin.place for origin in origins), origins[0].line)
