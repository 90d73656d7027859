"""`bookkeeper auth line`: what it prints can be read back, and what it refuses."""

import io

import pytest

from bookkeeper.auth.passwords import parse_users
from bookkeeper.cli.main import main


def test_the_line_is_one_of_a_password_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("open sesame\n"))
    assert main(["auth", "line", "alice"]) == 0
    out = capsys.readouterr().out
    assert "sesame" not in out
    assert parse_users(out)["alice"].matches(b"open sesame")


@pytest.mark.parametrize(("user", "password"), [("a:b", "x"), ("#alice", "x"), ("alice", ""), ("alice", "x" * 2000)])
def test_what_cannot_stand_in_the_file_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, user: str, password: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(password + "\n"))
    assert main(["auth", "line", user]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bookkeeper: ")
