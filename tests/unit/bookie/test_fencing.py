"""Keys and fences by themselves; how they combine with adds is in test_bookie.py."""

from __future__ import annotations

import pytest

from bookkeeper.bookie.requests.fence import FenceState, KeyCheck, LedgerAccess
from tests.support.bookie_fakes import KEY, OTHER_KEY, FakeStorage


@pytest.fixture
def storage() -> FakeStorage:
    return FakeStorage()


def access_to(storage: FakeStorage) -> LedgerAccess:
    return LedgerAccess(storage)


def test_the_first_key_is_the_ledgers_and_any_other_is_wrong(storage: FakeStorage) -> None:
    access = access_to(storage)
    assert access.check_key(7, KEY) is KeyCheck.FIRST
    storage.set_master_key(7, KEY)
    assert access.check_key(7, KEY) is KeyCheck.SAME
    for wrong in (OTHER_KEY, b"", KEY[:-1], KEY + b"k"):
        assert access.check_key(7, wrong) is KeyCheck.WRONG  # I-73


def test_a_stored_key_of_another_size_still_opens_its_ledger(storage: FakeStorage) -> None:
    storage.set_master_key(7, b"short")
    assert access_to(storage).check_key(7, b"short") is KeyCheck.SAME


def test_a_fence_is_pending_until_its_sync_and_durable_for_ever_after(storage: FakeStorage) -> None:
    access = access_to(storage)
    answered: list[str] = []
    assert access.fence_state(7) is FenceState.ABSENT
    access.fence_appended(7)
    assert access.fence_state(7) is FenceState.PENDING
    access.when_durable(7, lambda: answered.append("first"))
    access.when_durable(7, lambda: answered.append("second"))
    assert answered == []  # I-23
    access.fence_durable(7)
    assert answered == ["first", "second"]
    assert access.fence_state(7) is FenceState.DURABLE
    access.when_durable(7, lambda: answered.append("third"))
    assert answered == ["first", "second", "third"]
