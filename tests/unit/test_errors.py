"""Errors that are pickled or stored: every exception class of the three packages, found by import."""

import ast
import copy
import importlib
import pickle
import pkgutil
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import pytest

import bookkeeper
import hedwig
import journalmgr
from bookkeeper.errors import (
    BookieUnavailable,
    BookKeeperError,
    LedgerError,
    NotDurable,
    PortableError,
    UnportableError,
    again,
)

PACKAGES = (bookkeeper, hedwig, journalmgr)

FIELDS = {
    "text": "a: b [c]",
    "number": 7,
    "range": range(3, 6),
    "mapping": {"b1": BookieUnavailable("gone", bookie_id="b1"), "b2": "no answer"},
    "errors": [ValueError("x"), BookKeeperError("y")],
    "nothing": None,
}


@cache
def _classes() -> list[type[BaseException]]:
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)

    def below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
        for each in type.__subclasses__(kind):
            yield each
            yield from below(each)

    names = tuple(package.__name__ for package in PACKAGES)
    ours = {each for each in below(BaseException) if each.__module__.split(".")[0] in names}
    return sorted(ours, key=lambda each: (each.__module__, each.__qualname__))


def _filled(kind: type[BaseException]) -> BaseException:
    """Return an instance with a message, fields unknown to its constructor, a note and a cause."""
    error = kind.__new__(kind)
    error.args = ("what happened; what helps", 3)
    error.__dict__.update(FIELDS)
    error.add_note("while a test ran")
    error.__cause__ = LedgerError("ledger 4: no", ledger_id=4, answers={"b3": OSError(5, "I/O")})
    return error


def _shown(error: BaseException) -> tuple[object, ...]:
    fields = {name: str(value) for name, value in sorted(error.__dict__.items())}
    cause = error.__cause__
    return type(error), error.args, str(error), fields, error.__suppress_context__, cause and _shown(cause)


def _pickled(protocol: int) -> Callable[[BaseException], BaseException]:
    def through(error: BaseException) -> BaseException:
        found: BaseException = pickle.loads(pickle.dumps(error, protocol))
        return found

    return through


def test_every_exception_of_the_packages_is_portable() -> None:
    assert len(_classes()) > 180
    assert not [each for each in _classes() if not issubclass(each, PortableError)]


@pytest.mark.parametrize(
    "through",
    [*(_pickled(protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)), copy.copy, copy.deepcopy],
    ids=[*(f"pickle{protocol}" for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)), "copy", "deepcopy"],
)
def test_every_error_survives_with_all_its_fields(through: Callable[[BaseException], BaseException]) -> None:
    for kind in _classes():
        error = _filled(kind)
        found = through(error)
        assert found is not error
        assert _shown(found) == _shown(error), kind


def test_an_error_of_a_pool_comes_back_with_its_fields() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        failure = pool.submit(_raise_not_durable).exception(60)
    assert isinstance(failure, NotDurable)
    assert (failure.ledger_id, failure.entry_ids) == (7, range(3))
    assert list(failure.answers) == ["b1"]
    assert str(failure) == "m [b1: no]"


def _raise_not_durable() -> None:
    raise NotDurable("m", ledger_id=7, entry_ids=range(3), answers={"b1": "no"})


