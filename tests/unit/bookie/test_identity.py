"""A bookie starts only where store and directories agree on who it is (I-70, I-71)."""

from __future__ import annotations

import errno
import random
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from bookkeeper.bookie.identity.identity import (
    DirectoryKind,
    Verdict,
    advertised_host,
    bookie_id_of,
    check_known,
    check_still_known,
    directories_of,
    establish,
    expected_cookie,
    lock_directories,
    other_ids,
)
from bookkeeper.config import ServerSettings, load_server
from bookkeeper.errors import (
    ConfigurationError,
    CookieMismatch,
    DirectoryInUse,
    DirectoryUnusable,
    MetadataCorrupt,
    MetadataTooNew,
)
from bookkeeper.filesystem import OpenMode, create_durable, replace_durable
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, Versioned
from tests.support.faulty_filesystem import FaultyFileSystem, Op
from tests.support.machines import MadeMachine
from tests.support.simulated_clock import SimulatedClock

BOOKIE = BookieId("10.0.0.1:3181")
OTHER = BookieId("10.0.0.2:3181")
INSTANCE = "5b0d"
URI = "zk+hierarchical://zk1:2181/ledgers"
DIRECTORIES = ("/j", "/l1", "/l2", "/i")


def settings(**changes: Any) -> ServerSettings:
    values: dict[str, Any] = {
        "journal_directories": (Path("/j"),),
        "ledger_directories": (Path("/l1"), Path("/l2")),
        "index_directories": (Path("/i"),),
    }
    return ServerSettings(**(values | changes))


COOKIE = expected_cookie(settings(), BOOKIE, INSTANCE)


class StoredCookies:
    """The metadata store's cookies; `log` shows in which order they and the directories were written."""

    def __init__(self, fs: FaultyFileSystem) -> None:
        self.values: dict[str, Versioned[bytes]] = {}
        self.stamped_when_written: list[bool] = []
        self._fs = fs

    def read(self, bookie_id: BookieId) -> Deferred[Versioned[bytes] | None]:
        return succeed(self.values.get(bookie_id))

    def write(self, bookie_id: BookieId, data: bytes, version: int | None) -> Deferred[Versioned[bytes]]:
        held = self.values.get(bookie_id)
        assert (None if held is None else held.version) == version
        survivor = self._fs.clone()
        survivor.crash()
        self.stamped_when_written.append(all(version_file(survivor, directory) == data for directory in DIRECTORIES))
        self.values[bookie_id] = Versioned(data, 0 if version is None else version + 1)
        return succeed(self.values[bookie_id])


def version_file(fs: FaultyFileSystem, directory: str) -> bytes | None:
    path = f"{directory}/current/VERSION"
    return fs.contents(path) if fs.exists(path) else None


class Place:
    """The file system and the store of one bookie."""

    def __init__(self) -> None:
        self.fs = FaultyFileSystem()
        self.cookies = StoredCookies(self.fs)

    def make(self, *directories: str) -> None:
        for directory in directories:
            self.fs.make_dirs(f"{directory}/current")

    def stamp(self, cookie: Cookie, *directories: str) -> None:
        for directory in directories:
            self.make(directory)
            path = f"{directory}/current/VERSION"
            (replace_durable if self.fs.exists(path) else create_durable)(self.fs, path, cookie.format())

    def fill(self, directory: str) -> None:
        self.make(directory)
        self.fs.open(f"{directory}/current/0.log", OpenMode.CREATE_EXCLUSIVE).close()

    def store(self, cookie: Cookie, bookie_id: BookieId = BOOKIE) -> None:
        self.cookies.values[bookie_id] = Versioned(cookie.format(), 0)

    def establish(
        self, cookie: Cookie = COOKIE, *, expansion: bool = False, others: tuple[BookieId, ...] = ()
    ) -> Verdict:
        results: list[Verdict] = []
        errors: list[BaseException] = []
        done = Deferred.fromCoroutine(
            establish(
                self.fs,
                self.cookies,  # type: ignore[arg-type]
                cookie,
                others,
                expansion_allowed=expansion,
                cluster_uri=URI,
            )
        )
        done.addCallbacks(results.append, lambda failure: errors.append(failure.value))
        if errors:
            raise errors[0]
        return results[0]


