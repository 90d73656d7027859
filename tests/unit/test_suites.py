"""The runner of the suites (`.ci/suites.py`): what it says before it runs anything, and how it sums up."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

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
    suites: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    results: list[str],
    options: list[str],
    code: int,
) -> None:
    names = list(suites.SUITES[: len(results)])
    outcome = dict(zip(names, results, strict=True))
    given: list[list[str]] = []

    class Running:
        def __init__(self, suite: str, options: list[str], *, shown: bool) -> None:
            given.append(options)
            self.suite, self.said = suite, ""

        def has_ended(self, within_s: float) -> bool:
            return True

        def result(self) -> Any:
            failed = outcome[self.suite].startswith("failed")
            failure = suites.Failure("", "tests.a::test_b: failure\n    E  why")
            return suites.Result(outcome[self.suite], [failure] if failed else []), 1.0

    monkeypatch.setattr(suites, "Running", Running)
    assert suites.main([*names, *(["--", *options] if options else [])]) == code
    assert given == [options] * len(names)
    assert ("tests.a::test_b: failure\n    E  why\n" in capsys.readouterr().out) == ("failed (code 1)" in results)


def test_what_failed_is_named_with_the_end_of_what_it_said(suites: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert suites.failures_in(report) == [("", "pytest ended without a report")]
    lines = "&#10;".join(f"line {number}" for number in range(20))
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.a" file="tests/a.py" name="test_good" time="0.1"/>'
        f'<testcase classname="tests.a.Some" file="tests/a.py" name="test_bad[x]" time="1.5"><failure message="m">'
        f"{lines}</failure></testcase>"
        '<testcase classname="" name="tests.b" time="0.0"><error message="no module"/></testcase>'
        "</testsuite></testsuites>"
    )
    bad, worse = suites.failures_in(report)
    assert bad.test == "tests/a.py::Some::test_bad[x]"
    assert bad.text.startswith("tests.a.Some::test_bad[x]: failure after 1.5 s\n    line 14\n")
    assert bad.text.endswith("    line 19")
    assert worse == ("", "::tests.b: error after 0.0 s\n    no module")


@pytest.mark.parametrize(("cores", "shown", "at_once"), [(1, True, 1), (2, False, 2), (8, False, 2)])
def test_two_suites_run_at_a_time_where_there_are_cores(
    suites: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cores: int,
    shown: bool,
    at_once: int,
) -> None:
    looks = dict(zip(suites.SUITES, [3, 2, 9, 4, 4], strict=True))  # after how many looks each has ended
    most = 0
    begun: list[str] = []
    ended: list[str] = []

    class Running:
        progress = "7%"

        def __init__(self, suite: str, options: list[str], *, shown: bool) -> None:
            assert shown is expected
            self.suite, self.said, self._looks = suite, f"<{suite} says this>", looks[suite]
            begun.append(suite)

        def has_ended(self, within_s: float) -> bool:
            nonlocal most
            most = max(most, len(begun) - len(ended))
            self._looks -= 1
            return self._looks == 0

        def result(self) -> Any:
            ended.append(self.suite)
            return suites.Result("passed", []), 1.0

    expected = shown
    monkeypatch.setattr(suites, "Running", Running)
    monkeypatch.setattr(suites.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(suites, "SAY_S", 0.0)
    assert [name for name, *_ in suites.run_all(list(suites.SUITES), [])] == ended
    assert (begun, sorted(ended), most) == (list(suites.SUITES), sorted(suites.SUITES), at_once)
    assert (ended == begun) is (cores == 1)
    told = capsys.readouterr().out
    assert all((f"<{suite} says this>" in told) is not shown for suite in suites.SUITES)
    assert ("7%, 7%\n" in told) is not shown


@pytest.mark.parametrize("by", ["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_shows_what_was_said_and_waits_for_suites_that_were_told_once(
    suites: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    """A terminal sends its interrupt to the suites, too; a second one would keep them from ending what they started."""
    calls: list[tuple[str, str]] = []
    reason = KeyboardInterrupt() if by == "Ctrl-C" else suites.Stopped(143)

    class Running:
        progress, said = "", "so far"

        def __init__(self, suite: str, options: list[str], *, shown: bool) -> None:
            self.suite = suite

        def has_ended(self, within_s: float) -> bool:
            raise reason

        def stop(self) -> None:
            calls.append(("stop", self.suite))

        def wait(self) -> None:
            calls.append(("wait", self.suite))

    monkeypatch.setattr(suites, "Running", Running)
    monkeypatch.setattr(suites.os, "cpu_count", lambda: 2)
    with pytest.raises(type(reason)):
        list(suites.run_all(["unit", "interop"], []))
    waits = [("wait", "unit"), ("wait", "interop")]
    assert calls == (waits if by == "Ctrl-C" else [("stop", "unit"), ("stop", "interop"), *waits])
    assert capsys.readouterr().out.count("so far") == 2


def test_a_suite_that_runs_tells_how_far_it_is_and_can_be_stopped(
    suites: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    more = "\n".join(f"def test_{number}(): pass" for number in range(100))
    (tmp_path / "tests" / "unit" / "test_it.py").write_text(
        f"{more}\n\n\ndef test_wait():\n    import signal\n    signal.pause()\n"
    )
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    running = suites.Running("unit", [], shown=False)
    while running.progress != "unit 71%":
        assert not running.has_ended(0.1), running.said
    running.stop()
    running.wait()
    assert "KeyboardInterrupt" in running.said
    assert running.result()[0].outcome == "failed (code 2)"


SOMETIMES = """
import pathlib
import pytest

