"""Whether the files that settings name would do, before a bookie or a client is started with them.

What counts is what either would read: a key that has no effect as the others are set may name anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from twisted.logger import LogLevel, capturedLogs, formatEvent

from bookkeeper.admin.access.tokens import read_tokens
from bookkeeper.auth.password_file import ClientPassword, UserFile
from bookkeeper.config import ClientSettings, Loaded, Placement
from bookkeeper.config.security import PASSWORD_FILE
from bookkeeper.console.output import counted, note
from bookkeeper.errors import ConfigurationError
from bookkeeper.system.secret_files import exposed_conf, warn_exposed
from bookkeeper.tls import NamedFile, bookie_options, client_options, load

TOKEN_KEY = "httpServerTokenFile"


def check_files(*configurations: Loaded[Any]) -> None:
    """Read the files of each. Raises ConfigurationError with all faults; what a start would warn of is noted."""
    named = {file: loaded.origin(file.key).place for loaded in configurations for file in _files(loaded.settings)}
    faults = [f"{place}: {why}" for file, place in named.items() if (why := _unreadable(file)) is not None]
    if not faults:
        with capturedLogs() as events:
            faults = list(dict.fromkeys(_contents_faults(configurations)))
            for loaded in configurations:
                warn_exposed(*exposed_conf(loaded))
        for text in dict.fromkeys(formatEvent(event) for event in events if event["log_level"] is LogLevel.warn):
            note(text)
    if faults:
        raise ConfigurationError(
            f"{counted(len(faults), 'fault')} in the files that the configuration names:"
            + "".join(f"\n  {fault}" for fault in faults)
        )


def _files(settings: Any) -> Iterator[NamedFile]:
    client = isinstance(settings, ClientSettings)
    options = client_options(settings) if client else bookie_options(settings)
    if options is not None:
        yield from options.files()
    if _token_file(settings):
        yield NamedFile(TOKEN_KEY, _token_file(settings))
    if settings.auth_provider == PASSWORD_FILE:
        yield NamedFile("clientPasswordFile" if client else "bookiePasswordFile", settings.auth_password_file)
    by_racks = client and (settings.placement is Placement.RACK_AWARE or settings.reorder_read_sequence)
    if by_racks and settings.network_topology_file:
        yield NamedFile("networkTopologyFile", settings.network_topology_file)


def _token_file(settings: Any) -> str:
    """Return the token file that a bookie or a hub with these settings would read, or ""."""
    return settings.http_server_token_file if getattr(settings, "http_server_enabled", False) else ""


def _unreadable(file: NamedFile) -> str | None:
    try:
        Path(file.path).open("rb").close()
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    return None


def _contents_faults(configurations: tuple[Loaded[Any], ...]) -> Iterator[str]:
    """What is wrong with files that can be read, found as a start would find it."""
    for loaded in configurations:
        settings = loaded.settings
        client = isinstance(settings, ClientSettings)
        options = client_options(settings) if client else bookie_options(settings)
        steps: list[Callable[[], object]] = []
        if options is not None:
            steps.append(partial(load, options))
        if settings.auth_provider == PASSWORD_FILE:
            steps.append(partial(_passwords, settings))
        if _token_file(settings):
            steps.append(partial(read_tokens, _token_file(settings), TOKEN_KEY))
        for step in steps:
            try:
                step()
            except ConfigurationError as error:
                yield str(error)


def _passwords(settings: Any) -> object:
    if isinstance(settings, ClientSettings):
        return ClientPassword(settings.auth_password_file, over_clear_text=settings.auth_over_clear_text)
    return UserFile(settings.auth_password_file)
