"""Journals by URI: schemes, what is told of unknown and broken implementations, and the URI itself."""

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from bookkeeper.errors import InvalidArgument
from journalmgr import plugins
from journalmgr.errors import JournalError, NotFormatted
from journalmgr.files.journal import FileJournal
from journalmgr.model import NamespaceInfo
from journalmgr.uri import parse_uri
from tests.support.manual_worker import ManualWorker

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = NamespaceInfo(1, "CID", "BP")
calls: list[tuple[Any, ...]] = []


def open_recorded(*args: Any) -> Deferred[Any]:
    calls.append(args)
    return succeed("a journal")


def open_raising(*_: Any) -> Deferred[Any]:
    raise ZeroDivisionError("oh no")


def open_failing(*_: Any) -> Deferred[Any]:
    return fail(KeyError("missing"))


def open_refusing(*_: Any) -> Deferred[Any]:
    return fail(NotFormatted("nothing there"))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed in these tests."""
    calls.clear()
    named = {
        "file": "journalmgr.files.opening:open_journal",
        "recorded": f"{__name__}:open_recorded",
        "raising": f"{__name__}:open_raising",
        "failing": f"{__name__}:open_failing",
        "refusing": f"{__name__}:open_refusing",
        "absent": "no.such.module:open_journal",
    }
    entries = [EntryPoint(name, value, plugins.GROUP) for name, value in named.items()]
    entries += [EntryPoint("twice", "one:open", plugins.GROUP), EntryPoint("twice", "other:open", plugins.GROUP)]

    def entry_points(*, group: str) -> EntryPoints:
        assert group == plugins.GROUP
        return EntryPoints(entries)

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    monkeypatch.setattr(EntryPoint, "load", load)


def load(entry: EntryPoint) -> Any:
    """Entry points into this very file, which has no importable name."""
    if entry.module == __name__:
        return globals()[entry.attr]
    if entry.module == "journalmgr.files.opening":
        from journalmgr.files import opening

        return opening.open_journal
    raise ModuleNotFoundError(f"No module named {entry.module!r}")


def opened(uri: str, options: dict[str, Any] | None = None) -> Any:
    outcome: list[Any] = []
    plugins.open_journal(uri, "the reactor", NAMESPACE, options).addBoth(outcome.append)
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    return outcome[0]


def test_the_scheme_finds_the_implementation_which_gets_everything() -> None:
    assert opened("recorded://a;b/c", {"x": 1}) == "a journal"
    assert calls == [("recorded://a;b/c", "the reactor", NAMESPACE, {"x": 1})]
    assert opened("RECORDED:///c") == "a journal"


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"'qjournal'; installed are absent, failing, file, raising, recorded"):
        opened("qjournal://a:8485/name")


@pytest.mark.parametrize(
    ("scheme", "told"),
    [
        ("raising", "open_raising broke: ZeroDivisionError: oh no"),
        ("failing", "open_failing broke: KeyError"),
        ("absent", "no.such.module:open_journal broke: ModuleNotFoundError"),
    ],
)
def test_an_implementation_that_breaks_is_named(scheme: str, told: str) -> None:
    with pytest.raises(JournalError, match=told) as caught:
        opened(f"{scheme}:///x")
    assert caught.value.__cause__ is not None


def test_an_error_of_the_contract_passes_unchanged() -> None:
    with pytest.raises(NotFormatted, match=r"^nothing there$"):
        opened("refusing:///x")


def test_two_implementations_of_a_scheme_are_refused() -> None:
    with pytest.raises(
        InvalidArgument, match="more than one implementation for the scheme 'twice': one:open and other"
    ):
        opened("twice:///x")


def test_ours_are_registered() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    table = text.split('[project.entry-points."journalmgr.journals"]')[1].split("\n[")[0]
    assert 'bookkeeper = "journalmgr.ledger.opening:open_journal"' in table
    assert 'file = "journalmgr.files.opening:open_journal"' in table


def test_a_file_uri_opens_a_journal_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journalmgr.files.opening.clock_of", lambda reactor: reactor)
    monkeypatch.setattr("journalmgr.files.opening.ThreadWorker", lambda reactor, name: ManualWorker(name))
    journal = opened("file:///var/lib/edits%20here/", {"preallocation_size": 0})
    assert isinstance(journal, FileJournal)
    assert journal.description == "file:///var/lib/edits here"


@pytest.mark.parametrize(
    ("uri", "options", "told"),
    [
        ("file://elsewhere/x", {}, "no host 'elsewhere'"),
        ("file:///", {}, "names no directory"),
        ("file:///x", {"preallocated": 1}, "unknown option preallocated; known are"),
        ("file:///x", {"tail_period_s": 0}, "tail period"),
    ],
)
def test_a_file_uri_that_cannot_work_is_refused(uri: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        opened(uri, options)


@pytest.mark.parametrize(
    ("text", "scheme", "authority", "path"),
    [
        ("bookkeeper://zk1:2181;zk2:2181/journal", "bookkeeper", "zk1:2181;zk2:2181", "/journal"),
        ("bookkeeper://[::1]:2181/a/b", "bookkeeper", "[::1]:2181", "/a/b"),
        ("file:///a/b", "file", "", "/a/b"),
        ("file:/a/b", "file", "", "/a/b"),
        (" FILE:///a%20b%25 ", "file", "", "/a b%"),
        ("file:///%c3%a4", "file", "", "/ä"),
    ],
)
def test_a_uri_is_taken_apart(text: str, scheme: str, authority: str, path: str) -> None:
    uri = parse_uri(text)
    assert (uri.scheme, uri.authority, uri.path) == (scheme, authority, path)
    assert str(uri) == text.strip()


def test_an_authority_may_list_servers() -> None:
    assert parse_uri("bookkeeper://a:1;b:2,c:3/x").servers == ["a:1", "b:2", "c:3"]
    assert parse_uri("file:///x").servers == []


@pytest.mark.parametrize(
    "text",
    ["", "/a/b", "a/b", "file:", "file:a", "file://host", "file:///a?b=c", "file:///a#b", "file:///%", "file:///%ff"],
)
def test_what_is_no_uri_of_a_journal_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_uri(text)


def test_the_time_to_refuse_a_uri_is_linear_in_its_length() -> None:
    """Time that is quadratic in the length would be some 50 s here."""
    with pytest.raises(InvalidArgument, match="is no URI of a journal"):
        parse_uri(f"bookkeeper://{'9' * 100_000}#")
