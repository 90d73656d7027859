"""The folders: how many files each has, and the maps that name them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bookkeeper", "journalmgr", "hedwig")
FILES_MAX = 15
LARGER = {
    "bookkeeper/cli/perf",
    "bookkeeper/cli/shell",
    "bookkeeper/cli/spark",
    "bookkeeper/cli/why",
    "bookkeeper/config",
    "bookkeeper/spark/audit",
    "bookkeeper/spark/cluster",
    "journalmgr",
    "journalmgr/cli",
    "journalmgr/ledger",
    "journalmgr/spark",
    "hedwig/cli",
    "hedwig/spark",
}
"""Folders with more files, which are still to be divided."""

UNLISTED = {
    "bookkeeper",
    "bookkeeper/cli",
    "bookkeeper/cli/perf",
    "bookkeeper/cli/shell",
    "bookkeeper/cli/spark",
    "bookkeeper/cli/why",
    "bookkeeper/config",
    "bookkeeper/spark",
    "bookkeeper/spark/audit",
    "bookkeeper/spark/cluster",
    "journalmgr",
    "journalmgr/cli",
    "journalmgr/ledger",
    "journalmgr/spark",
    "hedwig",
    "hedwig/cli",
    "hedwig/spark",
}
"""Packages that do not list their files in their docstring yet."""

_GENERATED = re.compile(r"_pb2\.pyi?$")


def _folders() -> Iterator[Path]:
    for top in PACKAGES:
        for path in (ROOT / top, *sorted((ROOT / top).rglob("*"))):
            if path.is_dir() and any(path.glob("*.py")):
                yield path


def _members(folder: Path) -> set[str]:
    """Modules and packages in a folder, without generated ones."""
    files = {path.stem for path in folder.glob("*.py") if not _GENERATED.search(path.name)} - {"__init__"}
    return files | {path.name for path in folder.iterdir() if path.is_dir() and any(path.glob("*.py"))}


def _map_of(folder: Path) -> list[str]:
    """Names in the map of a package: the second paragraph of its docstring, a line `name    what it holds` for each."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    block = [*text.split("\n\n"), ""][1]
    return sorted(name for line in block.splitlines() for name in re.findall(r"^ *(\w+)(?:\.py|/)? {2,}\S", line))


@pytest.mark.parametrize("folder", tuple(_folders()), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_is_small(folder: Path) -> None:
    name = str(folder.relative_to(ROOT))
    count = len([path for path in folder.glob("*.py") if not _GENERATED.search(path.name)])
    assert (count > FILES_MAX) == (name in LARGER), f"{name} has {count} files"


@pytest.mark.parametrize("folder", tuple(_folders()), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_docstring_of_a_package_lists_its_files(folder: Path) -> None:
    listed = _map_of(folder) == sorted(_members(folder))
    assert listed != (str(folder.relative_to(ROOT)) in UNLISTED), (_map_of(folder), sorted(_members(folder)))


def test_the_tree_of_the_guide_shows_the_folders() -> None:
    guide = (ROOT / ".github/CONTRIBUTING.md").read_text()
    tree = guide.partition("```\n")[2].partition("```")[0]
    shown, top = set(), ""
    for line in tree.splitlines():
        name = line.split()[0].rstrip("/")
        if line.startswith("  "):
            shown.add(f"{top}/{name}")
        else:
            top = name
            shown.add(top)
    folders = {str(path.relative_to(ROOT)) for path in _folders()}
    assert shown == {name for name in folders if name.count("/") <= 1} | {"tests", *_tests()}


def _tests() -> set[str]:
    return {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
