"""Curl lines in advice satisfy the rules of the server that they name."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import subprocess
from pathlib import Path

import pytest

from bookkeeper.admin.access.curl import PLACEHOLDER, curl_line, order_line
from bookkeeper.admin.access.rules import Head, Role, Rules, Tokens
from bookkeeper.config import ServerSettings

PATH = "/api/v1/bookie/gc"
SERVED = ServerSettings(http_server_enabled=True)
READ, OPERATE = "r" * 16, "o" * 16


def head_of(line: str) -> Head:
    """Return the request that a curl line sends from this machine. A shell expands the line; curl is not run."""
    program = f"curl() {{ printf '%s\\n' \"$@\"; }}; {line}"
    words = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    headers: dict[str, list[str]] = {"host": ["127.0.0.1:8080"]}
    if "-d" in words:
        headers["content-type"] = ["application/x-www-form-urlencoded"]
    for flag, text in itertools.pairwise(words):
        if flag == "-H":
            name, _, value = text.partition(": ")
            headers[name.lower()] = [value]
    return Head(words[words.index("-X") + 1], PATH, "127.0.0.1", headers)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_a_server_without_tokens_answers_the_line(method: str) -> None:
    line = curl_line(method, f"http://127.0.0.1:8080{PATH}", '{"a": true}')
    assert Rules().by_network(head_of(line)).status == 0
    assert "Authorization" not in line


@pytest.mark.parametrize(("method", "role"), [("GET", Role.READ), ("PUT", Role.OPERATE), ("POST", Role.OPERATE)])
@pytest.mark.parametrize("name", ["tokens", "tokens of $HOME's"])
def test_a_server_with_tokens_gets_one_for_the_method(method: str, role: Role, name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(f"# operate {'c' * 16}\nread     {READ}\n  operate  {OPERATE}\noperate {'l' * 16}\n")
    line = curl_line(method, f"http://127.0.0.1:8080{PATH}", '{"a": true}', token_file=str(file))
    verdict = Rules().by_token(head_of(line), Tokens({READ: Role.READ, OPERATE: Role.OPERATE}))
    assert (verdict.status, verdict.role) == (0, role)


@pytest.mark.parametrize(
    ("settings", "needed", "url"),
    [
        (SERVED, "", "http://127.0.0.1:8080"),
        (ServerSettings(), "with httpServerEnabled=true: ", "http://127.0.0.1:8080"),
        (dataclasses.replace(SERVED, http_server_host="0.0.0.0"), "", "http://127.0.0.1:8080"),
        (dataclasses.replace(SERVED, http_server_host="::"), "", "http://[::1]:8080"),
        (
            ServerSettings(http_server_host="192.0.2.7", http_server_port=81),
            f"with httpServerEnabled=true and httpServerTokenFile={PLACEHOLDER}: ",
            "http://192.0.2.7:81",
        ),
    ],
)
def test_an_order_names_the_settings_that_it_needs(settings: ServerSettings, needed: str, url: str) -> None:
    line = order_line(settings, "PUT", PATH)
    assert line.startswith(f"{needed}curl -X PUT ")
    assert line.endswith(f" {url}{PATH}")
    assert ("Authorization" in line) == ("httpServerTokenFile" in needed)


def test_an_order_reads_its_token_from_the_file_that_is_set() -> None:
    line = order_line(dataclasses.replace(SERVED, http_server_token_file="/etc/bk tokens"), "PUT", PATH, '{"a": 1}')
    assert shlex.split(line) == [
        *("curl", "-X", "PUT", "-H"),
        "Authorization: Bearer $(awk '/^ *operate/{print $2; exit}' '/etc/bk tokens')",
        *("-d", '{"a": 1}', f"http://127.0.0.1:8080{PATH}"),
    ]
