"""Which ports of a process are reported as open to other machines."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.admin.access.surfaces import (
    Surface,
    bookie_surfaces,
    http_surfaces,
    log_open_surfaces,
    open_surfaces,
)
from bookkeeper.config import ServerSettings
from bookkeeper.config.security import TLS_FACTORY
from hedwig.cli.hub import hub_surfaces
from hedwig.config.hub import HubConfig


@pytest.mark.parametrize(
    ("interface", "is_open"),
    [
        *(("", True), ("0.0.0.0", True), ("::", True), ("10.0.0.1", True), ("no-such-interface", True)),
        *(("127.0.0.1", False), ("::1", False), ("localhost", False), ("lo", False)),
    ],
)
def test_a_port_is_open_unless_only_this_machine_reaches_it(interface: str, is_open: bool) -> None:
    assert Surface("bookie", interface, 3181, "x").is_open == is_open


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (ServerSettings(), ["bookie *:3181"]),
        (ServerSettings(listening_interface="127.0.0.1"), []),
        (ServerSettings(auth_provider="password-file"), []),
        (ServerSettings(tls_factory=TLS_FACTORY), ["bookie *:3181"]),
        (ServerSettings(tls_factory=TLS_FACTORY, tls_client_authentication=True), []),
        (
            ServerSettings(tls_factory=TLS_FACTORY, tls_client_authentication=True, tls_required=False),
            ["bookie *:3181"],
        ),
        (ServerSettings(auth_provider="password-file", http_server_enabled=True), []),
        (ServerSettings(auth_provider="password-file", http_server_host="::"), []),
        (
            ServerSettings(auth_provider="password-file", http_server_enabled=True, http_server_host="::"),
            ["HTTP [::]:8080"],
        ),
        (
            ServerSettings(
                auth_provider="password-file",
                http_server_enabled=True,
                http_server_host="::",
                http_server_token_file="tokens",
            ),
            [],
        ),
    ],
)
def test_a_bookie_names_what_asks_for_no_credentials(settings: ServerSettings, names: list[str]) -> None:
    assert [each.partition(" (")[0] for each in open_surfaces(bookie_surfaces(settings))] == names


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (ServerSettings(), "tlsProviderFactoryClass and tlsClientAuthentication=true"),
        (ServerSettings(tls_client_authentication=True), "tlsProviderFactoryClass"),
        (ServerSettings(tls_factory=TLS_FACTORY), "tlsClientAuthentication=true"),
        (
            ServerSettings(tls_factory=TLS_FACTORY, tls_required=False),
            "tlsClientAuthentication=true and tlsRequired=true",
        ),
        (
            ServerSettings(tls_factory=TLS_FACTORY, tls_client_authentication=True, tls_required=False),
            "tlsRequired=true",
        ),
    ],
)
def test_the_remedy_names_only_what_is_missing(settings: ServerSettings, missing: str) -> None:
    (surface,) = open_surfaces(bookie_surfaces(settings))
    assert surface.endswith(f"restrict it with bookieAuthProviderFactoryClass, or with {missing})")


def test_an_http_port_that_shows_entries_is_named_as_such() -> None:
    def shown(**options: Any) -> str:
        (surface,) = open_surfaces(http_surfaces(enabled=True, host="::", port=80, token_file="", **options))
        return surface

    assert shown() == "HTTP [::]:80 (reads only; restrict it with httpServerTokenFile)"
    assert "also of entries, without the passwords of their ledgers; restrict" in shown(ledger_content=True)
    assert shown(what="name node", key="x.y").startswith("name node [::]:80 (reads only; restrict it with x.y")
    content = {"http_server_enabled": True, "http_server_host": "::", "http_server_ledger_content": True}
    for settings in (bookie_surfaces(ServerSettings(**content)), hub_surfaces(HubConfig(**content))):
        assert "also of entries" in open_surfaces(settings)[-1]


def test_a_hub_names_all_its_ports() -> None:
    config = HubConfig(ssl_enabled=True, http_server_enabled=True, http_server_host="10.0.0.1")
    names = [each.partition(" (")[0] for each in open_surfaces(hub_surfaces(config))]
    assert names == ["hub *:4080", "hub TLS *:9876", "HTTP 10.0.0.1:8080"]
    assert open_surfaces(hub_surfaces(HubConfig(listening_interface="127.0.0.1"))) == []


def test_open_ports_are_one_line_of_the_log_and_none_without_any() -> None:
    with capturedLogs() as events:
        log_open_surfaces(http_surfaces(enabled=True, host="127.0.0.1", port=1, token_file=""))
        log_open_surfaces(bookie_surfaces(ServerSettings(http_server_enabled=True, http_server_host="0.0.0.0")))
    (line,) = [formatEvent(event) for event in events]
    assert "bookie *:3181 (" in line
    assert "; HTTP 0.0.0.0:8080 (" in line
