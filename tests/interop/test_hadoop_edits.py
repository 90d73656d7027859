"""Edits between us and genuine Hadoop 2.7.7: its files through our codec, ours through its reader, viewer and NameNode.

One Java process serves the whole module. What Hadoop holds of a transaction comes by reflection (`fields`), so that
every field is compared, those that its XML leaves out among them.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from journalmgr.edits.codec import encode
from journalmgr.edits.fields import Block
from journalmgr.edits.opcodes import HADOOP_3_ONLY, UNDECODABLE, OpCode
from journalmgr.edits.ops import (
    AddBlock,
    AddCacheDirective,
    AnyOp,
    ModifyCacheDirective,
    Op,
    Rename,
    SetPermissions,
    SetQuotaByStorageType,
    Truncate,
    UpdateBlocks,
)
from journalmgr.edits.xml import XmlDecoder, write_xml
from journalmgr.model import HADOOP_2_7
from tests.support.edit_ops import operations
from tests.support.edit_ops import samples as one_of_each
from tests.support.hadoop import HadoopTool
from tests.support.hadoop.edits import HEADER, assert_read_alike, our_reading, write_edits
from tests.support.java_programs import CommandFailed

SEEDS = (1, 2, 3)
ROUNDS = 2
DAMAGES = 250
STORAGE_TYPES = 4
ONE_BLOCK = (Block(1073741825, 512, 1001),)

OBSOLETE = {OpCode.SET_NS_QUOTA, OpCode.CLEAR_NS_QUOTA}
"""Are read, and written by nobody."""

WRITTEN = set(OpCode) - HADOOP_3_ONLY - UNDECODABLE - OBSOLETE - {OpCode.OPAQUE}
"""Every operation that Hadoop 2.7 writes."""


@pytest.fixture(scope="module")
def sampled(hadoop: HadoopTool, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """Files by Hadoop's writer: every operation, with values made from a seed."""
    directory = tmp_path_factory.mktemp("samples")
    return [hadoop.samples(directory / f"edits-{seed}", seed, ROUNDS) for seed in SEEDS]


