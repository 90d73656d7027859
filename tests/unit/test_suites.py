"""The runner of the suites (`.ci/suites.py`): what it says before it runs anything, and how it sums up."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def suites() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_suites", Path(__file__).parents[2] / ".ci" / "suites.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_is_how_to_use_it(suites: ModuleType, capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert suites.main([word]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert all(suite in told.out for suite in suites.SUITES)
    assert "-- -k" in told.out


def test_no_suite_and_an_unknown_one_are_usage_errors(suites: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert suites.main([]) == 2
    assert suites.main(["unti"]) == 2
    assert "unknown suite unti (known: unit, simulation," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "options", "code"),
    [
        (["passed", "failed (code 1)", "passed"], [], 1),
        (["passed", "no tests"], [], 0),
        (["passed", "no tests"], ["-k", "some"], 0),
        (["no tests", "no tests"], ["-k", "typo"], 1),
        (["no tests"], [], 0),
    ],
)
def test_the_exit_code_sums_up(
    suites: ModuleType, monkeypatch: pytest.MonkeyPatch, results: list[str], options: list[str], code: int
) -> None:
    names = list(suites.SUITES[: len(results)])
    outcome = dict(zip(names, results, strict=True))
    given: list[list[str]] = []

    def run_suite(suite: str, options: list[str]) -> str:
        given.append(options)
        return outcome[suite]

    monkeypatch.setattr(suites, "run_suite", run_suite)
    assert suites.main([*names, *(["--", *options] if options else [])]) == code
    assert given == [options] * len(names)
