"""Which znodes are journals, and how far the search for them goes."""

from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataUnavailable
from journalmgr.other_journals import DEPTH_MAX, Search, find_journals

JOURNAL = ("version", "ledgers", "CurrentInprogress", "maxtxid")


class Znodes:
    """A tree by the paths of its leaves."""

    def __init__(self, *paths: str) -> None:
        self.below: dict[str, set[str]] = {"/": set()}
        self.secret: set[str] = set()
        self.looked_at: list[str] = []
        for path in paths:
            parent = "/"
            for name in path.strip("/").split("/"):
                self.below.setdefault(parent, set()).add(name)
                parent = f"{parent.rstrip('/')}/{name}"

    async def children(self, path: str) -> list[str] | None:
        self.looked_at.append(path)
        if path in self.secret:
            raise MetadataUnavailable(f"{path} is not for you")
        return sorted(self.below.get(path, ()))


def journal(root: str) -> list[str]:
    return [f"{root}/{name}" for name in JOURNAL]


def found(znodes: Znodes, root: str = "/names", **options: int) -> Search:
    outcome: list[Search] = []
    Deferred.fromCoroutine(find_journals(znodes.children, root, "/ledgers", **options)).addCallback(outcome.append)
    return outcome[0]


def test_journals_are_found_wherever_they_are_and_the_own_one_is_none_of_them() -> None:
    paths = [path for root in ("/names", "/other", "/a/b/third") for path in journal(root)]
    search = found(Znodes(*paths, "/a/x", "/zookeeper/quota"))
    assert (search.roots, search.complete) == (["/a/b/third", "/other"], True)


def test_one_that_is_being_formatted_is_a_journal_and_a_cluster_of_bookies_is_not() -> None:
    """A cluster's tree is not gone into: its ledgers are many. Nor is a journal's."""
    znodes = Znodes(
        "/half/ledgers", "/half/maxtxid", "/theirs/LAYOUT", "/theirs/00/0000", "/ledgers/LAYOUT", "/x/ledgers"
    )
    assert found(znodes).roots == ["/half"]
    assert "/theirs/00" not in znodes.looked_at
    assert not {"/ledgers", "/half/ledgers"} & set(znodes.looked_at)


def test_the_search_is_bounded_and_begins_with_the_neighbours() -> None:
    znodes = Znodes(*(f"/far/{number}" for number in range(50)), *journal("/near/one"), *journal("/near/two"))
    search = found(znodes, root="/near/one", looks_max=10)
    assert len(znodes.looked_at) == 10
    assert (search.roots, search.complete) == (["/near/two"], False)
    deep = "/d" * DEPTH_MAX
    assert found(Znodes(*journal(deep))).roots == [deep]
    assert found(Znodes(*journal(f"{deep}/d"))).roots == []


def test_what_cannot_be_looked_at_leaves_the_search_incomplete() -> None:
    znodes = Znodes(*journal("/secret/journal"), *journal("/other"))
    znodes.secret.add("/secret")
    search = found(znodes)
    assert (search.roots, search.complete) == (["/other"], False)