@pytest.fixture
def place() -> Place:
    place = Place()
    place.make(*DIRECTORIES)
    return place


def established(place: Place) -> Place:
    assert place.establish() is Verdict.NEW
    return place


def test_a_new_bookie_stamps_directories_durably_and_then_the_store(place: Place) -> None:
    assert place.establish() is Verdict.NEW
    assert place.cookies.stamped_when_written == [True]
    assert parse_cookie(place.cookies.values[BOOKIE].value, "store") == COOKIE
    assert place.establish() is Verdict.KNOWN
    assert len(place.cookies.stamped_when_written) == 1


def test_a_first_start_cut_short_anywhere_can_be_repeated() -> None:
    for seed in range(30):
        place = Place()
        place.make(*DIRECTORIES)
        rng = random.Random(seed)
        place.fs.fail_nth(rng.choice([Op.SYNC, Op.SYNC_DIR, Op.CREATE, Op.RENAME]), rng.randint(1, 4), 5)
        with pytest.raises(OSError, match=r".*"):
            place.establish()
        place.fs.crash(rng)
        assert place.establish() is Verdict.NEW
        assert place.establish() is Verdict.KNOWN


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_directory_that_lost_its_cookie_is_refused(place: Place, directory: str) -> None:
    established(place)
    place.fs.unlink(f"{directory}/current/VERSION")
    with pytest.raises(
        CookieMismatch, match=rf"^bookie {BOOKIE} of cluster {INSTANCE} .*{directory} is empty.*must not"
    ):
        place.establish()
    with pytest.raises(CookieMismatch, match=directory):
        place.establish(expansion=True)
    place.fill(directory)
    with pytest.raises(CookieMismatch, match=rf"{directory} has data but no cookie"):
        place.establish()


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_data_without_a_cookie_in_the_store_is_refused(place: Place, directory: str) -> None:
    place.fill(directory)
    with pytest.raises(
        CookieMismatch, match=rf"no cookie in the metadata store of .*, but \w+ {directory} .*data but no"
    ):
        place.establish()
    assert place.cookies.values == {}
    assert [version_file(place.fs, each) for each in DIRECTORIES] == [None] * 4


def test_a_store_that_lost_the_cookie_of_a_used_bookie_is_refused(place: Place) -> None:
    established(place)
    place.fill("/l1")
    place.cookies.values.clear()
    with pytest.raises(CookieMismatch, match=r"/l1 holds a cookie and data.*cookie_create"):
        place.establish()


FOREIGN = {
    "bookie id": replace(COOKIE, bookie_id=OTHER),
    "journalDirectories": replace(COOKIE, journal_dirs=("/other",)),
    "ledgerDirectories": replace(COOKIE, ledger_dirs=("/l1",)),
    "indexDirectories": replace(COOKIE, index_dirs=("/l1", "/l2")),
    "cluster instance id": replace(COOKIE, instance_id="another"),
}


@pytest.mark.parametrize("field", FOREIGN)
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_foreign_directory_is_refused_naming_directory_field_and_both_values(
    place: Place, field: str, directory: str
) -> None:
    established(place)
    place.stamp(FOREIGN[field], directory)
    with pytest.raises(CookieMismatch) as refusal:
        place.establish()
    message = str(refusal.value)
    assert directory in message
    assert field in message
    assert re.search(r" says .+ '[^']+', this bookie has '[^']+': ", message)
    theirs = FOREIGN[field]
    assert f"is that of bookie {theirs.bookie_id} of cluster {theirs.instance_id};" in message
    assert f"this is bookie {BOOKIE} of cluster {INSTANCE} ({URI})" in message


@pytest.mark.parametrize("field", FOREIGN)
def test_a_foreign_cookie_in_the_store_is_refused(place: Place, field: str) -> None:
    established(place)
    place.store(FOREIGN[field])
    with pytest.raises(CookieMismatch, match=rf"the metadata store says {field}"):
        place.establish()


