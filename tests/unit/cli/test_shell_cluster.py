"""Shell commands and lists where records of bookies or ledgers cannot be read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.cli.ledger import inspect
from bookkeeper.cli.shell import cluster, cookies, ledgers
from bookkeeper.client.bookies.disk_space import BookieInfo
from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, EXIT_PARTIAL
from bookkeeper.errors import BookieUnavailable, MetadataCorrupt
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.metadata.ledgers.codec import format_ledger
from bookkeeper.metadata.ledgers.paths import hierarchical_path
from bookkeeper.model import AvailableBookies, BookieId, BookieMode, BookieServiceInfo, LedgerId
from tests.support.metadata_contract.world import ledger, service_info
from tests.support.metadata_scene import MetadataScene

LISTING = {"json": True, "long": True, "limit": None}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> MetadataScene:
    """A memory store that commands use."""
    found = MetadataScene()

    def with_store(_: argparse.Namespace, use: Callable[[Any], Awaitable[Any]], *, make: bool = False) -> Any:
        answer = found.now(use(found.store()))
        if isinstance(answer, Exception):
            raise answer
        return answer

    for module in (cluster, cookies, ledgers):
        monkeypatch.setattr(module, "with_store", with_store)
    return found


def _arguments(**values: object) -> argparse.Namespace:
    return argparse.Namespace(uri="zk://h:1/ledgers", conf=None, defines=[], json=True, **values)


def _bookie(scene: MetadataScene, name: str, mode: BookieMode | None = BookieMode.WRITABLE) -> BookieId:
    bookie_id = BookieId(f"{name}:1")
    scene.now(scene.maker.cookies.write(bookie_id, Cookie(bookie_id, ("/j",), ("/l",), "instance").format(), None))
    if mode is not None:
        scene.now(scene.maker.registration.register(bookie_id, service_info(name), mode))
    return bookie_id


def test_clusterinfo_counts_no_unreadable_record_as_a_bookie(
    scene: MetadataScene, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        _bookie(scene, name)
    _bookie(scene, "r", BookieMode.READ_ONLY)
    _bookie(scene, "gone", None)
    scene.shared.plant("/ledgers/available/rubbish", b"\x00\xff")
    scene.shared.plant("/ledgers/cookies/junk", b"\x00\xff")
    scene.shared.damage("/ledgers/cookies/b:1", b"\x00\xff")  # b is registered
    assert cluster.CLUSTERINFO.run(_arguments()) == EXIT_PARTIAL
    out, err = capsys.readouterr()
    counts = {name: value for name, value in json.loads(out).items() if name.endswith("Count")}
    assert counts == {
        "totalBookiesCount": 4,
        "writableBookiesCount": 2,
        "readonlyBookiesCount": 1,
        "unavailableBookiesCount": 1,
    }
    for path in ("/ledgers/available/rubbish: ", "cookie of junk: ", "cookie of b:1: "):
        assert f"passed over: {path}" in err


def test_clusterinfo_of_a_sound_cluster_ends_with_0(scene: MetadataScene, capsys: pytest.CaptureFixture[str]) -> None:
    _bookie(scene, "a")
    assert cluster.CLUSTERINFO.run(_arguments()) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["totalBookiesCount"] == 1


class _Client:
    def __init__(self, problems: dict[str, str], silent: set[str]) -> None:
        self._problems, self._silent = problems, silent

    def available_bookies(self) -> AvailableBookies:
        names = ["a:1", *self._problems, *self._silent]
        return AvailableBookies(
            {BookieId(name): BookieServiceInfo(()) for name in names},
            {},
            {BookieId(name): problem for name, problem in self._problems.items()},
        )

    def bookie_info(self, bookie_id: str) -> BookieInfo:
        if bookie_id == "a:1" or (bookie_id in self._problems and ":" in bookie_id):
            return BookieInfo(100, 40)
        raise BookieUnavailable(f"bookie {bookie_id} is not registered")

    def ids(self, _: object) -> list[list[int]]:
        return [[1, 2, 3]]

    def metadata(self, ledger_id: int) -> Any:
        if ledger_id == 2:
            raise MetadataCorrupt("/ledgers/00/0000/L0002: not ledger metadata")
        return ledger()


@pytest.mark.parametrize(("silent", "code"), [(set(), EXIT_PARTIAL), ({"s:1"}, EXIT_FAILURE)])
def test_bookieinfo_names_a_registration_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], silent: set[str], code: int
) -> None:
    problem = "/ledgers/available/rubbish: begins with b'x'"
    client = _Client({"rubbish": problem, "d:1": "/ledgers/available/d:1: begins with b'x'"}, silent)
    monkeypatch.setattr(cluster, "connect", lambda _: nullcontext(client))
    assert cluster.BOOKIEINFO.run(_arguments()) == code
    out, err = capsys.readouterr()
    found = {row["bookie_id"]: row for row in json.loads(out)}
    assert found["a:1"]["free_bytes"] == found["d:1"]["free_bytes"] == 40  # d:1 is an address
    assert found["rubbish"]["error"] == "its registration cannot be read"
    assert f"passed over: {problem}" in err
    assert "passed over: /ledgers/available/d:1: " in err


@pytest.mark.parametrize("as_json", [True, False])
def test_a_list_of_ledgers_counts_those_that_it_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    monkeypatch.setattr(inspect, "connect", lambda _: nullcontext(_Client({}, set())))
    assert inspect.list_ledgers(argparse.Namespace(json=as_json, long=True, limit=None)) == EXIT_PARTIAL
    assert capsys.readouterr().err.splitlines()[0] == "2 ledgers; 1 more has metadata that cannot be read"


def test_a_dump_replaces_a_ledger_record_that_cannot_be_read(scene: MetadataScene, tmp_path: Path) -> None:
    """The remedy that the error names."""
    ledger_id, _ = scene.now(scene.maker.ledgers.create(ledger()))
    path = f"/ledgers{hierarchical_path(LedgerId(ledger_id))}"
    scene.shared.damage(path, b"\x00\xff")
    assert "ledgermetadata -l ID -restorefromfile FILE -update" in str(scene.now(scene.store().ledgers.read(ledger_id)))
    dump = tmp_path / "dump"
    dump.write_bytes(format_ledger(ledger()))
    words = _arguments(ledger_id=ledger_id, restorefromfile=dump, dumptofile=None, update=True, secrets=False)
    assert ledgers.LEDGERMETADATA.run(words) == EXIT_OK
    assert scene.now(scene.store().ledgers.read(ledger_id)).value.state is ledger().state


def test_cookie_update_restores_a_cookie_that_cannot_be_read(scene: MetadataScene, tmp_path: Path) -> None:
    """The remedy that a bookie names."""
    bookie_id = _bookie(scene, "a")
    copy = tmp_path / "VERSION"
    cluster_id = scene.now(scene.maker.admin.instance_id())
    copy.write_bytes(Cookie(bookie_id, ("/j",), ("/l",), cluster_id).format())
    scene.shared.damage("/ledgers/cookies/a:1", b"\x00\xff")
    assert cookies.COOKIE_UPDATE.run(_arguments(cookie_file=copy, bookie_id=bookie_id)) == EXIT_OK
    assert scene.now(scene.store().cookies.read(bookie_id)).value == copy.read_bytes()
