"""Access control lists: what is kept beside the mode says, with the mode, all of the list."""

from hypothesis import given
from hypothesis import strategies as st

from journalmgr.edits.fields import AclEntry
from journalmgr.namenode.namespace import acl

PERMISSIONS = st.integers(0, 7)


@st.composite
def lists(draw: st.DrawFn) -> list[AclEntry]:
    """What a client may give: the three of the mode, named ones, and the same by default or not."""
    entries = []
    for scope in range(1 + draw(st.booleans())):
        entries += [AclEntry(kind, scope, draw(PERMISSIONS), None) for kind in (acl.USER, acl.GROUP, acl.OTHER)]
        named = st.tuples(st.sampled_from([acl.USER, acl.GROUP]), st.sampled_from("abc"))
        for kind, name in draw(st.lists(named, unique=True, max_size=3)):
            entries.append(AclEntry(kind, scope, draw(PERMISSIONS), name))
    return draw(st.permutations(entries))


@given(st.sampled_from([0o000, 0o644, 0o1777]), lists())
def test_a_list_comes_back_from_the_mode_and_what_is_kept(mode: int, entries: list[AclEntry]) -> None:
    whole = acl.complete("/p", entries, is_directory=True)
    stored, kept = acl.store(mode, whole)
    assert stored & 0o1000 == mode & 0o1000
    if len(whole) == acl.MINIMAL:
        assert kept == acl.logical(stored, kept) == ()
    else:
        assert acl.logical(stored, kept) == whole
        assert acl.store(stored, whole) == (stored, kept)


@given(lists())
def test_without_the_list_the_group_has_its_own_bits_again(entries: list[AclEntry]) -> None:
    stored, kept = acl.store(0, acl.complete("/p", entries, is_directory=True))
    group = next(entry for entry in entries if entry[:2] == (acl.GROUP, acl.ACCESS) and entry.name is None)
    assert acl.without(stored, kept) >> 3 & 7 == group.permission


def test_a_mask_that_is_missing_is_all_that_is_given() -> None:
    entries = [AclEntry(0, 0, 7, None), AclEntry(1, 0, 4, None), AclEntry(3, 0, 0, None), AclEntry(0, 0, 2, "bob")]
    assert AclEntry(acl.MASK, acl.ACCESS, 6, None) in acl.complete("/p", entries, is_directory=False)


def test_a_change_of_the_mode_changes_the_mask() -> None:
    entries = [AclEntry(0, 0, 7, None), AclEntry(1, 0, 4, None), AclEntry(3, 0, 0, None), AclEntry(0, 0, 2, "bob")]
    _, kept = acl.store(0, acl.complete("/p", entries, is_directory=False))
    assert AclEntry(acl.MASK, acl.ACCESS, 1, None) in acl.logical(0o710, kept)


@given(lists(), st.integers(0, 0o777), st.booleans())
def test_what_is_inherited_gives_nobody_more_than_was_asked_for(
    entries: list[AclEntry], mode: int, is_directory: bool
) -> None:
    _, parent = acl.store(0, acl.complete("/p", entries, is_directory=True))
    inherited, whole = acl.inherit(mode, parent, is_directory=is_directory)
    assert inherited & ~mode == 0
    defaults = [entry for entry in parent if entry.scope == acl.DEFAULT]
    assert [entry for entry in whole if entry.scope == acl.DEFAULT] == (defaults if is_directory else [])
