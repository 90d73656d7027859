"""Once a read met damaged bytes of an entry log, all entries in them are found, without a round of the scrub (I-67)."""

from collections.abc import Callable

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.storage.damage import DamageKind
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import Status
from tests.support.stored_ledgers import StoredLedgers

SETTINGS = StorageSettings(
    memtable_bytes_max=1 << 20, open_files_max=16, entry_log_bytes_max=50 << 10, block_bytes=16 << 10
)
LOG = "/a/current/1.log"


def stored_ledgers() -> StoredLedgers:
    """Two ledgers, of each of which two of three entries are here, share log 1, which is closed."""
    stored = StoredLedgers(settings=SETTINGS)
    for round_ in range(3):
        for ledger_id in (2, 3):
            for third in (0, 1):
                stored.add(ledger_id, round_ * 60 + third, 20, step=3, payload=b"x" * 300)
        stored.flush()
    stored.checkpoint()
    stored.start()
    stored.storage.replay_finished()
    return stored


def unreadable(stored: StoredLedgers) -> set[tuple[int, int]]:
    """All entries that cannot be read, one by one."""
    return {key for key in stored.entries if stored.read(key[0], [key[1]])[0] is Status.IO_ERROR}


def found(stored: StoredLedgers) -> set[tuple[int, int]]:
    """What the record names."""
    return {key for key in stored.entries if stored.storage.damage.among(key[0], [key[1]])}


def look(stored: StoredLedgers) -> int:
    """What the scrub does when a read met something; the steps."""
    scrub = stored.storage.scrub()
    assert scrub.looks_due
    sizes = list(scrub.looking_steps())
    assert max(sizes, default=0) <= 1 << 20
    return len(sizes)


def flip(stored: StoredLedgers) -> None:
    stored.fs.poke(LOG, 20_000, b"?")


def cut(stored: StoredLedgers, size: int = 21_000) -> None:
    file = stored.fs.open(LOG, OpenMode.UPDATE)
    file.truncate(size)
    file.close()


def delete(stored: StoredLedgers) -> None:
    stored.fs.unlink(LOG)


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("damage", [flip, cut, delete])
def test_one_read_is_enough_to_find_every_entry_in_the_bytes_it_met(
    damage: Callable[[StoredLedgers], None], *, restarts: bool
) -> None:
    probe = stored_ledgers()
    damage(probe)
    probe.start()
    probe.storage.replay_finished()
    expected = unreadable(probe)
    assert len(expected) > 5
    assert {ledger_id for ledger_id, _ in expected} == {2, 3} or damage is flip

    stored = stored_ledgers()
    damage(stored)
    if restarts:
        stored.start()
        stored.storage.replay_finished()
    ledger_id, entry_id = max(expected)
    with capturedLogs() as events:
        assert stored.read(ledger_id, [entry_id]) == [Status.IO_ERROR]
        assert len(found(stored)) <= 1
        look(stored)
    lines = [formatEvent(event) or "" for event in events]
    assert len([line for line in lines if line.startswith(LOG) and "why ledger" in line]) == 1, lines
    assert len([line for line in lines if f"Of {LOG}" in line]) == 1, lines
    assert found(stored) == expected
    assert {each.kind for each in stored.storage.damage.all()} >= {
        DamageKind.CHANGED if damage is flip else DamageKind.GONE
    }
    assert unreadable(stored) == expected
    assert not stored.storage.scrub().looks_due, "one look per page"


@pytest.mark.parametrize("damage", [flip, cut, delete])
def test_the_record_is_empty_when_everything_was_written_anew(damage: Callable[[StoredLedgers], None]) -> None:
    """Though between the entries that are here there are some that never were."""
    stored = stored_ledgers()
    damage(stored)
    stored.start()
    stored.storage.replay_finished()
    list(stored.storage.scrub().steps(everything=True))
    before = found(stored)
    assert before == unreadable(stored)
    assert len(stored.storage.damage) > 0
    for ledger_id, entry_id in sorted(before):
        stored.add(ledger_id, entry_id, 1, payload=b"x" * 300)
    assert [each for each in stored.storage.damage.all() if each.ledger_id >= 0] == []
    list(stored.storage.scrub().steps(everything=True))  # the index names the old places until the next flush
    assert found(stored) == set()
    stored.checkpoint()
    list(stored.storage.scrub().steps(everything=True))
    assert found(stored) == set()
    assert stored.storage.damage.gone_count == 0


def test_the_record_is_empty_when_the_ledgers_were_deleted() -> None:
    stored = stored_ledgers()
    delete(stored)
    stored.start()
    stored.storage.replay_finished()
    list(stored.storage.scrub().steps(everything=True))
    assert stored.storage.damage.gone_count == len(stored.storage.damage) > 0
    assert stored.delete(2, 3) == [2, 3]
    assert (len(stored.storage.damage), stored.storage.damage.gone_count) == (0, 0)


def test_what_was_noted_while_it_was_written_anew_is_forgotten_by_the_look() -> None:
    stored = stored_ledgers()
    flip(stored)
    stored.start()
    stored.storage.replay_finished()
    (key,) = sorted(unreadable(stored))[:1]
    noted = stored.storage.damage.all()
    for ledger_id, entry_id in unreadable(stored):
        stored.add(ledger_id, entry_id, 1, payload=b"x" * 300)
    for damage in noted:
        stored.storage.damage.add(damage)  # as a read does that began before
    assert key in found(stored)
    look(stored)
    assert found(stored) == set()


def test_a_log_that_is_gone_is_one_line_whatever_is_read() -> None:
    stored = stored_ledgers()
    delete(stored)
    stored.start()
    stored.storage.replay_finished()
    with capturedLogs() as events:
        assert len(unreadable(stored)) > 50
    lines = [line for event in events if LOG in (line := formatEvent(event) or "")]
    assert len(lines) == 1
    assert f"{LOG} is missing; the index has entry " in lines[0]
    assert "bring it back" in lines[0]


def test_a_log_that_was_cut_short_is_one_line_whatever_is_read() -> None:
    stored = stored_ledgers()
    cut(stored, 4096 * 4)
    stored.start()
    stored.storage.replay_finished()
    with capturedLogs() as events:
        assert len(unreadable(stored)) > 50
    lines = [line for event in events if LOG in (line := formatEvent(event) or "")]
    assert len(lines) == 1, lines
    assert f"{LOG} at 16384: the entry log was cut short" in lines[0]
