"""Directories that were moved are believed when they are proven to be this bookie's, and not otherwise (I-70, I-71)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred, succeed

from bookkeeper.bookie.identity.cookie_rules import directories_of
from bookkeeper.bookie.identity.moved_directories import move
from bookkeeper.errors import CookieMismatch
from bookkeeper.filesystem import OpenMode, create_durable
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.model import BookieId, Versioned
from tests.support.faulty_filesystem import FaultyFileSystem

OLD = Cookie(BookieId("b:1"), ("/j1", "/j2"), ("/l1", "/l2"), "cluster", ("/l1", "/l2"))
NEW = replace(OLD, journal_dirs=("/j1", "/jx"), ledger_dirs=("/lx", "/ly"), index_dirs=("/lx", "/ly"))
FROM = {"/j1": "/j1", "/jx": "/j2", "/lx": "/l1", "/ly": "/l2"}


class Host:
    """A stopped bookie whose directories were moved, and the metadata store's one cookie."""

    def __init__(self) -> None:
        self.fs = FaultyFileSystem()
        self.stored: Versioned[bytes] | None = Versioned(OLD.format(), 3)
        for directory in FROM:
            self.put(directory, "1.log" if directory.startswith("/l") else "1.txn", OLD)

    def put(self, directory: str, name: str | None = None, cookie: Cookie | None = None) -> None:
        self.fs.make_dirs(f"{directory}/current")
        if name is not None:
            self.fs.open(f"{directory}/current/{name}", OpenMode.CREATE_EXCLUSIVE).close()
        if cookie is not None:
            create_durable(self.fs, f"{directory}/current/VERSION", cookie.format())

    def read(self, _: BookieId) -> Deferred[Versioned[bytes] | None]:
        return succeed(self.stored)

    def write(self, _: BookieId, data: bytes, version: int | None) -> Deferred[Versioned[bytes]]:
        assert self.stored is not None
        assert version == self.stored.version
        assert self.cookies() == {NEW}, "the store is told last"
        self.stored = Versioned(data, self.stored.version + 1)
        return succeed(self.stored)

    def cookies(self) -> set[Cookie]:
        """Those of the directories, after a power failure."""
        survivor = self.fs.clone()
        survivor.crash()
        paths = [f"{directory}/current/VERSION" for directory in directories_of(NEW)]
        return {parse_cookie(survivor.contents(path), path) for path in paths if survivor.exists(path)}

    def move(self, expected: Cookie = NEW) -> bool:
        found: list[object] = []
        Deferred.fromCoroutine(move(self.fs, self, expected)).addBoth(found.append)  # type: ignore[arg-type]
        (result,) = found
        if isinstance(result, bool):
            return result
        result.raiseException()  # type: ignore[attr-defined]
        raise AssertionError

    def refused(self, expected: Cookie = NEW) -> str:
        before, stored = self.cookies(), self.stored
        with pytest.raises(CookieMismatch) as caught:
            self.move(expected)
        assert (self.cookies(), self.stored) == (before, stored)
        return str(caught.value)


def test_the_cookie_follows_directories_first_and_then_the_store() -> None:
    host = Host()
    assert host.move()
    assert host.stored == Versioned(NEW.format(), 4)
    assert host.cookies() == {NEW}
    assert not host.move()


def test_a_move_that_was_cut_short_is_finished_by_doing_it_again() -> None:
    host = Host()
    host.fs.unlink("/lx/current/VERSION")
    host.put("/lx", cookie=NEW)
    assert host.move()
    assert host.cookies() == {NEW}


def test_a_store_that_was_told_by_hand_leaves_the_directories_to_follow() -> None:
    host = Host()
    host.stored = Versioned(NEW.format(), 5)
    assert host.move()
    assert (host.stored.version, host.cookies()) == (5, {NEW})


@pytest.mark.parametrize(
    ("cookie", "said"),
    [
        (replace(OLD, bookie_id=BookieId("c:1")), "belongs to somebody else"),
        (replace(OLD, instance_id="elsewhere"), "belongs to somebody else"),
        (replace(OLD, journal_dirs=("/j1", "/j3")), "names other directories"),
    ],
)
def test_a_directory_with_another_cookie_is_not_believed(cookie: Cookie, said: str) -> None:
    host = Host()
    host.fs.unlink("/ly/current/VERSION")
    host.put("/ly", cookie=cookie)
    assert said in host.refused()


def test_a_directory_without_a_cookie_is_not_the_one_that_was_moved() -> None:
    host = Host()
    host.fs.unlink("/ly/current/VERSION")
    assert "/ly has data but no cookie" in host.refused()
    host.fs.unlink("/ly/current/1.log")
    assert "/ly is empty or was never used" in host.refused()


def test_what_was_copied_and_not_moved_is_refused_but_another_bookie_may_have_moved_in() -> None:
    host = Host()
    host.put("/l1", cookie=OLD)
    assert "/l1 still has the cookie" in host.refused()
    host = Host()
    host.put("/l1", cookie=replace(OLD, bookie_id=BookieId("c:1")))
    assert host.move()


def test_two_journals_do_not_move_at_once() -> None:
    """Whose is which no cookie tells, and a journal is replayed from the mark of its place."""
    host = Host()
    host.put("/jy", "1.txn", OLD)
    said = host.refused(replace(NEW, journal_dirs=("/jy", "/jx")))
    assert "change one, do this, then the next" in said
    assert "change one" in host.refused(replace(NEW, journal_dirs=("/jx", "/j1")))


@pytest.mark.parametrize(
    ("directory", "name", "said"),
    [
        ("/lx", "2.txn", "/lx has journal files, but journalDirectories does not name it"),
        ("/jx", "2.log", "/jx has entry logs, but ledgerDirectories does not name it"),
    ],
)
def test_a_directory_of_another_kind_is_not_taken(directory: str, name: str, said: str) -> None:
    host = Host()
    host.put(directory, name)
    assert said in host.refused()


def test_as_many_directories_as_before_and_for_the_same_purposes() -> None:
    host = Host()
    assert "not as many" in host.refused(replace(NEW, ledger_dirs=("/lx",), index_dirs=("/lx",)))
    assert "not as many" in host.refused(replace(NEW, ledger_dirs=("/lx", "/lx")))
    for directory in ("/i1", "/i2"):
        host.put(directory, cookie=OLD)
    assert "served for two purposes" in host.refused(replace(NEW, index_dirs=("/i1", "/i2")))


def test_a_store_without_the_cookie_proves_nothing() -> None:
    host = Host()
    host.stored = None
    assert "cookie_create" in host.refused()
