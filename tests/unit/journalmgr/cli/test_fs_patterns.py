"""Patterns of paths: what matches, and that no more is listed than needed."""

from collections.abc import Iterator

import pytest

from journalmgr.cli.fs_patterns import PatternError, expand, is_pattern

FILES = [
    "/a*c",
    "/abc",
    "/x",
    "/.hid",
    "/logs/2024-01/a.log",
    "/logs/2024-02/b.log",
    "/logs/2025-01/a.log",
    "/logs/[1]",
]


class Tree:
    def __init__(self) -> None:
        self.listed: list[str] = []

    def children(self, path: str) -> Iterator[tuple[str, bool]]:
        self.listed.append(path)
        prefix = path.rstrip("/") + "/"
        below = {each.removeprefix(prefix) for each in FILES if each.startswith(prefix)}
        names = {name.partition("/")[0]: "/" in name for name in below}
        return iter(sorted(names.items()))

    def exists(self, path: str) -> bool:
        return any(each == path or each.startswith(path.rstrip("/") + "/") for each in FILES)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("/*", ["/.hid", "/a*c", "/abc", "/logs", "/x"]),
        ("/?", ["/x"]),
        ("/a?c", ["/a*c", "/abc"]),
        (r"/a\*c", ["/a*c"]),
        ("/[a-c]*", ["/a*c", "/abc"]),
        ("/[^a.]*", ["/logs", "/x"]),
        ("/[!a.]*", ["/logs", "/x"]),
        ("/[x-]", ["/x"]),
        ("/{x,abc,none}", ["/abc", "/x"]),
        ("/logs/{2024-0{1,2},2025-*}/a.log", ["/logs/2024-01/a.log", "/logs/2025-01/a.log"]),
        ("/{logs/2025-01,none}/*", ["/logs/2025-01/a.log"]),
        ("/logs/*/a.log", ["/logs/2024-01/a.log", "/logs/2025-01/a.log"]),
        ("/logs/2024*/*", ["/logs/2024-01/a.log", "/logs/2024-02/b.log"]),
        (r"/logs/\[1\]", ["/logs/[1]"]),
        ("/logs/[[]1]", ["/logs/[1]"]),
        ("/x/*", []),
        ("/*/none", []),
        ("/none*", []),
        (r"/[x\]]", ["/x"]),
        ("/{x}", ["/x"]),
        ("/[{]x,y}", []),
    ],
)
def test_what_matches(pattern: str, found: list[str]) -> None:
    assert is_pattern(pattern)
    assert expand(pattern, Tree()) == found


def test_a_directory_is_listed_where_a_pattern_stands_and_nowhere_else() -> None:
    tree = Tree()
    assert expand("/logs/2024*/a.log", tree) == ["/logs/2024-01/a.log"]
    assert tree.listed == ["/logs"]
    assert not is_pattern("/logs/a,b}]")


@pytest.mark.parametrize(
    ("pattern", "says"), [("/a[b", "no ] for"), ("/a{b", "no } for"), ("/a\\", "nothing follows"), ("/[z-a]", "range")]
)
def test_a_pattern_that_is_none_is_told(pattern: str, says: str) -> None:
    with pytest.raises(PatternError, match=says):
        expand(pattern, Tree())
