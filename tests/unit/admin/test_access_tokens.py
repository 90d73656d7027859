"""Token files: format, permissions, and changes while a server runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from bookkeeper.admin.access.audit import TARGET_SHOWN_MAX, Audit, shown_target
from bookkeeper.admin.access.gate import Gate, make_gate
from bookkeeper.admin.access.rules import Head, Role, Rules, Verdict
from bookkeeper.admin.access.tokens import ENVIRONMENT, TOKENS_MAX, authorization, parse_tokens, read_tokens
from bookkeeper.bookie.connections.listeners import Listening
from bookkeeper.bookie.process.process_context import surroundings_of
from bookkeeper.cli import autorecovery
from bookkeeper.config import ClientSettings, ServerSettings, load_server
from bookkeeper.errors import ConfigurationError
from bookkeeper.filesystem import RealFileSystem
from hedwig.hub.server import HttpSettings, Hub, HubSettings
from journalmgr.namenode.server import NameNode, NameNodeSettings

READ, OPERATE = "r" * 20, "o" * 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "tokens", f"read {READ}\noperate {OPERATE}\n")


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    """Replace the file with another inode, as editors do. The change is visible even with a coarse clock."""
    new = path.with_name("new")
    new.write_text(text)
    new.chmod(mode)
    new.rename(path)
    return path


def asked(gate: Gate, token: str, method: str = "GET", host: str = "127.0.0.1") -> int:
    headers = {"host": [host], "authorization": [f"Bearer {token}"] if token else []}
    return gate.check(Head(method, "/metrics", "127.0.0.1", headers)).status


def test_a_line_is_a_role_and_a_token() -> None:
    found = parse_tokens(f"# for Prometheus\n\n  read   {READ}\noperate\t{OPERATE}\n")
    assert found == {READ: Role.READ, OPERATE: Role.OPERATE}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no token"),
        ("# read only\n", "no token"),
        (f"admin {READ}", "line 1 is not"),
        (READ, "line 1 is not"),
        (f"read {READ} {OPERATE}", "line 1 is not"),
        ("\nread short", "line 2: a token has"),
        ("read " + "x" * 513, "line 1: a token has"),
        (f"read {READ}!", "line 1: a token has"),
        (f"read {READ}\noperate {READ}", "line 2 repeats"),
        ("".join(f"read {number:020}\n" for number in range(TOKENS_MAX + 1)), f"{TOKENS_MAX + 1} tokens"),
    ],
)
def test_an_unusable_token_file_is_refused_without_showing_a_token(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_tokens(text)
    assert READ not in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o666])
def test_a_file_that_others_may_use_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"other users .* may .*: chmod (o-r|go-w|o-r,go-w) "):
        read_tokens(str(path), "httpServerTokenFile")


def test_a_file_that_is_missing_or_no_text_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"httpServerTokenFile=.*cannot be read"):
        Gate(Rules(), str(tmp_path / "none"))
    other = tmp_path / "binary"
    other.write_bytes(b"read \xff")
    other.chmod(0o600)
    with pytest.raises(ConfigurationError, match="not ASCII"):
        read_tokens(str(other), "httpServerTokenFile")


def test_a_changed_file_is_read_again_and_a_broken_one_lets_none_in(path: Path) -> None:
    gate = Gate(Rules(), str(path))
    assert [asked(gate, READ), asked(gate, OPERATE, "PUT"), asked(gate, READ, "PUT"), asked(gate, "")] == [
        *(0, 0, 403, 401)
    ]
    written(path, f"read {'n' * 20}")
    assert [asked(gate, READ), asked(gate, "n" * 20)] == [401, 0]
    with capturedLogs() as events:
        written(path, "read it yourself")
        assert [asked(gate, "n" * 20), asked(gate, "")] == [503, 503]
    assert ["All requests are refused" in formatEvent(event) for event in events] == [True]
    written(path, f"read {READ}", 0o644)
    assert asked(gate, READ) == 503
    path.unlink()
    assert asked(gate, READ) == 503
    written(path, f"operate {OPERATE}")
    assert [asked(gate, OPERATE, "PUT"), asked(gate, READ)] == [0, 401]


def test_a_server_looks_its_name_up_only_without_configured_names() -> None:
    def refused() -> str:
        raise AssertionError("a name server may be slow")

    def gate(host: str, advertised: str | None, allowed: tuple[str, ...] = (), own: str = "") -> Gate:
        look_up = (lambda: own) if own else refused
        return make_gate(host, token_file="", allowed_hosts=allowed, advertised=advertised, own=look_up)

    assert asked(gate("127.0.0.1", None), "", host="localhost:8080") == 0
    assert asked(gate("0.0.0.0", "bk1", ("Proxy",)), "", host="bk1") == 0
    assert asked(gate("0.0.0.0", "bk1", ("Proxy",)), "", host="proxy") == 0
    assert asked(gate("0.0.0.0", "bk1"), "", host="bk1.example.org") == 421
    assert asked(gate("0.0.0.0", None, own="bk1.example.org"), "", host="bk1.example.org") == 0


def test_commands_send_the_token_that_fits_the_method(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert authorization("GET") == {}
    monkeypatch.setenv(ENVIRONMENT, str(path))
    assert authorization("GET") == {"Authorization": f"Bearer {READ}"}
    assert authorization("PUT") == {"Authorization": f"Bearer {OPERATE}"}
    written(path, f"operate {OPERATE}")
    assert authorization("GET") == {"Authorization": f"Bearer {OPERATE}"}
    written(path, "")
    with pytest.raises(ValueError, match=ENVIRONMENT):
        authorization("GET")


def test_a_target_is_one_printable_word_of_bounded_length() -> None:
    assert shown_target(b"/a?x=%20\x1b[2J\r\n\xff&y= ") == "/a?x=%20%1B[2J%0D%0A%FF&y=%20"
    assert shown_target(b"x" * 20_000) == "x" * TARGET_SHOWN_MAX + "..."


def test_refusals_of_a_peer_are_logged_once_per_interval_and_counted() -> None:
    clock = Clock()
    audit = Audit(clock)  # type: ignore[arg-type] # twisted's test clock has no types
    with capturedLogs() as events:
        for _ in range(100):
            audit.on_answer(b"DELETE", b"/a", "10.0.0.1", Verdict(403, "no"), 403)
        audit.on_answer(b"DELETE", b"/a", "10.0.0.2", Verdict(403, "no"), 403)
        audit.on_answer(b"DELETE", b"/a", "10.0.0.1", Verdict(role=Role.OPERATE), 200)
        clock.advance(60.0)
    told = [formatEvent(event) for event in events if event["log_level"].name == "info"]
    assert told == [
        "HTTP DELETE /a of 10.0.0.1, role none: 403",
        "HTTP DELETE /a of 10.0.0.2, role none: 403",
        "HTTP DELETE /a of 10.0.0.1, role operate: 200",
        "HTTP requests were refused and not logged: 99 x 403 for 10.0.0.1",
    ]


# --- the start of a server


async def start_bookie(token_file: str) -> None:
    settings = ServerSettings(http_server_enabled=True, http_server_token_file=token_file)
    Listening(surroundings_of(settings, Clock(), RealFileSystem()))


async def start_hub(token_file: str) -> None:
    http = HttpSettings("127.0.0.1", 0, token_file)
    await Hub(Clock(), HubSettings(metadata_uri="zk://store/ledgers", host="127.0.0.1", http=http)).start()


async def start_auto_recovery(token_file: str) -> None:
    words = {"metadataServiceUri": "zk://store/ledgers", "httpServerEnabled": "true", "httpServerTokenFile": token_file}
    await autorecovery.Process(load_server(None, words, {}), ClientSettings(), Clock())._start()  # noqa: SLF001


async def start_name_node(token_file: str) -> None:
    await NameNode(Clock(), NameNodeSettings(journal="bookkeeper://store/journal", token_file=token_file)).start()


@pytest.mark.parametrize("start", [start_bookie, start_hub, start_auto_recovery, start_name_node])
def test_a_server_reads_its_token_file_before_it_connects(
    start: Callable[[str], Coroutine[Any, Any, None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(*_: object, **__: object) -> None:
        raise AssertionError("a port or the metadata store is used first")

    monkeypatch.setattr("socket.socket", connected)
    for module in ("bookkeeper.client.connecting", "hedwig.hub.server"):
        monkeypatch.setattr(f"{module}.connect_to", connected)
    monkeypatch.setattr("journalmgr.namenode.server.open_own_journal", connected)
    failures: list[Failure] = []
    Deferred.fromCoroutine(start(str(tmp_path / "none"))).addErrback(failures.append)
    (failure,) = failures
    assert failure.check(ConfigurationError)
    assert "none cannot be read: No such file or directory" in str(failure.value)
