"""Decoders of bytes from outside: all are in one table, and changed inputs do not break, hang or deceive them.

`make fuzz` feeds a hundred times as many inputs. Decoders that are missing from the table are found by name: every
function or method `decode*` or `parse*` is in `covers` of a line, or in EXEMPT.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from tests.fuzz.campaign import CORPUS, corpus_of, feed_all, run
from tests.fuzz.decoder import Decoder
from tests.fuzz.table import TABLE

ROOT = Path(__file__).resolve().parents[2]
_HAS_DECODER = re.compile(r"def (decode|parse)")
_NAME = re.compile(r"(decode|parse)(_|$)")

EXEMPT = {
    "bookkeeper.console": "arguments of its own user; what it reads of others goes through decoders of the table",
    "journalmgr.cli": "likewise",
    "hedwig.perf": "measurements: its own processes, and arguments",
    "bookkeeper.spark.ledgers.options": "options of its own user",
    "bookkeeper.spark.options.id_ranges": "options of its own user",
    "bookkeeper.spark.said_as": "options of its own user",
    "bookkeeper.spark.audit.in_place": "options of its own user",
    "bookkeeper.spark.audit.stored_evidence": "rows that the same job wrote",
    "hedwig.spark.topic_options": "options of its own user",
    "journalmgr.spark": "options of its own user",
    "hedwig.client.connecting": "arguments of its own user; each is a hub-server",
    "bookkeeper.texts": "the helpers of decoders",
    "hedwig.protocol.expressions:_Parser.parse": "in filter-expression",
}
"""Module, or module:function -> why it has no line of its own. A module also covers the modules below it."""


@cache
def _decoders_in_code() -> set[str]:
    found: set[str] = set()
    for package in ("bookkeeper", "hedwig", "journalmgr"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name.endswith("_pb2.py"):
                continue
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            source = path.read_text()
            if _HAS_DECODER.search(source) is None:
                continue
            for node in ast.parse(source).body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _NAME.match(node.name):
                    found.add(f"{module}:{node.name}")
                elif isinstance(node, ast.ClassDef):
                    found |= {
                        f"{module}:{node.name}.{each.name}"
                        for each in node.body
                        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _NAME.match(each.name)
                    }
    return found


def _is_exempt(name: str) -> bool:
    module = name.partition(":")[0]
    return any(name == each or module == each or module.startswith(f"{each}.") for each in EXEMPT)


COVERED = {name for decoder in TABLE for name in decoder.covers}
IDS = [decoder.name for decoder in TABLE]


def test_every_decoder_is_in_the_table_or_exempt() -> None:
    missing = sorted(name for name in _decoders_in_code() - COVERED if not _is_exempt(name))
    assert not missing, f"decoders without a line in tests/fuzz/table.py: {missing}"


def test_no_exemption_is_left_over() -> None:
    found = _decoders_in_code()
    unused = [
        each for each in EXEMPT if not any(name == each or name.startswith((f"{each}:", f"{each}.")) for name in found)
    ]
    assert not unused


def test_names_in_the_table_are_unique_and_every_corpus_belongs_to_one() -> None:
    assert not [name for name, count in Counter(IDS).items() if count > 1]
    assert {path.name for path in CORPUS.iterdir()} <= set(IDS)


@pytest.mark.parametrize("decoder", TABLE, ids=IDS)
def test_valid_inputs_are_accepted_and_reach_what_the_table_says(decoder: Decoder) -> None:
    reached: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            reached.add(f"{frame.f_globals.get('__name__')}:{frame.f_code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        tally = feed_all(decoder, decoder.seeds())
    finally:
        sys.setprofile(before)
    assert tally.accepted == tally.inputs > 0, (tally.refused, [each.text for each in tally.failures.values()])
    assert set(decoder.covers) <= reached


@pytest.mark.parametrize("decoder", [each for each in TABLE if corpus_of(each)], ids=lambda each: each.name)
def test_inputs_that_failed_once_are_refused_or_read(decoder: Decoder) -> None:
    for name, data in corpus_of(decoder):
        tally = feed_all(decoder, [data])
        assert not tally.failures, (name, [each.text for each in tally.failures.values()])


@pytest.mark.parametrize("decoder", TABLE, ids=IDS)
def test_changed_inputs_are_refused_by_declared_errors_or_read(decoder: Decoder) -> None:
    tally = run(decoder, 1, decoder.suite_inputs)
    assert tally.inputs == decoder.suite_inputs
    assert not tally.failures, [(each.text, each.data[:200]) for each in tally.failures.values()]