class _Stubborn(Exception):
    """An exception that pickle can dump but not load."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def test_what_pickle_cannot_carry_is_replaced() -> None:
    error = LedgerError("m", ledger_id=1, answers={"b1": _Stubborn("a", "b"), "b2": lambda: None})
    error.__cause__ = _Stubborn("c", "d")
    found = pickle.loads(pickle.dumps(error))
    assert isinstance(found.answers["b1"], UnportableError)
    assert str(found.answers["b1"]) == "_Stubborn: ab"
    assert "lambda" in found.answers["b2"]
    assert isinstance(found.__cause__, UnportableError)
    assert copy.copy(error).answers is error.answers


def test_errors_that_name_each_other_are_carried() -> None:
    first, second = BookKeeperError("first"), BookKeeperError("second")
    first.__cause__, second.__cause__ = second, first
    found = pickle.loads(pickle.dumps(first))
    assert found.__cause__.__cause__ is found


@pytest.mark.parametrize("error", [_filled(NotDurable), OSError(5, "I/O"), KeyError("k"), ValueError("v")])
def test_a_stored_error_is_raised_as_a_new_one(error: BaseException) -> None:
    def depth(caught: BaseException) -> int:
        return len(traceback.extract_tb(caught.__traceback__))

    caught = []
    for _ in range(3):
        with pytest.raises(type(error)) as info:
            raise again(error)
        caught.append(info.value)
    assert error.__traceback__ is None
    assert {depth(each) for each in caught} == {1}
    assert all(each is not error and each.__cause__ is error and each.args == error.args for each in caught)
    assert again(caught[0]).__cause__ is error  # after several stores the cause is the first error


@pytest.mark.parametrize("error", [LedgerError("m", ledger_id=1), OSError(5, "m")])
def test_notes_that_a_caller_adds_to_a_stored_error_are_its_own(error: Exception) -> None:
    error.add_note("stored")
    for _ in range(3):
        caught = again(error)
        caught.add_note("the caller's")
        assert caught.__notes__ == ["stored", "the caller's"]
    assert error.__notes__ == ["stored"]


def test_an_error_that_cannot_be_copied_is_raised_itself() -> None:
    error = _Stubborn("a", "b")
    assert again(error) is error


# --- stored errors


def _is_error_kind(annotation: ast.expr, kinds: frozenset[str]) -> bool:
    names = {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)}
    return bool(names & kinds) and not names & {"Callable", "type", "Listeners", "list", "dict"}


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all statements in it, without their expressions, which are most of a tree."""
    yield node
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, part, ()):
            yield from _statements(each)


def _stored(trees: Iterable[ast.Module], kinds: frozenset[str]) -> set[str]:
    """Return the names of attributes that may hold an exception or a Failure."""
    found: set[str] = set()
    for tree in trees:
        for node in _statements(tree):
            if isinstance(node, ast.ClassDef):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            else:
                fields = [node] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) else []
            for field in fields:
                if _is_error_kind(field.annotation, kinds):
                    found.add(ast.unparse(field.target).rpartition(".")[2])
    return found


def _last_name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _raised_again(tree: ast.Module, stored: set[str]) -> Iterator[ast.AST]:
    """Yield statements and calls that give a stored error to another caller."""
    for function in _statements(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_property = any(ast.unparse(each) == "property" for each in function.decorator_list)
        gives_errors = function.returns is not None and "Error" in ast.unparse(function.returns)
        for node in ast.walk(function):
            given: list[ast.expr | None] = []
            if isinstance(node, ast.Raise):
                given = [node.exc]
            elif isinstance(node, ast.Call) and _last_name(node.func) in GIVING:
                given = list(node.args)
            elif isinstance(node, ast.Call) and _last_name(node.func) == "raiseException":
                failure = node.func.value if isinstance(node.func, ast.Attribute) else None
                if isinstance(failure, ast.Subscript) and isinstance(failure.value, ast.Attribute):
                    yield node
                given = [failure]
            elif isinstance(node, ast.Return) and gives_errors and not is_property:
                given = [node.value]
            parts = [part for each in given for part in (each.values if isinstance(each, ast.BoolOp) else [each])]
            if any(isinstance(part, ast.Attribute) and part.attr in stored for part in parts):
                yield node


GIVING = frozenset({"fail", "errback", "set_exception", "Failure"})

GIVEN_ONCE = {
    # The first error of a window ends its pipeline, which stores it: nothing raises it there.
    "bookkeeper/client/write/pipeline.py": "self.fail(self.window.error)",
    # A crew ends once.
    "bookkeeper/client/parallel.py": "self._failure.raiseException()",
    # A command ends once.
    "bookkeeper/console/output.py": "raise raw.failure",
    # The field is a text.
    "hedwig/client/tls.py": "self.fail(layer.error)",
}


def test_no_stored_error_is_given_to_two_callers() -> None:
    root = Path(bookkeeper.__file__).parents[1]
    paths = [path for package in PACKAGES for path in sorted((root / package.__name__).rglob("*.py"))]
    texts = {str(path.relative_to(root)): path.read_text() for path in paths}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    kinds = frozenset({"BaseException", "Exception", "Failure", *(each.__name__ for each in _classes())})
    stored = _stored(trees.values(), kinds)
    assert {"_failure", "refusal", "_fault", "_broken", "_close_result", "_deleted"} <= stored
    names_one = re.compile(rf"\.\s*({'|'.join(map(re.escape, stored))})\b")
    wrong = [
        f"{name}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for name, tree in trees.items()
        if names_one.search(texts[name])
        for node in _raised_again(tree, stored)
        if GIVEN_ONCE.get(name) != ast.unparse(node)
    ]
    assert not wrong, "raise these through bookkeeper.errors.again:\n" + "\n".join(wrong)
