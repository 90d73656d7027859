"""Modes of files that contain secrets, or that decide which peers are trusted."""

from __future__ import annotations

import pytest

from bookkeeper.system.secret_files import exposure


@pytest.mark.parametrize(
    ("mode", "may", "remedy"),
    [
        *((0o666, "read and change", "o-r,go-w"), (0o664, "read and change", "o-r,go-w")),
        *((0o644, "read", "o-r"), (0o604, "read", "o-r")),
        *((0o662, "change", "go-w"), (0o620, "change", "go-w"), (0o602, "change", "go-w")),
    ],
)
def test_what_other_users_may_do_is_named_with_the_remedy(mode: int, may: str, remedy: str) -> None:
    found = exposure("/f", mode)
    assert found == f"has mode {mode:04o}, so other users of this machine may {may} it: chmod {remedy} /f"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
def test_the_group_may_read_a_secret(mode: int) -> None:
    assert exposure("/f", mode) == ""


def test_a_file_without_secrets_may_be_read_but_not_changed_by_others() -> None:
    assert exposure("/f", 0o644, is_secret=False) == ""
    assert "may change it: chmod go-w" in exposure("/f", 0o664, is_secret=False)