def test_settings_of_a_known_bookie_are_compared_before_directories_are_made(place: Place) -> None:
    def check(cookie: Cookie, *, expansion: bool = False) -> None:
        done = Deferred.fromCoroutine(
            check_known(
                place.fs,
                place.cookies,  # type: ignore[arg-type]
                cookie,
                expansion_allowed=expansion,
                cluster_uri=URI,
            )
        )
        done.addErrback(lambda failure: errors.append(failure.value))

    errors: list[BaseException] = []
    moved = expected_cookie(settings(journal_directories=(Path("/j2"),)), BOOKIE, INSTANCE)
    larger = expected_cookie(settings(ledger_directories=(Path("/l1"), Path("/l2"), Path("/l3"))), BOOKIE, INSTANCE)
    for cookie in (COOKIE, moved, larger):
        check(cookie)  # nobody knows this bookie yet
    established(place)
    check(COOKIE)
    check(larger, expansion=True)
    assert errors == []
    check(moved)
    check(larger)
    assert [type(error) for error in errors] == [CookieMismatch] * 2
    assert "says journalDirectories '/j', this bookie has '/j2'" in str(errors[0])


@pytest.mark.parametrize("field", ["bookie id", "cluster instance id"])
def test_directories_of_somebody_else_are_said_before_directories_that_moved(place: Place, field: str) -> None:
    established(place)
    place.stamp(FOREIGN[field], "/l1")
    moved = expected_cookie(settings(journal_directories=(Path("/j2"),)), BOOKIE, INSTANCE)
    known = check_known(place.fs, place.cookies, moved, expansion_allowed=False, cluster_uri=URI)  # type: ignore[arg-type]
    errors: list[BaseException] = []
    Deferred.fromCoroutine(known).addErrback(lambda failure: errors.append(failure.value))
    assert f"the cookie in /l1 says {field}" in str(errors[0])
    assert "updatecookie -moved" not in str(errors[0])


def test_a_new_bookie_refuses_a_foreign_stamp_in_an_otherwise_empty_directory(place: Place) -> None:
    place.stamp(FOREIGN["bookie id"], "/j")
    with pytest.raises(CookieMismatch, match=r"/j says bookie id '10.0.0.2:3181', this bookie has '10.0.0.1:3181'"):
        place.establish()


def test_a_cookie_that_cannot_be_read_is_not_a_missing_one(place: Place) -> None:
    established(place)
    replace_durable(place.fs, "/l1/current/VERSION", b"\x00\x01")
    with pytest.raises(MetadataCorrupt, match="/l1/current/VERSION"):
        place.establish()
    replace_durable(place.fs, "/l1/current/VERSION", b"9\nbookieHost: 1\n")
    with pytest.raises(MetadataTooNew, match="/l1/current/VERSION"):
        place.establish()


def test_an_unreadable_cookie_in_the_store_names_the_command_that_restores_it(place: Place) -> None:
    """The running bookie finds it in its next session, a start before and after it has locked its directories."""
    established(place)
    place.cookies.values[BOOKIE] = Versioned(b"\x00\x01", 1)
    clock = SimulatedClock()
    store = MemoryMetadataStore(MemoryMetadata(), clock, random.Random(1))
    known = replace(COOKIE, instance_id=finished(clock, store.admin.instance_id()))
    finished(clock, store.cookies.write(BOOKIE, b"\x00\x01", None))
    known_first = check_known(
        place.fs,
        place.cookies,  # type: ignore[arg-type]
        COOKIE,
        expansion_allowed=False,
        cluster_uri=URI,
    )
    for attempt in (
        place.establish,
        lambda: finished(clock, Deferred.fromCoroutine(known_first)),
        lambda: finished(clock, Deferred.fromCoroutine(check_still_known(store, known))),
    ):
        with pytest.raises(MetadataCorrupt, match=f"^cookie of {BOOKIE}: not a cookie: .*begins with ") as caught:
            attempt()
        assert str(caught.value).endswith(
            f"; to restore it from the bookie's copy, on its host: "
            f"bookkeeper shell cookie_update -cookie-file /j/current/VERSION {BOOKIE}"
        )