@pytest.fixture(scope="module")
def of_cluster(hadoop: HadoopTool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a NameNode with clients and a DataNode wrote: Hadoop's own test of its viewer."""
    return hadoop.cluster_edits(tmp_path_factory.mktemp("cluster"))


def test_sampled_files_are_read_alike_and_encoded_byte_for_byte(hadoop: HadoopTool, sampled: Sequence[Path]) -> None:
    for path in sampled:
        ops = assert_read_alike(hadoop, path)
        assert {op.opcode for op in ops} == WRITTEN


def test_edits_of_a_genuine_cluster_are_read_alike_and_encoded_byte_for_byte(
    hadoop: HadoopTool, of_cluster: Path
) -> None:
    ops = assert_read_alike(hadoop, of_cluster)
    assert len({op.opcode for op in ops}) > 40


def test_every_operation_that_we_write_is_read_by_hadoop(hadoop: HadoopTool, tmp_path: Path) -> None:
    ops = [possible(op) for op in one_of_each(HADOOP_2_7) if op.opcode not in OBSOLETE]
    assert {op.opcode for op in ops} == WRITTEN
    assert_read_alike(hadoop, write_edits(tmp_path / "edits", ops))


def our_xml(ops: Iterable[AnyOp]) -> bytes:
    return "".join(write_xml(ops, HADOOP_2_7)).encode()


def assert_viewed_alike(hadoop: HadoopTool, path: Path, ops: Sequence[AnyOp]) -> None:
    theirs, ours = hadoop.view("xml", path, path.with_name("theirs.xml")), our_xml(ops)
    # Line by line first: a difference in a document of a megabyte is not shown well.
    for number, (their_line, our_line) in enumerate(zip(theirs.split(b"\n"), ours.split(b"\n"), strict=False), 1):
        assert our_line == their_line, f"line {number}"
    assert ours == theirs


def test_our_xml_of_sampled_files_is_what_the_viewer_prints(hadoop: HadoopTool, sampled: Sequence[Path]) -> None:
    for path in sampled:
        assert_viewed_alike(hadoop, path, our_reading(path.read_bytes()).ops)


def test_our_xml_of_a_genuine_cluster_is_what_the_viewer_prints(hadoop: HadoopTool, of_cluster: Path) -> None:
    assert_viewed_alike(hadoop, of_cluster, our_reading(of_cluster.read_bytes()).ops)


def test_the_viewer_prints_every_operation_that_we_write_as_we_do(hadoop: HadoopTool, tmp_path: Path) -> None:
    ops = [possible(op) for op in one_of_each(HADOOP_2_7) if op.opcode not in OBSOLETE]
    assert_viewed_alike(hadoop, write_edits(tmp_path / "edits", ops), ops)


def from_xml(xml: bytes) -> bytes:
    """The file that our reader of XML makes of a document."""
    decoder = XmlDecoder(source="xml")
    return HEADER + b"".join(encode(op, HADOOP_2_7) for op in [*decoder.feed(xml), *decoder.finish()])


def test_xml_of_a_genuine_cluster_becomes_the_same_file(hadoop: HadoopTool, of_cluster: Path, tmp_path: Path) -> None:
    xml = hadoop.view("xml", of_cluster, tmp_path / "edits.xml")
    assert hadoop.view("binary", tmp_path / "edits.xml", tmp_path / "edits") == from_xml(xml)


def test_xml_of_each_sampled_operation_becomes_the_same_file(
    hadoop: HadoopTool, sampled: Sequence[Path], tmp_path: Path
) -> None:
    """One by one: there are some that Hadoop prints and cannot read back."""
    refused: set[str] = set()
    for op in (op for path in sampled for op in our_reading(path.read_bytes()).ops):
        xml = our_xml([op])
        (tmp_path / "edits.xml").write_bytes(xml)
        if not_read_back(op):
            with pytest.raises(CommandFailed, match="code -1"):
                hadoop.view("binary", tmp_path / "edits.xml", tmp_path / "edits")
            refused.add(OpCode(op.opcode).name)
        else:
            assert hadoop.view("binary", tmp_path / "edits.xml", tmp_path / "edits") == from_xml(xml), str(op)
    assert refused == {"TRUNCATE", "RENAME", "UPDATE_BLOCKS"}


def not_read_back(op: AnyOp) -> bool:
    """Hadoop reads no TRUNCATE with a block, no RENAME without options, no UPDATE_BLOCKS without blocks from XML."""
    match op:
        case Truncate(blocks=(_, *_)) | Rename(options=()) | UpdateBlocks(blocks=()):
            return True
    return False


def test_the_statistics_of_the_viewer_count_what_we_count(
    hadoop: HadoopTool, sampled: Sequence[Path], tmp_path: Path
) -> None:
    printed = hadoop.view("stats", sampled[0], tmp_path / "stats").decode()
    theirs = {name: int(count) for name, count in re.findall(r"^ +(OP_\w+) .*: (\d+)$", printed, re.MULTILINE)}
    ours = Counter(OpCode(record.opcode).hadoop_name for record in our_reading(sampled[0].read_bytes()).records)
    assert {name: count for name, count in theirs.items() if count} == ours


def possible(op: Op) -> Op:
    """The operation with values that Hadoop can hold, where ours may be any."""
    if isinstance(op, AddBlock):
        op.blocks = op.blocks[:2] or ONE_BLOCK
    elif isinstance(op, Truncate):
        op.blocks = op.blocks[:1]
    elif isinstance(op, Rename):
        op.options = op.options[:1]  # of more, Hadoop's reader takes the spare room of its buffer for further ones
    elif isinstance(op, SetPermissions):
        op.mode &= 0o1777
    elif isinstance(op, SetQuotaByStorageType):
        op.storage_type %= STORAGE_TYPES
    elif isinstance(op, AddCacheDirective | ModifyCacheDirective) and op.directive.path is not None:
        op.directive = op.directive._replace(path=f"/cached/{op.directive.id}")
    return op


@given(ops=st.lists(operations().filter(lambda op: op.opcode not in OBSOLETE).map(possible), min_size=1, max_size=40))
@settings(deadline=None, max_examples=50, phases=(Phase.explicit, Phase.generate))  # each attempt to shrink is a file
def test_any_operation_that_we_write_is_read_by_hadoop(
    hadoop: HadoopTool, tmp_path_factory: pytest.TempPathFactory, ops: list[Op]
) -> None:
    assert_read_alike(hadoop, write_edits(tmp_path_factory.getbasetemp() / "any-edits", ops))


def test_hadoop_and_we_see_a_damaged_file_break_at_the_same_transaction(
    hadoop: HadoopTool, of_cluster: Path, tmp_path: Path
) -> None:
    """Flip a bit, cut the end, add bytes: both read the same transactions before it, and both see it."""
    whole = of_cluster.read_bytes()
    path = tmp_path / "edits"
    for what, data in damages(whole, random.Random(SEEDS[0])):
        path.write_bytes(data)
        theirs, ours = hadoop.read(path), our_reading(data)
        assert len(ours.ops) == len(theirs.ops), f"{what}: {ours.error} / {theirs.error}"
        assert (ours.error is None) == (theirs.error is None), f"{what}: {ours.error} / {theirs.error}"
        assert ours.error is not None or not what.startswith("bit")


def damages(whole: bytes, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """What is done, and the file then; the header stays."""
    for _ in range(DAMAGES):
        at, bit = chance.randrange(len(HEADER), len(whole)), chance.randrange(8)
        yield f"bit {bit} at {at} flipped", whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
    for _ in range(DAMAGES // 5):
        at = chance.randrange(len(HEADER), len(whole))
        yield f"cut at {at}", whole[:at]
        yield f"cut at {at}, padded", whole[:at] + b"\xff" * 100
        yield f"a byte at {at} gone", whole[:at] + whole[at + 1 :]
    for record in our_reading(whole).records[::5]:
        end = record.offset + record.size
        yield f"cut behind txid {record.txid}", whole[:end]
        yield f"padded behind txid {record.txid}", whole[:end] + b"\xff" * 1000
        yield f"padded with both behind txid {record.txid}", whole[:end] + b"\xff\x00\x00\xff"
        yield f"padding with a hole behind txid {record.txid}", whole[:end] + b"\xff" * 50 + b"\x01" + b"\xff" * 50
        yield f"an unknown operation behind txid {record.txid}", whole[:end] + b"\x7b" + whole[end + 1 :]
        yield f"terminated behind txid {record.txid}", whole[:end] + b"\xff" + whole[end + 1 :]
