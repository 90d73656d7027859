"""bookie/unmended_index_pages: which pages are told, and of which ledger."""

from __future__ import annotations

import json
from typing import cast

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.admin.http.one_bookie import OneBookie, ServedBookie, UnmendedPage
from bookkeeper.admin.http.routing import Answer, HttpRequest, Router

PATH = "/api/v1/bookie/unmended_index_pages"


class Bookie:
    """Has two pages that stay damaged."""

    def unmended_pages(self) -> list[UnmendedPage]:
        return [UnmendedPage(ledger_id, f"/i/{ledger_id}.idx", 0, "why") for ledger_id in (0, 7)]


def ask(query: dict[str, str]) -> Answer:
    router = Router(OneBookie(cast("ServedBookie", Bookie()), None).routes())
    answers: list[Answer] = []
    Deferred.fromCoroutine(router.answer(HttpRequest("GET", PATH, query))).addCallback(answers.append)
    (answer,) = answers
    return answer


@pytest.mark.parametrize(("query", "ledger_ids"), [({}, [0, 7]), ({"ledger_id": "7"}, [7]), ({"ledger_id": "0"}, [0])])
def test_unmended_pages_are_those_of_the_ledger_that_was_asked_for(
    query: dict[str, str], ledger_ids: list[int]
) -> None:
    answer = ask(query)
    assert isinstance(answer.body, bytes)
    assert [page["ledger"] for page in json.loads(answer.body)] == ledger_ids


@pytest.mark.parametrize("text", ["x", "-1", "9" * 5000, "7.0"])
def test_what_is_no_ledger_id_is_refused(text: str) -> None:
    assert ask({"ledger_id": text}).status == 400