def test_directories_are_added_only_when_allowed_and_empty(place: Place) -> None:
    smaller = replace(COOKIE, ledger_dirs=("/l1",))
    place.stamp(smaller, "/j", "/l1", "/i")
    place.store(smaller)
    with pytest.raises(CookieMismatch, match=r"allowStorageExpansion=true, or run .* updatecookie -expandstorage"):
        place.establish()
    assert place.establish(expansion=True) is Verdict.EXPAND
    assert parse_cookie(place.cookies.values[BOOKIE].value, "store") == COOKIE
    assert place.cookies.values[BOOKIE].version == 1
    assert place.cookies.stamped_when_written == [True]
    assert place.establish() is Verdict.KNOWN


def test_an_added_directory_with_data_is_refused(place: Place) -> None:
    smaller = replace(COOKIE, ledger_dirs=("/l1",))
    place.stamp(smaller, "/j", "/l1", "/i")
    place.store(smaller)
    place.fill("/l2")
    with pytest.raises(CookieMismatch, match="/l2 has data but no cookie"):
        place.establish(expansion=True)


def test_expansion_does_not_excuse_an_old_directory_that_lost_its_cookie(place: Place) -> None:
    smaller = replace(COOKIE, ledger_dirs=("/l1",))
    place.stamp(smaller, "/j", "/i")  # /l1 was wiped
    place.store(smaller)
    with pytest.raises(CookieMismatch, match="/l1 is empty"):
        place.establish(expansion=True)


def test_a_bookie_known_under_another_form_of_its_id_is_refused(place: Place) -> None:
    place.store(COOKIE, BookieId("host:3181"))
    with pytest.raises(CookieMismatch, match=rf"of cluster {INSTANCE} .*knows it as host:3181"):
        place.establish(others=(BookieId("host:3181"),))


def test_an_old_cookie_without_index_directories_means_the_ledger_directories(place: Place) -> None:
    ours = expected_cookie(settings(index_directories=()), BOOKIE, INSTANCE)
    old = Cookie(BOOKIE, ("/j",), ("/l1", "/l2"), INSTANCE, None, layout_version=4)
    place.stamp(old, "/j", "/l1", "/l2")
    place.store(old)
    assert place.establish(ours) is Verdict.KNOWN


def test_a_directory_used_twice_is_listed_once() -> None:
    cookie = expected_cookie(settings(index_directories=()), BOOKIE, INSTANCE)
    assert list(directories_of(cookie)) == ["/j", "/l1", "/l2"]


def kinds(*directories: str) -> dict[str, DirectoryKind]:
    return dict.fromkeys(directories, DirectoryKind.LEDGER)


@pytest.mark.parametrize("step", ["make_dirs", "lock"])
@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/x"),
        NotADirectoryError(errno.ENOTDIR, "Not a directory", "/etc/passwd/current"),
        OSError(errno.EIO, "Input/output error"),
    ],
)
def test_a_directory_that_cannot_be_used_is_named_with_its_setting_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch, step: str, error: OSError
) -> None:
    fs = FaultyFileSystem()
    real = getattr(fs, step)

    def failing(path: str) -> Any:
        if path.startswith("/bad/"):
            raise error
        return real(path)

    monkeypatch.setattr(fs, step, failing)
    directories = {**kinds("/good"), "/bad": DirectoryKind.JOURNAL}
    with pytest.raises(DirectoryUnusable) as refused:
        lock_directories(fs, directories)
    text = str(refused.value)
    assert text.startswith("journalDirectories names /bad, which cannot be used: " + str(error.strerror))
    assert str(error.filename or "/bad") in text
    assert "set journalDirectories to another one" in text
    assert "Errno" not in text
    assert len(lock_directories(fs, kinds("/good"))) == 1  # its lock was given back


def test_a_second_process_cannot_take_a_directory_and_gives_the_others_back() -> None:
    fs = FaultyFileSystem()
    first = lock_directories(fs, kinds("/b"))
    with pytest.raises(DirectoryInUse):  # I-52
        lock_directories(fs, kinds("/a", "/b"))
    for lock in first:
        lock.release()
    assert len(lock_directories(fs, kinds("/a", "/b"))) == 2


