"""Which requests HTTP servers answer, decided by their heads."""

from __future__ import annotations

import pytest

from bookkeeper.admin.access.rules import (
    Head,
    Role,
    Rules,
    Tokens,
    Verdict,
    host_name,
)

RULES = Rules(frozenset({"bk1", "bk1.example.org"}), form_posts="/webhdfs/v1")
READ, OPERATE = "r" * 20, "o" * 20
TOKENS = Tokens({READ: Role.READ, OPERATE: Role.OPERATE})
FORM = "application/x-www-form-urlencoded"


def head(method: str = "GET", path: str = "/metrics", peer: str = "127.0.0.1", **headers: str | list[str]) -> Head:
    named = {"host": "bk1:8080", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Head(
        method, path, peer, {name: [value] if isinstance(value, str) else value for name, value in named.items()}
    )


def status(verdict: Verdict) -> int:
    assert bool(verdict.status) == bool(verdict.message)
    return verdict.status


# --- without tokens


@pytest.mark.parametrize(
    "host",
    ["bk1", "BK1:8080", "bk1.example.org.", "bk1.example.org.:80", "127.0.0.1", "10.0.0.1:8080", "[::1]:8080", "[::1]"],
)
def test_an_address_or_a_name_of_the_server_is_a_host(host: str) -> None:
    assert status(RULES.by_network(head(host=host))) == 0


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "bk1.evil.example", "bk1@evil.example", "127.0.0.1.evil.example", ""),
        *("bk1:8080:1", "[bk1]", "[::1", "bk1/", "bk1 evil.example", "bk1..", "0x7f.1", "xbk1", "bk1:a"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_any_other_host_is_misdirected(host: str, method: str) -> None:
    verdict = RULES.by_network(head(method, host=host))
    assert status(verdict) == 421
    assert "httpServerAllowedHosts" in verdict.message


def test_a_request_without_host_is_answered_and_one_with_two_is_not() -> None:
    assert status(RULES.by_network(head(host=[]))) == 0
    assert status(RULES.by_network(head(host=["bk1", "evil.example"]))) == 400
    assert status(RULES.by_network(head(host=[], origin="http://bk1"))) == 403


@pytest.mark.parametrize(
    ("host", "origin", "found"),
    [
        ("bk1:8080", "http://bk1:8080", 0),
        ("bk1", "http://bk1:80", 0),
        ("[::1]:8080", "http://[::1]:8080", 0),
        ("bk1:8080", "https://bk1:8080", 403),
        ("bk1:8080", "http://bk1:8081", 403),
        ("bk1:8080", "http://bk1", 403),
        ("bk1:8080", "http://evil.example", 403),
        ("bk1:8080", "null", 403),
        ("bk1:8080", "bk1:8080", 403),
        ("bk1:8080", "", 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_page_may_ask_only_the_server_it_came_from(host: str, origin: str, found: int, method: str) -> None:
    assert status(RULES.by_network(head(method, host=host, origin=origin))) == found
    assert status(RULES.by_token(head(host=host, origin=origin, authorization=f"Bearer {READ}"), TOKENS)) == found


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH", "get"])
@pytest.mark.parametrize(
    ("peer", "found"),
    [("127.0.0.1", 0), ("127.8.9.1", 0), ("::1", 0), ("::ffff:127.0.0.1", 0)]
    + [(peer, 403) for peer in ("10.0.0.1", "fe80::1", "::ffff:10.0.0.1", "", "localhost", "0.0.0.0")],
)
def test_only_this_machine_changes_anything(method: str, peer: str, found: int) -> None:
    verdict = RULES.by_network(head(method, peer=peer, x_bookkeeper_request="1"))
    assert status(verdict) == found
    assert not found or "httpServerTokenFile" in verdict.message
    assert status(RULES.by_network(head(peer=peer))) == 0


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, 403),
        ({"content_type": ""}, 403),
        ({"content_type": FORM}, 403),
        ({"content_type": "Multipart/Form-Data; boundary=x"}, 403),
        ({"content_type": "text/plain;charset=utf-8"}, 403),
        ({"content_type": ["application/json", FORM]}, 403),
        ({"content_type": "application/json; charset=utf-8"}, 0),
        ({"content_type": FORM, "x_bookkeeper_request": "1"}, 0),
    ],
)
def test_a_post_that_a_form_could_send_is_refused(headers: dict[str, str], found: int) -> None:
    verdict = RULES.by_network(head("POST", "/release", **headers))
    assert status(verdict) == found
    assert not found or "X-BookKeeper-Request: 1" in verdict.message
    assert status(RULES.by_network(head("PUT", "/release", **headers))) == 0


@pytest.mark.parametrize(
    ("path", "agent", "found"),
    [
        ("/webhdfs/v1/a", ["Java/17.0.1"], 0),
        ("/webhdfs/v1/a", [], 0),
        ("/webhdfs/v1/a", ["Mozilla/5.0 (X11)"], 403),
        ("/webhdfs/v1/a", ["Opera/9.80"], 403),
        ("/api/v1/roll", ["Java/17.0.1"], 403),
    ],
)
def test_a_post_of_webhdfs_needs_the_header_from_browsers_alone(path: str, agent: list[str], found: int) -> None:
    assert status(RULES.by_network(head("POST", path, content_type=FORM, user_agent=agent))) == found


def test_a_server_without_webhdfs_needs_the_header_from_every_program() -> None:
    rules = Rules(RULES.names)
    assert status(rules.by_network(head("POST", "/release", content_type=FORM, user_agent="Java/17.0.1"))) == 403


# --- with tokens


@pytest.mark.parametrize(
    ("method", "authorization", "found", "role"),
    [
        ("GET", f"Bearer {READ}", 0, Role.READ),
        ("GET", f"bearer  {OPERATE}", 0, Role.OPERATE),
        ("DELETE", f"Bearer {OPERATE}", 0, Role.OPERATE),
        ("POST", f"Bearer {OPERATE}", 0, Role.OPERATE),
        ("DELETE", f"Bearer {READ}", 403, Role.READ),
        ("GET", [], 401, None),
        ("GET", "", 401, None),
        ("GET", "Bearer", 401, None),
        ("GET", f"Bearer {READ}x", 401, None),
        ("GET", f"Bearer {READ[1:]}", 401, None),
        ("GET", f"Basic {READ}", 401, None),
        ("GET", READ, 401, None),
        ("GET", [f"Bearer {READ}", f"Bearer {OPERATE}"], 401, None),
        ("GET", "Bearer \udcff", 401, None),
    ],
)
def test_a_token_decides_what_a_peer_anywhere_may_do(
    method: str, authorization: str | list[str], found: int, role: Role | None
) -> None:
    verdict = RULES.by_token(head(method, peer="10.0.0.1", host="proxy", authorization=authorization), TOKENS)
    assert (status(verdict), verdict.role) == (found, role)
    assert dict(verdict.headers).get("WWW-Authenticate", "").startswith("Bearer") == (found == 401)
    assert READ not in verdict.message


@pytest.mark.parametrize(
    ("authorization", "said"),
    [
        ([], "the token is missing; send Authorization: Bearer TOKEN"),
        ("", "the token is missing; send"),
        ("Bearer", "the token is missing; send"),
        ("Bearer   ", "the token is missing; send"),
        ("Basic abc", "Authorization does not begin with Bearer; send Authorization: Bearer TOKEN"),
        (READ, "Authorization does not begin with Bearer; send"),
        (f"Bearer {READ}x", "the token is unknown to this server; send"),
        ([f"Bearer {READ}", f"Bearer {READ}"], "Authorization is given 2 times; send"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_the_credentials(authorization: str | list[str], said: str) -> None:
    verdict = RULES.by_token(head(host="proxy", authorization=authorization), TOKENS)
    assert verdict.message.startswith(said)


def test_a_heartbeat_alone_needs_no_token() -> None:
    assert status(RULES.by_token(head(path="/heartbeat"), TOKENS)) == 0
    assert status(RULES.by_token(head(path="/heartbeat/"), None)) == 0
    assert status(RULES.by_token(head("PUT", path="/heartbeat"), TOKENS)) == 401
    assert status(RULES.by_token(head(path="/heartbeatx"), TOKENS)) == 401


def test_while_tokens_cannot_be_read_none_is_taken() -> None:
    assert status(RULES.by_token(head(authorization=f"Bearer {READ}"), None)) == 503


# --- names


def test_names_are_compared_without_case_and_final_dot() -> None:
    assert host_name(" BK1.Example.org. ") == "bk1.example.org"
