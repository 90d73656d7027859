"""The provider that a configuration names: a short name of one that is here, or package.module:factory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bookkeeper.auth.provider import BookieProvider, ClientProvider
from bookkeeper.config.security import PASSWORD_FILE
from bookkeeper.errors import ConfigurationError

if TYPE_CHECKING:
    from bookkeeper.config import ClientSettings, ServerSettings

_BOOKIE = {PASSWORD_FILE: "bookkeeper.auth.password_file:bookie_provider"}
_CLIENT = {PASSWORD_FILE: "bookkeeper.auth.password_file:client_provider"}


def bookie_provider(settings: ServerSettings, run_in_thread: Any) -> BookieProvider | None:
    """The provider of a bookie; None when none is named. Raises ConfigurationError."""
    name = settings.auth_provider
    if not name:
        return None
    factory = _factory("bookieAuthProviderFactoryClass", name, _BOOKIE.get(name, name))
    provider: BookieProvider = factory(settings, run_in_thread)
    return provider


def client_provider(settings: ClientSettings) -> ClientProvider | None:
    """The provider of a client; None when none is named. Raises ConfigurationError."""
    name = settings.auth_provider
    if not name:
        return None
    provider: ClientProvider = _factory("clientAuthProviderFactoryClass", name, _CLIENT.get(name, name))(settings)
    return provider


def _factory(key: str, name: str, target: str) -> Callable[..., Any]:
    module_name, _, attribute = target.partition(":")
    try:
        factory: Callable[..., Any] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"{key}={name} cannot be loaded: {error}; is its package on the Python path of this process?"
        ) from error
    return factory
