"""Hashes of passwords: what matches, and what a file may hold."""

import re

import pytest

from bookkeeper.auth.passwords import N_MAX, PASSWORD_SIZE_MAX, hash_password, parse_users

CHEAP = 2


def test_a_password_matches_its_hash_and_no_other_does() -> None:
    hashed = hash_password(b"open sesame", n=CHEAP)
    assert hashed.matches(b"open sesame")
    for other in (b"open sesam", b"open sesame ", b"", b"OPEN SESAME"):
        assert not hashed.matches(other)


def test_equal_passwords_have_different_hashes() -> None:
    assert str(hash_password(b"x", n=CHEAP)) != str(hash_password(b"x", n=CHEAP))


def test_the_default_cost_is_a_slow_one() -> None:
    hashed = hash_password(b"x")
    assert (hashed.n, hashed.r, hashed.p) == (16384, 8, 1)
    assert hashed.matches(b"x")


@pytest.mark.parametrize("password", [b"", b"x" * (PASSWORD_SIZE_MAX + 1)])
def test_passwords_have_a_size(password: bytes) -> None:
    with pytest.raises(ValueError, match="a password has"):
        hash_password(password)


def test_a_file_is_read_back() -> None:
    alice, bob = hash_password(b"a", n=CHEAP), hash_password(b"b", n=CHEAP)
    users = parse_users(f"# who may connect\n\nalice:{alice}\n  bob:{bob}  \n")
    assert users == {"alice": alice, "bob": bob}


GOOD = str(hash_password(b"x", n=CHEAP))
_, _, N, R, P, SALT, DIGEST = GOOD.split("$")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("alice", "make it with: bookkeeper auth line USER"),
        ("alice:secret", "make it with"),
        (f"alice:{GOOD}$", "make it with"),
        (f":{GOOD}", "a user's name has"),
        (f"a b:{GOOD}", "a user's name has"),
        (f"alice:$scrypt${N_MAX * 2}${R}${P}${SALT}${DIGEST}", "cost out of bounds"),
        (f"alice:$scrypt$3${R}${P}${SALT}${DIGEST}", "cost out of bounds"),
        (f"alice:$scrypt${N}$1000${P}${SALT}${DIGEST}", "cost out of bounds"),
        (f"alice:$scrypt${N}${R}$100${SALT}${DIGEST}", "cost out of bounds"),
        (f"alice:$scrypt${N}${R}${P}$?${DIGEST}", "make it with"),
        (f"alice:$scrypt${N}${R}${P}${SALT}$AAAA", "make it with"),
        (f"alice:$scrypt$many${R}${P}${SALT}${DIGEST}", "make it with"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_not_shown(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as refused:
        parse_users(f"bob:{GOOD}\n{line}\n")
    assert str(refused.value).startswith("line 2: ")
    assert SALT not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_user_has_one_line() -> None:
    with pytest.raises(ValueError, match="line 2: a second line of this user"):
        parse_users(f"alice:{GOOD}\nalice:{GOOD}\n")
