"""Which handler a request is for, and what refusals and errors become; without HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.admin.http.routing import (
    WHOLE_MAX,
    Answer,
    HttpRequest,
    Route,
    Router,
    conflict,
    json_answer,
    json_object_in_pieces,
    text_answer,
)
from bookkeeper.errors import (
    BookKeeperError,
    ConnectFailed,
    EntryCorrupt,
    InvalidArgument,
    LedgerExists,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    VersionConflict,
)


def result_of(awaited: Any) -> Any:
    """Of a coroutine that waits for nothing."""
    found: list[Any] = []
    Deferred.fromCoroutine(awaited).addBoth(found.append)
    if isinstance(found[0], Failure):
        found[0].raiseException()
    return found[0]


def answered(router: Router, method: str, path: str, **query: str) -> tuple[int, Any]:
    answer = result_of(router.answer(HttpRequest(method, path, query)))
    assert isinstance(answer.body, bytes)
    return answer.status, json.loads(answer.body)


async def _number(request: HttpRequest) -> Answer:
    return json_answer(request.whole_number("n", 3))


def test_a_path_counts_with_or_without_a_slash_at_its_end() -> None:
    router = Router([Route("GET", "/a/b", _number)])
    assert answered(router, "GET", "/a/b") == answered(router, "GET", "/a/b/") == (200, 3)
    assert answered(router, "GET", "/a/b", n="0") == (200, 0)


def test_what_a_server_lacks_is_said_with_the_reason_and_so_is_a_wrong_method() -> None:
    router = Router([Route("GET", "/a/b", _number), Route("PUT", "/a/b", _number)], {"/a": "no a", "/a/c": "no c"})
    assert answered(router, "GET", "/a/c/d") == (404, {"error": "/a/c/d is not served here: no c"})
    assert answered(router, "GET", "/a/x") == (404, {"error": "/a/x is not served here: no a"})
    assert answered(router, "GET", "/ab") == (404, {"error": "there is no /ab here; did you mean /a/b?"})
    status, said = answered(router, "DELETE", "/a/b")
    assert (status, said) == (405, {"error": "/a/b does not take DELETE; it takes GET, PUT"})
    assert result_of(router.answer(HttpRequest("DELETE", "/a/b"))).headers == (("allow", "GET, PUT"),)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgument("x"), 400),
        (NoSuchLedger("x"), 404),
        (VersionConflict("x"), 409),
        (LedgerExists("x"), 409),
        (conflict("x"), 409),
        (MetadataUnavailable("x"), 503),
        (ConnectFailed("x"), 503),
        (NotEnoughBookies("x"), 503),
        (EntryCorrupt("x"), 500),
        (BookKeeperError("x"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_keeps_its_words_and_gets_its_status(error: Exception, status: int) -> None:
    async def fails(_: HttpRequest) -> Answer:
        raise error

    assert answered(Router([Route("GET", "/", fails)]), "GET", "/") == (status, {"error": "x"})


def test_what_nobody_expected_is_for_the_caller() -> None:
    async def fails(_: HttpRequest) -> Answer:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        answered(Router([Route("GET", "/", fails)]), "GET", "/")


@pytest.mark.parametrize(
    "text", ["", "x", "1.5", "-1", "0x10", "1_0", "\u0661", str(WHOLE_MAX + 1), "9" * 5000, "-" + "9" * 5000]
)
def test_a_parameter_that_is_no_such_number_is_refused(text: str) -> None:
    async def needed(request: HttpRequest) -> Answer:
        return json_answer(request.whole_number("n"))

    status, said = answered(Router([Route("GET", "/", needed)]), "GET", "/", n=text)
    assert status == 400
    assert len(said["error"]) < 200


@pytest.mark.parametrize(
    "body", [b"[" * 60_000, b'{"a":' * 12_000, b"{" * 60_000, b"9" * 60_000], ids=lambda body: body[:8]
)
def test_json_that_cannot_be_read_is_refused_however_deep_it_is(body: bytes) -> None:
    async def needs_object(request: HttpRequest) -> Answer:
        return json_answer(request.object())

    answer = result_of(Router([Route("PUT", "/", needs_object)]).answer(HttpRequest("PUT", "/", body=body)))
    assert answer.status == 400


# --- answers in pieces


async def _members(batches: list[list[tuple[str, object]]], end: Exception | None = None) -> AsyncIterator[Any]:
    for batch in batches:
        yield batch
    if end is not None:
        raise end


async def _joined(pieces: AsyncGenerator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


@pytest.mark.parametrize("batches", [[], [[]], [[("a", 1)]], [[("a", 1), ("b", None)], [], [("ü\n", "é")]]], ids=repr)
def test_an_object_in_pieces_is_whole_whatever_the_batches(batches: list[list[tuple[str, object]]]) -> None:
    found = json.loads(result_of(_joined(json_object_in_pieces(_members(batches)))))
    assert list(found.items()) == [member for batch in batches for member in batch]


def test_an_error_before_the_first_piece_is_an_answer_and_a_later_one_breaks_the_body() -> None:
    def router(*batches: list[tuple[str, object]]) -> Router:
        async def listed(_: HttpRequest) -> Answer:
            return Answer(json_object_in_pieces(_members(list(batches), MetadataUnavailable("x"))))

        return Router([Route("GET", "/", listed)])

    assert answered(router(), "GET", "/") == (503, {"error": "x"})
    broken = result_of(router([("a", 1)]).answer(HttpRequest("GET", "/")))
    assert broken.status == 200
    with pytest.raises(MetadataUnavailable):
        result_of(_joined(broken.body))


@pytest.mark.parametrize("module", ["bookkeeper.bookie.server", "bookkeeper.admin.http.whole", "hedwig.hub.server"])
def test_a_server_without_http_does_not_load_twisted_web(module: str) -> None:
    program = f"import sys, {module}; sys.exit('twisted.web' in sys.modules)"
    root = Path(__file__).resolve().parents[3]
    result = subprocess.run([sys.executable, "-c", program], cwd=root, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr or f"{module} loads twisted.web"


def test_a_text_answer_has_no_control_characters_except_line_ends_and_tabs() -> None:
    assert text_answer("a\x1b[31m\u202eb\tc\n").body == b"a\\u001b[31m\\u202eb\tc\n"
