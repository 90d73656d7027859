"""Every status has a number in both protocols and an error at the client."""

from __future__ import annotations

import pytest

from bookkeeper import errors
from bookkeeper.model import EXPLICIT_NEGATIVES, Status
from bookkeeper.wire import v2, v3
from bookkeeper.wire.status import error_of

NUMBERS = {
    Status.OK: (0, 0),
    Status.NO_LEDGER: (1, 402),
    Status.NO_ENTRY: (2, 403),
    Status.BAD_REQUEST: (100, 404),
    Status.IO_ERROR: (101, 501),
    Status.UNAUTHORIZED: (102, 502),
    Status.BAD_VERSION: (103, 503),
    Status.FENCED: (104, 504),
    Status.READ_ONLY: (105, 505),
    Status.TOO_MANY_REQUESTS: (106, 506),
    Status.UNKNOWN_LEDGER_STATE: (107, 507),
}


def test_numbers_are_those_of_the_protocol() -> None:
    assert {status: (v2.CODE_OF_STATUS[status], int(v3.CODE_OF_STATUS[status])) for status in Status} == NUMBERS


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_an_error_names_bookie_ledger_and_entry(status: Status) -> None:
    error = error_of(status, bookie_id="b:3181", ledger_id=5, entry_id=7)
    assert (error.bookie_id, error.ledger_id, error.entry_id) == ("b:3181", 5, 7)
    assert str(error).startswith(f"bookie b:3181 ledger 5 entry 7: {status.value}")


def test_only_explicit_negatives_say_that_an_entry_is_not_there() -> None:
    """I-30: every other failure is no verdict on the entry."""
    negative = {s for s in Status if s is not Status.OK and error_of(s).code in (-7, -13)}
    assert negative == EXPLICIT_NEGATIVES


def test_unknown_v2_codes_are_no_verdict() -> None:
    from bookkeeper.wire.codec import response_decoder

    answers = b"".join(
        bytes.fromhex(f"000000180202000000000{code:03x}00000000000000010000000000000002") for code in (0x63, 0xFFF)
    )
    statuses = [response.status for response in response_decoder(2).receive(answers)]  # type: ignore[union-attr]
    assert statuses == [Status.IO_ERROR, Status.IO_ERROR]
    assert isinstance(error_of(statuses[0]), errors.BookieIOError)
