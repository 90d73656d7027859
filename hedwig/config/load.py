"""Effective settings of a hub, and how any table of this package is loaded.

    command line (-D KEY=VALUE) > environment (HW_KEY) > file > default

Precedence and faults: see `bookkeeper.config.table`. Thread: any; reads the file once, synchronously, at start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bookkeeper.config.keys import keys_of
from bookkeeper.config.table import (
    ConfText,
    Fault,
    Loaded,
    Rules,
    S,
    from_command_line,
    from_conf,
    from_environment,
    load_table,
)
from hedwig.config.hub import HubConfig
from hedwig.config.ignored import judge

ENVIRONMENT_PREFIX = "HW_"


def load_hub(
    conf: Path | ConfText | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded[HubConfig]:
    """Return a hub's settings.

    conf: a .conf file, or None for none. overrides: from the command line. environ: the process's own by default.
    Raises ConfigurationError, listing all faults.
    """
    return load(HubConfig, Rules(judge), conf, overrides, environ)


def load(
    cls: type[S],
    rules: Rules,
    conf: Path | ConfText | None,
    overrides: Mapping[str, str] | None,
    environ: Mapping[str, str] | None,
) -> Loaded[S]:
    """A table of this package: from a .conf file, HW_<key> in the environment, the command line."""
    faults: list[Fault] = []
    texts = (
        *from_conf(conf, faults),
        *from_environment(_of_this_program(cls, os.environ if environ is None else environ), ENVIRONMENT_PREFIX),
        *from_command_line(overrides or {}),
    )
    return load_table(cls, rules, texts, faults)


def _of_this_program(cls: type, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Without the settings of the other kind of program: a machine's environment may have a hub's and a client's."""
    if not any(name.startswith(ENVIRONMENT_PREFIX) for name in environ):
        return environ
    from hedwig.client_config import HedwigClientSettings  # which imports this module

    known = keys_of(cls).keys()
    others = {name for table in (HubConfig, HedwigClientSettings) for name in keys_of(table) if name not in known}
    return {name: value for name, value in environ.items() if name.removeprefix(ENVIRONMENT_PREFIX) not in others}
