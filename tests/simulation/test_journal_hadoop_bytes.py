"""Ledgers and records that Hadoop left: entries of a genuine name node, older layouts, ends that were never checked."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest

from bookkeeper.model import DigestType
from journalmgr.edits.frame import encode_record
from journalmgr.errors import EditsCorrupt, EditsError, GapInTransactions
from journalmgr.model import TxId
from tests.simulation.journals import NAMESPACE, data_of, failure_of, listed, new_journal, put
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import World
from tests.support.recorded_edits import ENTRIES, OPCODES


async def ledger_of(world: World, entries: list[bytes], *, close: bool = True) -> int:
    """A ledger as Hadoop writes one."""
    client = world.add_client()
    handle = await client.ledgers.create(password=b"", digest=DigestType.MAC, metadata_version=2)
    await handle.append_many(entries)
    if close:
        await handle.close()
    else:
        client.crash()
    ledger_id: int = handle.ledger_id
    return ledger_id


async def transactions(journal: Any, first: int) -> list[Any]:
    """All records from there on."""
    found: list[Any] = []
    for reader in await journal.select_input_streams(TxId(first)):
        while (batch := await reader.next()) is not None:
            found += batch.records
    return found


def finalised(ledger_id: int, first: int, last: int, layout: int = -63) -> tuple[str, bytes]:
    """Name and payload of a record."""
    text = f"dataLayoutVersion: {layout}\nledgerId: {ledger_id}\nfirstTxId: {first}\nlastTxId: {last}\n"
    return f"edits_{first:018d}_{last:018d}", text.encode()


def test_a_segment_of_a_genuine_name_node_is_read_byte_for_byte() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> list[Any]:
        await journal.format(NAMESPACE)
        put(world, *finalised(await ledger_of(world, ENTRIES), 1, 9))
        return await transactions(journal, 1)

    found = run(world, story())
    assert [record.opcode for record in found] == OPCODES
    assert b"".join(encode_record(one.opcode, one.txid, one.body) for one in found) == b"".join(ENTRIES)
    assert [found[index].offset for index in (0, 1, 8)] == [0, 17, 550]


def test_a_segment_that_a_genuine_name_node_left_open_is_recovered() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> list[Any]:
        await journal.format(NAMESPACE)
        ledger_id = await ledger_of(world, ENTRIES[:7], close=False)
        put(world, "inprogress_1", f"dataLayoutVersion: -63\nledgerId: {ledger_id}\nfirstTxId: 1\n".encode())
        await journal.recover_unfinalized()
        return await transactions(journal, 3)

    assert [record.opcode for record in run(world, story())] == OPCODES[2:8]
    assert listed(world) == [finalised(0, 1, 8)[0]]
    assert data_of(world, f"/ledgers/{listed(world)[0]}") == finalised(0, 1, 8)[1]
    assert data_of(world, "/maxtxid") == b"txId: 8\n"


def test_a_layout_without_lengths_and_its_old_record_are_read() -> None:
    """Layout -40 and the fields of before Hadoop 2.0.3 (journalmgr/FORMATS.md 2.6, 5.2)."""
    world = started_world(3)
    journal = new_journal(world)

    def old_record(opcode: int, txid: int) -> bytes:
        head = struct.pack(">Bq", opcode, txid)
        return head + struct.pack(">I", crc32(head))

    async def story() -> list[Any]:
        await journal.format(NAMESPACE)
        ledger_id = await ledger_of(world, [old_record(24, 1), old_record(23, 2)])
        put(world, finalised(ledger_id, 1, 2)[0], f"-40;{ledger_id};1;2".encode())
        return await transactions(journal, 1)

    assert [(record.opcode, record.txid) for record in run(world, story())] == [(24, 1), (23, 2)]


@pytest.mark.parametrize(
    ("entries", "recorded", "delivered", "expected"),
    [
        (ENTRIES, 12, 9, GapInTransactions),
        (ENTRIES, 6, 6, EditsCorrupt),
        (ENTRIES[:3] + ENTRIES[4:], 9, 4, GapInTransactions),
        ([*ENTRIES[:4], ENTRIES[4][:-1] + b"?", *ENTRIES[5:]], 9, 5, EditsCorrupt),
        ([*ENTRIES[:7], ENTRIES[7][:9]], 9, 8, EditsCorrupt),
        ([], 9, 0, GapInTransactions),
    ],
    ids=["ends early", "goes on", "a hole", "a wrong checksum", "cut short", "nothing"],
)
def test_what_is_not_as_recorded_is_read_up_to_there_and_told(
    entries: list[bytes], recorded: int, delivered: int, expected: type[Exception]
) -> None:
    """I-81, I-83: never skipped, never past the record; and told again when it is asked for again."""
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        put(world, *finalised(await ledger_of(world, entries), 1, recorded))
        [reader] = await journal.select_input_streams(TxId(1))
        found: list[int] = []
        while True:
            try:
                batch = await reader.next()
            except (EditsError, GapInTransactions) as error:
                first = error
                break
            assert batch is not None
            found += [record.txid for record in batch.records]
        assert found == list(range(1, delivered + 1))
        assert type(first) is expected
        assert "ledger 0 of segment 1.." in str(first)
        assert str(await failure_of(reader.next())) == str(first)

    run(world, story())


def test_recovery_refuses_a_last_entry_that_is_damaged() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        ledger_id = await ledger_of(world, [*ENTRIES[:7], ENTRIES[7][:-1] + b"?"], close=False)
        put(world, "inprogress_1", f"dataLayoutVersion: -63\nledgerId: {ledger_id}\nfirstTxId: 1\n".encode())
        error = await failure_of(journal.recover_unfinalized())
        assert isinstance(error, EditsCorrupt)
        assert "ledger 0 of segment 1..in progress (inprogress_1), entry 7" in str(error)

    run(world, story())
    assert listed(world) == ["inprogress_1"]