class TestOften:
    @pytest.mark.parametrize("fails", [{fails}])
    def test_it(self, fails):
        runs = pathlib.Path(__file__).with_name(f"runs-{{fails}}")
        runs.write_text((runs.read_text() if runs.exists() else "") + "x")
        assert len(runs.read_text()) not in range(*fails)

def test_good():
    pass
"""
"""fails: a range for each test, of the runs in which it fails."""


def runs(root: Path, suite: str) -> int:
    """How many times the tests of SOMETIMES ran, all together."""
    return sum(len(each.read_text()) for each in (root / "tests" / suite).glob("runs-*"))


@pytest.fixture
def tree(suites: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A project with suites, where two of them run at a time."""
    for suite in ("unit", "interop"):
        (tmp_path / "tests" / suite).mkdir(parents=True)
        (tmp_path / "tests" / suite / "test_good.py").write_text("def test_good(): pass\n")
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    monkeypatch.setattr(suites.os, "cpu_count", lambda: 2)
    return tmp_path


@pytest.mark.parametrize(
    ("fails", "code", "outcome", "ran"),
    [
        ("(1, 2)", 0, "passed (1 unsteady)", 3),
        ("(1, 9)", 1, "failed (code 1)", 2),
        ("(9, 9)", 0, "passed", 1),
        ("(1, 4, 2)", 1, "failed (code 1)", 3),
        ("(1, 2), (1, 9)", 1, "failed (code 1)", 4),
        ("*[(1, n) for n in range(2, 6)]", 1, "failed (code 1)", 4),
    ],
)
def test_the_file_of_a_test_that_failed_beside_another_suite_must_pass_alone(
    suites: ModuleType, capsys: pytest.CaptureFixture[str], tree: Path, fails: str, code: int, outcome: str, ran: int
) -> None:
    (tree / "tests" / "interop" / "test_sometimes.py").write_text(SOMETIMES.format(fails=fails))
    assert suites.main(["unit", "interop"]) == code
    printed = capsys.readouterr().out
    assert outcome in printed
    assert runs(tree, "interop") == ran
    assert ("unsteady tests (failed beside" in printed) is ("unsteady" in outcome)
    assert ("tests.interop.test_sometimes.TestOften::test_it" in printed) is (ran > 1)


@pytest.mark.parametrize(
    ("words", "suite"),
    [(["interop"], "interop"), (["unit", "interop", "--", "-x"], "interop"), (["unit", "interop"], "unit")],
    ids=["one suite", "options", "unit tests"],
)
def test_nothing_runs_again(suites: ModuleType, tree: Path, words: list[str], suite: str) -> None:
    (tree / "tests" / suite / "test_sometimes.py").write_text(SOMETIMES.format(fails="(1, 2)"))
    assert suites.main(words) == 1
    assert runs(tree, suite) == 1


def test_a_test_that_is_skipped_alone_is_not_unsteady(suites: ModuleType, tree: Path) -> None:
    (tree / "tests" / "interop" / "test_sometimes.py").write_text(
        SOMETIMES.format(fails="(1, 2)").replace(
            "        assert", "        len(runs.read_text()) == 1 or pytest.skip()\n        assert"
        )
    )
    assert suites.main(["unit", "interop"]) == 1
    assert runs(tree, "interop") == 2


@pytest.mark.parametrize("broken", ["import no_such_module", "def test_it(nothing_such): pass", "raise SystemExit(3)"])
def test_a_suite_that_cannot_run_fails(suites: ModuleType, tree: Path, broken: str) -> None:
    (tree / "tests" / "interop" / "test_broken.py").write_text(broken + "\n")
    assert suites.main(["unit", "interop"]) == 1


def test_every_test_is_in_one_suite(suites: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    class Popen:
        def __init__(self, command: list[str], **_: Any) -> None:
            commands.append(command)

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(suites.subprocess, "Popen", Popen)
    for suite in suites.SUITES:
        suites.Running(suite, [], shown=True).result()
    directories = [Path(command[3]).relative_to(suites.ROOT / "tests").as_posix() for command in commands]
    assert directories == ["unit", "simulation", "integration", "integration/spark", "interop"]
    left_out = [[each for each in command if each.startswith("--ignore=")] for command in commands]
    assert left_out == [[], [], [f"--ignore={suites.ROOT / 'tests/integration/spark'}"], [], []]