def test_a_lock_file_does_not_make_a_directory_used(place: Place) -> None:
    lock_directories(place.fs, kinds(*DIRECTORIES))
    assert place.establish() is Verdict.NEW


# --- ids ----------------------------------------------------------------------------------------------------------


def test_the_id_is_the_configured_one_or_host_and_port() -> None:
    assert bookie_id_of(settings(bookie_id="b1"), "10.0.0.1", 3181) == "b1"
    assert bookie_id_of(settings(), "10.0.0.1", 3181) == BOOKIE
    with pytest.raises(ConfigurationError, match="bookieId"):
        bookie_id_of(settings(), "höst", 3181)


def test_loopback_is_advertised_only_when_allowed() -> None:
    local = MadeMachine(known={"host1": ["127.0.0.1"]}, interfaces={"lo": ["127.0.0.1"]})
    with pytest.raises(ConfigurationError, match="set advertisedAddress or listeningInterface, or allowLoopback"):
        advertised_host(settings(), local)
    with pytest.raises(ConfigurationError, match="set advertisedAddress or another listeningInterface, or allowL"):
        advertised_host(settings(listening_interface="lo"), local)
    assert advertised_host(settings(allow_loopback=True), local) == "127.0.0.1"
    assert advertised_host(settings(), MadeMachine(known={"host1": ["10.0.0.1"]})) == "10.0.0.1"


def test_with_an_advertised_address_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(name: str = "") -> str:
        raise AssertionError(f"looked up {name!r}")

    monkeypatch.setattr(socket, "getfqdn", look_up)
    machine = MadeMachine(interfaces={"lo": ["127.0.0.1"], "eth0": ["10.0.0.1", "fd00::5"]})
    named = settings(advertised_address="b1.example", use_host_name_as_bookie_id=True)
    assert advertised_host(named, machine) == "b1.example"
    others = other_ids(named, BookieId("b1.example:3181"), 3181, machine)
    assert others == ["10.0.0.1:3181", "fd00::5:3181", "host1:3181"]
    on_one = replace(named, listening_interface="eth0")
    assert other_ids(on_one, BookieId("b1.example:3181"), 3181, machine) == ["10.0.0.1:3181", "host1:3181"]
    assert not machine.looked_up


def test_a_host_name_of_digits_is_not_advertised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda _="": "12345")
    machine = MadeMachine("12345", interfaces={"eth0": ["10.0.0.1"]})
    with pytest.raises(ConfigurationError, match=r"name '12345', a number.*0\.0\.48\.57: set advertisedAddr"):
        advertised_host(settings(use_host_name_as_bookie_id=True, listening_interface="eth0"), machine)
    with pytest.raises(ConfigurationError, match=r"advertisedAddress.*12345.*0\.0\.48\.57"):
        load_server(None, {"advertisedAddress": "12345", "metadataServiceUri": "zk+null://zk1/ledgers"})


def test_other_forms_of_the_id_are_those_of_other_settings() -> None:
    machine = MadeMachine(known={"host1": ["10.0.0.1"]})
    others = other_ids(settings(), BookieId("host1:3181"), 3181, machine)
    assert BOOKIE in others
    assert BookieId("host1:3181") not in others
    assert other_ids(settings(bookie_id="b1"), BookieId("b1"), 3181, machine) == []


# --- the matrix of I-70 and I-71 ----------------------------------------------------------------------------------

OTHER_CLUSTER = replace(COOKIE, instance_id="another")
OTHER_BOOKIE = replace(COOKIE, bookie_id=OTHER)
STORES = {"nothing": None, "ours": COOKIE, "another cluster's": OTHER_CLUSTER, "another bookie's": OTHER_BOOKIE}
CONTENTS = (
    "missing",
    "empty",
    "stamped",
    "stamped with data",
    "data",
    "another cluster's",
    "another bookie's",
    "garbage",
)


def furnish(place: Place, directory: str, content: str) -> None:
    if content == "missing":
        return
    place.make(directory)
    stamps = {"another cluster's": OTHER_CLUSTER, "another bookie's": OTHER_BOOKIE}
    if content.startswith("stamped") or content in stamps:
        place.stamp(stamps.get(content, COOKIE), directory)
    if content in ("stamped with data", "data"):
        place.fill(directory)
    if content == "garbage":
        create_durable(place.fs, f"{directory}/current/VERSION", b"\0\1\2")


