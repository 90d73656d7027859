"""The provider password-file: both sides talk to each other, over TLS and without."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import LogEvent, LogLevel, capturedLogs, formatEvent

from bookkeeper.auth import password_file, selection
from bookkeeper.auth.password_file import BookiePasswords, ClientPassword, UserFile
from bookkeeper.auth.passwords import hash_password
from bookkeeper.auth.provider import Answer, AuthenticationFailed, Peer
from bookkeeper.config import ClientSettings, ServerSettings
from bookkeeper.errors import ConfigurationError
from tests.support.auth_plugins import Token

SECURE, CLEAR = Peer("10.0.0.1:4711", True), Peer("10.0.0.1:4711", False)


def at_once(work: Callable[[], Answer]) -> Deferred[Answer]:
    try:
        return succeed(work())
    except AuthenticationFailed as error:
        return fail(error)


def line(user: str, password: str) -> str:
    return f"{user}:{hash_password(password.encode(), n=2)}\n"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(line("alice", "secret") + line("bob", "hunter2"))
    return path


def bookie(users: Path, **options: Any) -> BookiePasswords:
    return BookiePasswords(UserFile(str(users)), at_once, **{"over_clear_text": False, **options})


def verdict(answer: Deferred[Answer]) -> Answer | BaseException:
    found: list[Any] = []
    answer.addBoth(found.append)
    return getattr(found[0], "value", found[0])


def warnings_of(events: list[LogEvent]) -> list[str]:
    return [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]


def client(tmp_path: Path, text: str, **options: Any) -> ClientPassword:
    path = tmp_path / "password"
    path.write_text(text)
    return ClientPassword(str(path), **{"over_clear_text": False, **options})


def test_the_right_password_is_taken_and_says_who_it_is(users: Path, tmp_path: Path) -> None:
    payload = client(tmp_path, "alice:secret\n").converse(SECURE).first()
    assert verdict(bookie(users).converse(SECURE).respond(payload)) == Answer(b"", True, "alice")


@pytest.mark.parametrize("text", ["alice:wrong", "alice:hunter2", "carol:secret", "alice:secret "])
def test_anything_else_is_refused_and_the_reason_does_not_hold_the_password(
    users: Path, tmp_path: Path, text: str
) -> None:
    payload = b"\0" + text.replace(":", "\0").encode()
    refusal = verdict(bookie(users).converse(SECURE).respond(payload))
    assert isinstance(refusal, AuthenticationFailed)
    assert "does not exist or has another password" in str(refusal)
    assert text.partition(":")[2] not in str(refusal)


@pytest.mark.parametrize("payload", [b"", b"alice", b"\0alice", b"\0a\0b\0c", b"\0alice\0" + b"x" * 2000])
def test_a_payload_of_another_form_is_refused(users: Path, payload: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="not of this plug-in"):
        bookie(users).converse(SECURE).respond(payload)


def test_neither_side_takes_part_in_clear_text(users: Path, tmp_path: Path) -> None:
    conversation = client(tmp_path, "alice:secret").converse(CLEAR)
    with pytest.raises(AuthenticationFailed, match="turn TLS on"):
        conversation.first()
    with pytest.raises(AuthenticationFailed, match="turn TLS on"):
        bookie(users).converse(CLEAR).respond(b"\0alice\0secret")


def test_both_sides_do_when_they_are_told_to(users: Path, tmp_path: Path) -> None:
    payload = client(tmp_path, "alice:secret", over_clear_text=True).converse(CLEAR).first()
    answer = verdict(bookie(users, over_clear_text=True).converse(CLEAR).respond(payload))
    assert answer == Answer(b"", True, "alice")


@pytest.mark.parametrize(("mode", "warning_count"), [(0o644, 1), (0o620, 1), (0o640, 0), (0o600, 0)])
def test_a_file_that_other_users_may_use_is_warned_of_once(users: Path, mode: int, warning_count: int) -> None:
    users.chmod(mode)
    with capturedLogs() as events:
        file = UserFile(str(users))
        users.write_text(line("alice", "other"))
        assert file.check("alice", b"other")
    warnings = warnings_of(events)
    assert len(warnings) == warning_count
    assert all(said.startswith(f"bookiePasswordFile={users} has mode {mode:04o}, so other") for said in warnings)


def test_a_clients_file_is_warned_of_once_however_often_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("alice:secret")
    path.chmod(0o644)
    with capturedLogs() as events:
        for _ in range(3):
            ClientPassword(str(path), over_clear_text=False).read()
    (warning,) = warnings_of(events)
    assert warning.startswith(f"clientPasswordFile={path} has mode 0644, so other users of this machine may read it")


def test_a_changed_file_counts_from_then_on(users: Path) -> None:
    """Also for passwords that were right before: they are remembered, but not beyond a change."""
    file = UserFile(str(users))
    assert file.check("alice", b"secret")
    assert file.check("alice", b"secret")
    users.write_text(line("alice", "another one") + line("carol", "new"))
    assert not file.check("alice", b"secret")
    assert file.check("alice", b"another one")
    assert file.check("carol", b"new")
    assert not file.check("bob", b"hunter2")


def test_a_broken_or_missing_file_leaves_the_users_read_before(users: Path) -> None:
    file = UserFile(str(users))
    users.write_text("what is this")
    assert file.check("alice", b"secret")
    os.unlink(users)
    assert file.check("bob", b"hunter2")
    assert not file.check("bob", b"wrong")


def test_too_many_checks_are_refused(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_file, "CHECKS_WAITING_MAX", 2)
    waiting: list[Deferred[Answer]] = []

    def later(work: Callable[[], Answer]) -> Deferred[Answer]:
        waiting.append(Deferred())
        return waiting[-1]

    provider = BookiePasswords(UserFile(str(users)), later, over_clear_text=False)
    for _ in range(2):
        provider.converse(SECURE).respond(b"\0alice\0secret")
    with pytest.raises(AuthenticationFailed, match="wait to be checked already"):
        provider.converse(SECURE).respond(b"\0alice\0secret")
    waiting[0].callback(Answer(b"", True))
    provider.converse(SECURE).respond(b"\0alice\0secret")


def test_who_was_in_before_does_not_wait_behind_others(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of wrong passwords keeps the thread busy for as long as it lasts."""
    monkeypatch.setattr(password_file, "CHECKS_WAITING_MAX", 1)
    queue: list[Callable[[], Answer]] = []

    def later(work: Callable[[], Answer]) -> Deferred[Answer]:
        queue.append(work)
        return Deferred()

    file = UserFile(str(users))
    assert file.check("alice", b"secret")
    provider = BookiePasswords(file, later, over_clear_text=False)
    provider.converse(SECURE).respond(b"\0alice\0wrong")
    assert verdict(provider.converse(SECURE).respond(b"\0alice\0secret")) == Answer(b"", True, "alice")
    assert len(queue) == 1
    users.write_text(line("alice", "another one"))
    # What was right before does not count beyond a change, nor what cannot be looked at.
    with pytest.raises(AuthenticationFailed, match="wait to be checked already"):
        provider.converse(SECURE).respond(b"\0alice\0secret")
    os.unlink(users)
    with pytest.raises(AuthenticationFailed, match="wait to be checked already"):
        provider.converse(SECURE).respond(b"\0alice\0secret")


