"""Ids under which bookies hold something: the meaning of each answer; id and bookies of a new ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.write.new_ledger import ATTEMPTS_MAX
from bookkeeper.client.write.occupancy import Occupancy, ask_occupancy, occupied
from bookkeeper.config import ClientSettings
from bookkeeper.errors import LedgerExists, LedgerIdOccupied, NoSuchLedger, NotEnoughBookies
from bookkeeper.model import DigestType, EntryId, LedgerId, Status
from bookkeeper.wire.digest import digest_of
from bookkeeper.wire.messages import AddBatch, ReadBatch
from tests.support.fake_bookie import CLOSE, SILENCE, FakeBookie, FakeCluster

STRANGER = b"\x66" * 20
BOTH = pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, "read_timeout_s": 1.0, **values})


def claim(bookies: list[FakeBookie], ledger_ids: range) -> None:
    """Claim the ids, as a fence with an invented key does."""
    for bookie in bookies:
        for ledger_id in ledger_ids:
            bookie.keys[ledger_id] = STRANGER
            bookie.fenced.add(ledger_id)


def leave_entries(bookie: FakeBookie, ledger_id: int, count: int) -> None:
    """Store entries of an earlier ledger of this id, written with the default password."""
    bodies, _ = digest_of(DigestType.CRC32C, b"").package(ledger_id, 0, -1, 0, [b"stale"] * count)
    bookie.entries[ledger_id] = dict(enumerate(bodies))
    bookie.keys[ledger_id] = STRANGER


def create(cluster: FakeCluster, client: LedgerClient, **options: Any) -> Any:
    return cluster.wait(client.create(**{"ensemble": 3, "write_quorum": 3, "ack_quorum": 2, **options}))


@BOTH
@pytest.mark.parametrize(
    ("prepare", "occupancy", "last"),
    [
        (lambda bookie: None, Occupancy.FREE, -1),
        (lambda bookie: claim([bookie], range(7, 8)), Occupancy.CLAIMED, -1),
        (lambda bookie: leave_entries(bookie, 7, 3), Occupancy.ENTRIES, 2),
        (
            lambda bookie: bookie.entries.update({7: {0: b"a header is 32 bytes long"[:24]}}),
            Occupancy.ENTRIES,
            2**63 - 1,
        ),
        (lambda bookie: bookie.crash(), Occupancy.UNKNOWN, -1),
        (lambda bookie: setattr(bookie, "rule", lambda request: SILENCE), Occupancy.UNKNOWN, -1),
        (lambda bookie: setattr(bookie, "rule", lambda request: CLOSE), Occupancy.UNKNOWN, -1),
        (lambda bookie: setattr(bookie, "rule", lambda request: Status.UNAUTHORIZED), Occupancy.UNKNOWN, -1),
        (lambda bookie: setattr(bookie, "rule", lambda request: Status.IO_ERROR), Occupancy.UNKNOWN, -1),
        (lambda bookie: setattr(bookie, "rule", lambda request: Status.UNKNOWN_LEDGER_STATE), Occupancy.UNKNOWN, -1),
        (lambda bookie: setattr(bookie, "rule", lambda request: Status.TOO_MANY_REQUESTS), Occupancy.UNKNOWN, -1),
    ],
    ids=[
        "free",
        "claimed",
        "entries",
        "no header",
        "dead",
        "silent",
        "hung up",
        "unauthorized",
        "damaged",
        "limbo",
        "busy",
    ],
)
def test_each_answer_has_one_meaning(
    prepare: Callable[[FakeBookie], object], occupancy: Occupancy, last: int, use_v2: bool
) -> None:
    cluster = FakeCluster(1)
    client = cluster.client(settings(use_v2=use_v2))
    cluster.wait(client.available_bookies())
    cluster.wait(client.context.directory.ready())
    prepare(cluster.bookies[0])
    bookie_id = cluster.bookies[0].bookie_id
    found = cluster.wait(ask_occupancy(client.context, LedgerId(7), [bookie_id]))[bookie_id]
    assert (found.occupancy, found.last_entry_id) == (occupancy, last)
    assert (found.why is not None) == (occupancy is Occupancy.UNKNOWN)
    known = occupied(LedgerId(7), {bookie_id: found})
    assert (known is not None) == (occupancy in {Occupancy.CLAIMED, Occupancy.ENTRIES})
    admitted = occupancy is Occupancy.FREE
    digest = digest_of(DigestType.CRC32C, b"")
    assert found.admits(LedgerId(7), EntryId(0), digest) == admitted
    # Good copies of earlier fragments of this ledger may exist there.
    assert found.admits(LedgerId(7), EntryId(3), digest) == (admitted or last == 2)
    assert found.admits(LedgerId(7), EntryId(2), digest) == admitted
    assert found.admits(LedgerId(7), EntryId(3), digest_of(DigestType.MAC, b"")) == admitted


def test_a_busy_bookie_is_asked_again() -> None:
    cluster = FakeCluster(3)
    client = cluster.client(settings())
    refusals = iter([Status.TOO_MANY_REQUESTS] * 3)
    cluster.bookies[0].rule = lambda request: next(refusals, None) if isinstance(request, ReadBatch) else None
    assert cluster.bookies[0].bookie_id in create(cluster, client).metadata.last_fragment.ensemble


@BOTH
@pytest.mark.parametrize("count", [1, 2, 100, 3000])
def test_create_passes_over_claimed_ids(count: int, use_v2: bool) -> None:
    cluster = FakeCluster(3)
    claim(cluster.bookies, range(count))
    client = cluster.client(settings(use_v2=use_v2))
    ledger = create(cluster, client)
    assert ledger.ledger_id >= count
    cluster.wait(ledger.append(b"x"))
    assert cluster.wait(ledger.close()).last_entry_id == 0
    assert 1 <= client.context.ids_passed_over <= min(count, 20)
    for ledger_id in range(min(count, 10)):
        with pytest.raises(NoSuchLedger):  # no metadata was written
            cluster.wait(client.metadata(ledger_id))


def test_an_id_is_passed_over_if_one_bookie_of_the_ensemble_has_entries() -> None:
    cluster = FakeCluster(3)
    leave_entries(cluster.bookies[1], 0, 5)
    assert create(cluster, cluster.client(settings())).ledger_id == 1


def test_the_attempts_of_a_create_are_bounded_and_the_next_one_continues() -> None:
    cluster = FakeCluster(3)
    claim(cluster.bookies, range(16_000))
    client = cluster.client(settings())
    with pytest.raises(LedgerIdOccupied, match=f"{ATTEMPTS_MAX} ids from 0 to .* another key claimed this id"):
        create(cluster, client)
    assert client.context.ids_passed_over == ATTEMPTS_MAX
    assert create(cluster, client).ledger_id >= 16_000


@pytest.mark.parametrize("how", ["claimed", "entries"])
def test_a_chosen_id_is_refused_with_what_the_bookie_holds(how: str) -> None:
    cluster = FakeCluster(3)
    if how == "claimed":
        claim(cluster.bookies[:1], range(7, 8))
    else:
        leave_entries(cluster.bookies[0], 7, 4)
    what = "another key claimed this id" if how == "claimed" else "holds other entries under this id, up to entry 3"
    client = cluster.client(settings())
    with pytest.raises(LedgerIdOccupied, match=rf"^ledger 7: no ledger of this id exists.*\[b1:3181: {what}") as caught:
        create(cluster, client, ledger_id=7)
    assert caught.value.ledger_id == 7
    assert "password" not in str(caught.value)
    with pytest.raises(NoSuchLedger):
        cluster.wait(client.metadata(7))


def test_the_id_of_an_existing_ledger_is_refused_as_ledger_exists() -> None:
    cluster = FakeCluster(3)
    client = cluster.client(settings())
    ledger = create(cluster, client, ledger_id=7)
    with pytest.raises(LedgerExists):
        create(cluster, client, ledger_id=7)
    cluster.wait(ledger.append(b"x"))
    with pytest.raises(LedgerExists):
        create(cluster, client, ledger_id=7)


@pytest.mark.parametrize("how", ["crashed", "silent", "damaged"])
def test_a_bookie_that_cannot_be_asked_is_not_a_member(how: str) -> None:
    """Unknown is never "free": readers might see what the bookie holds when it is back."""
    cluster = FakeCluster(4)
    client = cluster.client(settings())
    cluster.wait(client.context.directory.ready())
    failing = cluster.bookies[0]
    if how == "crashed":
        failing.crash()
    else:
        failing.rule = lambda request: SILENCE if how == "silent" else Status.IO_ERROR
    ledger = create(cluster, client, bookies=[bookie.bookie_id for bookie in cluster.bookies[:3]])
    assert set(ledger.metadata.last_fragment.ensemble) == {bookie.bookie_id for bookie in cluster.bookies[1:]}
    cluster.wait(ledger.append(b"x"))
    assert len(ledger.metadata.fragments) == 1


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize(("ack_quorum", "ledger_id"), [(3, None), (2, None), (2, 70)])
def test_a_create_without_a_replacement_names_the_silent_bookie(
    ack_quorum: int, ledger_id: int | None, delayed: bool
) -> None:
    """It might hold entries of an earlier ledger of the id, also where its copies are to spare."""
    cluster = FakeCluster(3)
    cluster.bookies[2].rule = lambda request: SILENCE
    claim(cluster.bookies[:1], range(20))
    client = cluster.client(settings(delay_ensemble_change=delayed))
    began_s = cluster.clock.seconds()
    with pytest.raises(NotEnoughBookies, match=r"^no ledger was created: .*b3:3181.* gave no answer in time"):
        create(cluster, client, ack_quorum=ack_quorum, ledger_id=ledger_id)
    assert cluster.clock.seconds() - began_s < 2.0  # it is asked once, not for each id


@BOTH
def test_a_chosen_id_is_refused_for_what_one_bookie_holds_while_another_is_silent(use_v2: bool) -> None:
    cluster = FakeCluster(3)
    leave_entries(cluster.bookies[0], 7, 5)
    cluster.bookies[1].rule = lambda request: SILENCE
    client = cluster.client(settings(use_v2=use_v2))
    with pytest.raises(LedgerIdOccupied, match=f"{cluster.bookies[0].bookie_id}.* other entries under this id"):
        create(cluster, client, ledger_id=7)


@pytest.mark.parametrize("entries", [0, 5])
def test_the_id_of_an_existing_ledger_is_refused_as_ledger_exists_while_a_bookie_is_silent(entries: int) -> None:
    cluster = FakeCluster(3)
    client = cluster.client(settings())
    create(cluster, client, ledger_id=7)
    if entries:
        leave_entries(cluster.bookies[0], 7, entries)
    cluster.bookies[1].rule = lambda request: SILENCE
    with pytest.raises(LedgerExists, match="ledger 7 exists already"):
        create(cluster, client, ledger_id=7)


def test_a_bookie_that_was_silent_under_an_occupied_id_is_replaced_before_the_next_id_is_asked() -> None:
    cluster = FakeCluster(4)
    claim(cluster.bookies, range(100))
    asked: dict[str, list[int]] = {each.bookie_id: [] for each in cluster.bookies}

    def rule_of(bookie: FakeBookie, answer: Any) -> Callable[[Any], Any]:
        def rule(request: Any) -> Any:
            if isinstance(request, ReadBatch):
                asked[bookie.bookie_id].append(request.ledger_id)
                return answer
            return None

        return rule

    silent, *others = cluster.bookies
    silent.rule = rule_of(silent, SILENCE)
    for each in others:
        each.rule = rule_of(each, None)
    client = cluster.client(settings())
    ledgers = [create(cluster, client) for _ in range(3)]
    for ledger in ledgers:
        members = ledger.metadata.last_fragment.ensemble
        assert silent.bookie_id not in members
        assert all(ledger.ledger_id in asked[each] for each in members)
    assert len(asked[silent.bookie_id]) <= 1


def test_the_replacement_of_a_silent_bookie_is_asked_too() -> None:
    cluster = FakeCluster(4)
    claim(cluster.bookies[3:], range(1))
    cluster.bookies[0].rule = lambda request: SILENCE
    ledger = create(cluster, cluster.client(settings()), bookies=[bookie.bookie_id for bookie in cluster.bookies[:3]])
    assert ledger.ledger_id == 1
    assert set(ledger.metadata.last_fragment.ensemble) == {bookie.bookie_id for bookie in cluster.bookies[1:]}


@pytest.mark.parametrize("how", ["claimed", "entries", "entries below", "silent"])
def test_ensemble_changes_use_only_bookies_without_a_claim_or_other_entries(how: str) -> None:
    """Good copies below the new fragment are auto-recovery's; any other entries are a stranger's."""
    cluster = FakeCluster(5)
    client = cluster.client(settings())
    ledger = create(cluster, client, bookies=[bookie.bookie_id for bookie in cluster.bookies[:3]])
    cluster.wait(ledger.append_many([b"x"] * 10))
    spare, clean = cluster.bookies[3:]
    if how == "claimed":
        claim([spare], range(1))
    elif how == "silent":
        spare.rule = lambda request: SILENCE
    else:
        leave_entries(spare, 0, 3 if how == "entries below" else 30)
        spare.keys.pop(0)
    if how == "entries below":
        clean.leave()
        cluster.run(1.0)
    cluster.bookies[0].crash()
    cluster.wait(ledger.append_many([b"y"] * 10))
    replacement = spare if how == "entries below" else clean
    assert replacement.bookie_id in ledger.metadata.last_fragment.ensemble
    assert len(ledger.metadata.fragments) == 2
    metadata = cluster.wait(ledger.close())
    assert metadata.last_entry_id == 19


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("claimed", "bookie b4:3181: another key claimed this id there"),
        ("entries", "bookie b4:3181 holds other entries under this id, up to entry 2"),
    ],
)
def test_an_ensemble_change_names_bookies_that_cannot_be_used(how: str, text: str) -> None:
    """More bookies would not be the remedy for them: another ledger id is."""
    cluster = FakeCluster(4)
    client = cluster.client(settings())
    ledger = create(cluster, client, bookies=[bookie.bookie_id for bookie in cluster.bookies[:3]])
    cluster.wait(ledger.append(b"x"))
    if how == "claimed":
        claim(cluster.bookies[3:], range(1))
    else:
        leave_entries(cluster.bookies[3], 0, 3)
    cluster.bookies[0].crash()
    with pytest.raises(NotEnoughBookies) as caught:
        cluster.wait(ledger.append_many([b"y"] * 3))
    assert text in str(caught.value)
    assert "start more bookies" not in str(caught.value)
    assert "write on in a new ledger" in str(caught.value)


def test_a_former_member_is_used_again_without_being_asked() -> None:
    """Its entries are this writer's."""
    cluster = FakeCluster(4)
    client = cluster.client(settings(quarantine_s=1.0))
    ledger = create(cluster, client, bookies=[bookie.bookie_id for bookie in cluster.bookies[:3]])
    cluster.wait(ledger.append_many([b"x"] * 10))
    first = cluster.bookies[0]
    first.rule = lambda request: Status.READ_ONLY if isinstance(request, AddBatch) else None
    cluster.wait(ledger.append_many([b"y"] * 10))
    cluster.run(1.0)
    assert first.bookie_id not in ledger.metadata.last_fragment.ensemble
    first.rule = lambda request: Status.IO_ERROR if isinstance(request, ReadBatch) else None  # fails if it is asked
    cluster.wait(ledger.append(b"between"))
    cluster.run(5.0)
    cluster.bookies[1].crash()
    cluster.wait(ledger.append_many([b"z"] * 10))
    assert first.bookie_id in ledger.metadata.last_fragment.ensemble


def test_an_id_claimed_after_create_fails_the_first_add_as_occupied() -> None:
    cluster = FakeCluster(3)
    ledger = create(cluster, cluster.client(settings()))
    claim(cluster.bookies, range(1))
    with pytest.raises(LedgerIdOccupied, match="another key claimed") as caught:
        cluster.wait(ledger.append(b"x"))
    assert "password" not in str(caught.value)
    cluster.run(1.0)
    assert cluster.wait(cluster.client(settings()).metadata(ledger.ledger_id)).last_entry_id == -1  # closed, empty
