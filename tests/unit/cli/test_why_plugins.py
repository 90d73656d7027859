"""Subjects and searches for owners that other packages add to `bookkeeper why`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from bookkeeper.cli.main import main
from bookkeeper.cli.why import plugins
from bookkeeper.cli.why.explanation import Explanation
from bookkeeper.cli.why.ledger import explain_ledger
from bookkeeper.cli.why.ledger_facts import LedgerFacts, RepairFacts
from bookkeeper.errors import MetadataCorrupt, NoSuchLedger
from bookkeeper.model import LedgerId

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("error", [NoSuchLedger("gone"), MetadataCorrupt("z: no header")])
def test_the_owner_of_a_ledger_is_shown_first(error: NoSuchLedger | MetadataCorrupt) -> None:
    repair = RepairFacts(True, None, None, None, None, None, None)
    facts = LedgerFacts(5, LedgerId(7), "zk://h/ledgers", error, {}, frozenset(), repair)
    said = explain_ledger(dataclasses.replace(facts, belongs_to=("it is of a topic",)))
    assert said.holds[0] == "it is of a topic"
    assert said.facts["belongs_to"] == ["it is of a topic"]
    assert explain_ledger(facts).facts["belongs_to"] == []


def test_subjects_of_other_packages_get_the_options_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("other_subject", "`bookkeeper why colour`: which colour it has, and why.")
    asked: list[tuple[object, ...]] = []

    def explain(args: argparse.Namespace) -> Explanation:
        asked.append((args.uri, args.conf, args.defines, args.name))
        return Explanation("colour", headline="blue")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name")

    vars(module).update(EXAMPLE="why colour x", CONF="a conf file", explain=explain, add_arguments=add_arguments)
    monkeypatch.setitem(sys.modules, "other_subject", module)
    entry = EntryPoint("colour", "other_subject", plugins.SUBJECTS)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == plugins.SUBJECTS else [])
    assert main(["why", "--uri", "zk://h/ledgers", "colour", "x", "--conf", "f", "-D", "a=b"]) == 0
    assert asked == [("zk://h/ledgers", Path("f"), ["a=b"], "x")]
    assert capsys.readouterr().out == "colour: blue\n"
    assert main(["why", "--help"]) == 0
    assert "which colour it has, and why" in capsys.readouterr().out


def test_ours_are_registered() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    [subject], [owner] = points[plugins.SUBJECTS].items(), points[plugins.OWNERS].items()
    assert subject[0] == owner[0] == "topic"
    assert plugins.summary(subject[1]) == "why a topic's messages are kept, until when, and which are deleted"
    assert callable(EntryPoint(*owner, plugins.OWNERS).load())