def test_who_has_hung_up_is_not_checked(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_file, "CHECKS_WAITING_MAX", 1)
    queue: list[Callable[[], Answer]] = []

    def later(work: Callable[[], Answer]) -> Deferred[Answer]:
        queue.append(work)
        return Deferred()

    file = UserFile(str(users))
    provider = BookiePasswords(file, later, over_clear_text=False)
    gone = provider.converse(SECURE).respond(b"\0alice\0secret")
    gone.addErrback(lambda failure: None)
    gone.cancel()
    with pytest.raises(AuthenticationFailed, match="nobody waits"):
        queue[0]()
    assert not file.remembers("alice", b"secret")
    provider.converse(SECURE).respond(b"\0alice\0secret")  # and takes no place
    assert queue[1]() == Answer(b"", True, "alice")


@pytest.mark.parametrize("text", ["", "alice", "alice:", ":secret", "alice:secret\nbob:secret", "a b:secret"])
def test_a_clients_file_holds_one_user_with_a_password(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="one line, user:password"):
        client(tmp_path, text)


def test_a_clients_password_may_hold_colons_and_change(tmp_path: Path) -> None:
    provider = client(tmp_path, "alice:a:b:c")
    assert provider.identity == "alice"
    assert provider.converse(SECURE).first() == b"\0alice\0a:b:c"
    (tmp_path / "password").write_text("alice:new")
    assert provider.converse(SECURE).first() == b"\0alice\0new"
    os.unlink(tmp_path / "password")
    with pytest.raises(AuthenticationFailed, match="cannot be read"):
        provider.converse(SECURE).first()


def test_files_that_are_not_there_are_told_at_start() -> None:
    server = ServerSettings(auth_provider="password-file", auth_password_file="/nowhere/users")
    with pytest.raises(ConfigurationError, match="bookiePasswordFile=/nowhere/users cannot be read"):
        selection.bookie_provider(server, at_once)
    settings = ClientSettings(auth_provider="password-file", auth_password_file="/nowhere/password")
    with pytest.raises(ConfigurationError, match="clientPasswordFile=/nowhere/password cannot be read"):
        selection.client_provider(settings)


def test_a_provider_of_ones_own_is_loaded_by_name() -> None:
    name = "tests.support.auth_plugins:token"
    assert isinstance(selection.bookie_provider(ServerSettings(auth_provider=f"{name}_bookie"), at_once), Token)
    assert isinstance(selection.client_provider(ClientSettings(auth_provider=f"{name}_client")), Token)
    assert selection.bookie_provider(ServerSettings(), at_once) is None
    assert selection.client_provider(ClientSettings()) is None


@pytest.mark.parametrize("name", ["no.such.module:factory", "tests.support.auth_plugins:missing"])
def test_one_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is its package on the Python path"):
        selection.bookie_provider(ServerSettings(auth_provider=name), at_once)
