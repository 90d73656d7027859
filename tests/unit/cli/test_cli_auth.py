"""`bookkeeper auth line`: what it prints can be read back, and what it refuses."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.auth.password_file import ClientPassword
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


def test_the_example_makes_the_files_of_both_sides_as_it_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["auth", "--help"]) == 0
    examples = capsys.readouterr().out.partition("examples:\n")[2].partition("\n\n  ")[2].partition("\n\n")[0]
    lines = examples.splitlines()
    script = "\n".join(line.strip().partition("   ")[0] for line in lines)  # without what stands beside them
    assert len(lines) == 2
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-e", "-c", f"umask 077\n{script}"], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True
    )
    user, password = ClientPassword(str(tmp_path / "bob"), over_clear_text=False).read()
    assert user == "bob"
    assert parse_users((tmp_path / "users").read_text())["bob"].matches(password)