def written(place: Place) -> dict[str, bytes | None]:
    return {directory: version_file(place.fs, directory) for directory in DIRECTORIES}


@pytest.mark.parametrize("expansion", [False, True])
@pytest.mark.parametrize("store", STORES)
def test_a_bookie_starts_only_as_new_or_as_itself_and_a_refusal_names_both_sides_and_changes_nothing(
    store: str, expansion: bool
) -> None:
    """Every content of one directory, and of another one, the rest being as they should; in any place."""
    starts = 0
    rest = "empty" if store == "nothing" else "stamped with data"
    for one in CONTENTS:
        for other in CONTENTS:
            for position in range(len(DIRECTORIES)):
                place = Place()
                contents = dict.fromkeys(DIRECTORIES, rest)
                contents[DIRECTORIES[position]] = one
                contents[DIRECTORIES[position - 1]] = other
                for directory, content in contents.items():
                    furnish(place, directory, content)
                stored = STORES[store]
                if stored is not None:
                    place.store(stored)
                before = written(place), dict(place.cookies.values)
                fresh = store == "nothing" and {one, other} <= {"missing", "empty", "stamped"}
                known = store == "ours" and {one, other} <= {"stamped", "stamped with data"}
                if fresh or known:
                    for directory in DIRECTORIES:
                        place.make(directory)  # as taking their locks does
                    assert place.establish(expansion=expansion) is (Verdict.NEW if fresh else Verdict.KNOWN)
                    assert set(written(place).values()) == {COOKIE.format()}
                    starts += 1
                    continue
                with pytest.raises((CookieMismatch, MetadataCorrupt)) as refused:
                    place.establish(expansion=expansion)
                assert (written(place), dict(place.cookies.values)) == before
                said = str(refused.value)
                if isinstance(refused.value, CookieMismatch):
                    assert f"bookie {BOOKIE}" in said
                    assert f"cluster {INSTANCE}" in said
                    assert URI in said
                else:
                    assert "/current/VERSION" in said
    assert starts == {"nothing": 9, "ours": 4}.get(store, 0) * len(DIRECTORIES)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("emptied", "has no cluster"),
        ("another cluster", "has the cluster .*, not "),
        ("no cookie", "has no cookie of this bookie"),
        ("an older cookie", "has another cookie of this bookie"),
        ("as it was", None),
    ],
)
def test_a_bookie_does_not_register_again_in_a_store_without_its_cookie(what: str, reason: str | None) -> None:
    """F4: in an emptied store the bookie would get new ledgers after a new session."""
    clock = SimulatedClock()
    shared = MemoryMetadata() if what != "emptied" else MemoryMetadata.empty("/ledgers", clock=clock)
    store = MemoryMetadataStore(shared, clock, random.Random(1))
    instance_id = "gone" if what == "emptied" else finished(clock, store.admin.instance_id())
    cookie = Cookie("bookie:3181", ("/j",), ("/l1", "/l2"), instance_id, ("/l1", "/l2"))
    if what not in ("emptied", "no cookie"):
        older = replace(cookie, ledger_dirs=("/l1",)) if what == "an older cookie" else cookie
        finished(clock, store.cookies.write(BookieId("bookie:3181"), older.format(), None))
    if what == "another cluster":
        cookie = replace(cookie, instance_id="another")
    check = Deferred.fromCoroutine(check_still_known(store, cookie))
    if reason is None:
        finished(clock, check)
        return
    with pytest.raises(CookieMismatch, match=f"^bookie bookie:3181 does not register again: .*{reason}") as caught:
        finished(clock, check)
    assert "restore a newer copy" in str(caught.value)


def finished(clock: SimulatedClock, deferred: Deferred[Any]) -> Any:
    outcome: list[Any] = []
    deferred.addBoth(outcome.append)
    assert clock.run_until(lambda: bool(outcome), seconds=60.0)
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    return outcome[0]
