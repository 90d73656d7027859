"""Effective settings of bookies and clients: their tables, and the keys that Apache has and these tables do not.

Precedence and faults: see `table`. Thread: any; reads the file once, synchronously, at start.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

from bookkeeper.config.client import ClientSettings
from bookkeeper.config.ignored import IGNORED, REFUSED, SWITCHES, ignored_reason
from bookkeeper.config.keys import keys_of
from bookkeeper.config.server import ServerSettings
from bookkeeper.config.shared import SharedSettings
from bookkeeper.config.table import (
    ConfText,
    Fault,
    Given,
    Loaded,
    Rules,
    S,
    from_command_line,
    from_conf,
    from_environment,
    load_table,
    nearest,
)

ENVIRONMENT_PREFIX = "BK_"
"""The upstream container image has variables such as BK_DATA_DIR beside BK_<key>; those are no keys."""

ALIASES = {"journalDirectory": "journalDirectories"}
"""Older name -> key; the key wins where both are set."""


class Use(enum.Enum):
    """What a bookie's configuration is loaded for."""

    SERVE = "a bookie is to run with it, so that it must mean what it says"
    INSPECT = "somebody looks into the files of a bookie, ours or Apache's, or wants to be its client"


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
    return f"unknown key {name!r}" + nearest(name, known_names())


def _load(
    cls: type[S], conf: Path | ConfText | None, overrides: Mapping[str, str], environ: Mapping[str, str], use: Use
) -> Loaded[S]:
    faults: list[Fault] = []
    texts = (
        *from_conf(conf, faults),
        *from_environment(environ, ENVIRONMENT_PREFIX),
        *from_command_line(overrides),
    )
    return load_table(cls, Rules(partial(_judge, use), ALIASES), texts, faults)


def _judge(use: Use, given: Given) -> str | None:
    """Return why a key has no effect, or None if it has. Raises ValueError if it must not stand at all."""
    refusal = REFUSED.get(given.name) or SWITCHES.get(given.name)
    if refusal is not None:
        if given.text.lower() not in refusal.harmless:
            if given.name in SWITCHES and use is Use.INSPECT:
                return refusal.why
            raise ValueError(f"{given.name}={given.text} is refused: {refusal.why}")
        return "its value is what this release always does"
    reason = ignored_reason(given.name)
    if reason is None and given.name not in known_names():
        raise ValueError(unknown_key(given.name))
    return reason
