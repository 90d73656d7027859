"""Rules and sections that code, tests and documents cite are in the repository."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bookkeeper", "journalmgr", "hedwig")
INVARIANTS = ROOT / "bookkeeper" / "INVARIANTS.md"
APACHES = {"website/docs/admin/http.md"}
"""Documents of Apache's repository that are cited here."""

_THIS = Path(__file__).resolve()

_RULE = re.compile(r"\b(?:I-\d{2}[a-z]?|L-\d)\b")
_RULE_HEADING = re.compile(r"### (I-\d{2}[a-z]?|L-\d) ")
_SECTION_HEADING = re.compile(r"#+ (\d+(?:\.\d+)*) ", re.MULTILINE)
# "wire/FORMATS.md 4.1, 4.4" or "PROTOCOL.md 2.3 to 2.5": a document, and the sections behind its name.
_DOCUMENT = re.compile(r"([\w./-]*\b[A-Za-z-]+\.md)\b((?:(?:,| and| to)? \d+(?:\.\d+)*(?![\w-]))*)")
_NUMBER = re.compile(r"\d+(?:\.\d+)*")


@cache
def _texts() -> dict[Path, str]:
    """Sources, tests and documents."""
    found = [path for top in (*PACKAGES, "tests", ".github") for path in (ROOT / top).rglob("*")]
    found += [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    kinds = {".py", ".md", ".proto", ".java"}
    return {path: path.read_text() for path in sorted(found) if path.suffix in kinds and path != _THIS}


def _in_code(path: Path) -> bool:
    return path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES


def _in_tests(path: Path) -> bool:
    return path.suffix == ".py" and path.relative_to(ROOT).parts[0] == "tests"


@cache
def _rules() -> dict[str, str]:
    """Number of each rule -> its text."""
    parts = _RULE_HEADING.split(INVARIANTS.read_text().partition("\n## Rules that no code cites")[0])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _cited() -> Iterator[tuple[Path, str]]:
    for path, text in _texts().items():
        for rule in set(_RULE.findall(text)):
            yield path, rule


def test_each_cited_rule_exists() -> None:
    unknown = [f"{path.relative_to(ROOT)} cites {rule}" for path, rule in _cited() if rule not in _rules()]
    assert not unknown, "\n".join(unknown)


def test_each_rule_is_cited_by_a_test() -> None:
    assert not _rules().keys() - {rule for path, rule in _cited() if _in_tests(path)}


def test_each_rule_is_cited_by_code_or_listed_with_a_reason() -> None:
    in_code = {rule for path, rule in _cited() if _in_code(path)}
    table = INVARIANTS.read_text().partition("\n## Rules that no code cites")[2]
    listed = {rule for line in table.splitlines() for rule in _RULE.findall(line.split("|")[1] if "|" in line else "")}
    uncited = _rules().keys() - in_code
    assert uncited <= listed
    assert not listed & in_code


def test_tests_named_by_a_rule_cite_it() -> None:
    wrong = []
    for rule, text in _rules().items():
        named = re.findall(r"`(tests/[\w/]+\.py)`", text)
        if not named:
            wrong.append(f"{rule} names no test")
        wrong += [
            f"{rule} names {name}, which does not exist or does not cite it"
            for name in named
            if rule not in _RULE.findall(_texts().get(ROOT / name, ""))
        ]
    assert not wrong, "\n".join(wrong)


def test_each_cited_document_and_section_exists() -> None:
    wrong = []
    for path, text in _texts().items():
        for name, numbers in _DOCUMENT.findall(text):
            document = next((each for each in (ROOT / name, path.parent / name) if each.is_file()), None)
            if document is None:
                if name in APACHES:
                    continue
                wrong.append(f"{path.relative_to(ROOT)}: {name} does not exist")
                continue
            sections = set(_SECTION_HEADING.findall(document.read_text()))
            missing = [number for number in _NUMBER.findall(numbers) if number not in sections]
            wrong += [f"{path.relative_to(ROOT)}: {name} has no section {number}" for number in missing]
    assert not wrong, "\n".join(wrong)
