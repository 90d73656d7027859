"""Errors say what to do in the words of who asks: options of a format, or flags of a command."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.config import ClientSettings
from bookkeeper.errors import ConfigurationError, NoSuchLedger, WrongPassword
from bookkeeper.spark.ledgers.options import LedgerReadOptions
from bookkeeper.spark.ledgers.plan import Slice
from bookkeeper.spark.ledgers.slices import read_slices
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.options.tables import read_options
from bookkeeper.spark.said_as import AS_ADMINISTRATOR, LOSS_BORNE, OF_OPTIONS, SAID_AS, Words

URI = "zk://zk1:2181/ledgers"
COMMAND = Words.of_command({"ledgers": "--ledgers", LOSS_BORNE: "--allow-loss", AS_ADMINISTRATOR: None, "job": "--job"})


@pytest.mark.parametrize(
    ("meant", "option", "flag"),
    [
        ("ledgers", "option ledgers", "--ledgers"),
        ("LEDGERS", "option LEDGERS", "--ledgers"),
        ("job=nightly", "option job=nightly", "--job nightly"),
        (LOSS_BORNE, "option failOnDataLoss=false", "--allow-loss"),
        ("failOnDataLoss=true", "option failOnDataLoss=true", "-D failOnDataLoss=true"),
        ("readTimeout", "option readTimeout", "-D readTimeout"),
        (AS_ADMINISTRATOR, "option asAdministrator=true", None),
    ],
)
def test_what_is_written_for_an_option(meant: str, option: str, flag: str | None) -> None:
    assert OF_OPTIONS.word(meant) == option
    assert COMMAND.word(meant) == flag


def test_a_remedy_that_cannot_be_said_is_left_out() -> None:
    assert OF_OPTIONS.remedy("With {} it goes on", LOSS_BORNE) == ". With option failOnDataLoss=false it goes on"
    assert COMMAND.remedy("With {} it goes on", LOSS_BORNE) == ". With --allow-loss it goes on"
    assert COMMAND.remedy("Use {} or {}", "ledgers", AS_ADMINISTRATOR) == ""
    for words in (OF_OPTIONS, COMMAND):
        assert words.without("ledgers").remedy("Use {}", "ledgers") == ""
        assert words.without("ledgers").word("job") == words.word("job")


def test_arguments_of_a_pipeline_are_flags_of_its_command() -> None:
    assert (OF_OPTIONS.argument("at_txid"), COMMAND.argument("at_txid")) == ("at_txid", "--at-txid")


def test_the_words_of_a_command_come_with_its_options_and_name_what_is_wrong_with_them() -> None:
    given = {"uri": URI, "ledgers": "7", SAID_AS.lower(): COMMAND.text}  # as Spark keeps names
    assert read_options(LedgerReadOptions, given, where="bookkeeper").words == COMMAND
    assert read_options(LedgerReadOptions, {"uri": URI, "ledgers": "7"}, where="bookkeeper").words == OF_OPTIONS
    with pytest.raises(ConfigurationError) as caught:
        read_options(LedgerReadOptions, {**given, "ledgers": "x", "readTimeout": "soon"}, where="bookkeeper")
    lines = str(caught.value).splitlines()[1:]
    assert [line.partition(":")[0].strip() for line in lines] == ["--ledgers", "-D readTimeout"]


@pytest.mark.parametrize("text", ["", "x", "{}", '{"said": 1, "of_a_command": true}'])
def test_words_that_no_command_gave_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {SAID_AS}: .*leave it out"):
        read_options(LedgerReadOptions, {"uri": URI, "ledgers": "7", SAID_AS: text}, where="bookkeeper")


class _Refusing:
    def __init__(self, error: Exception, password: bytes = b"given") -> None:
        self._error, self.settings = error, ClientSettings(password=password)

    def run(self, start: Any) -> Any:
        return start(self).result

    def open_without_recovery(self, ledger_id: int) -> Any:
        del ledger_id
        raise self._error


@pytest.mark.parametrize(
    ("error", "words", "end"),
    [
        (NoSuchLedger("ledger 7"), OF_OPTIONS, "With option failOnDataLoss=false its rest is left out with a warning"),
        (NoSuchLedger("ledger 7"), COMMAND, "With --allow-loss its rest is left out with a warning"),
        (NoSuchLedger("ledger 7"), COMMAND.without(LOSS_BORNE), "of it were being read"),
        (WrongPassword("no"), OF_OPTIONS, "(option ledgers), or read all of them with option asAdministrator=true"),
        (WrongPassword("no"), COMMAND, "no"),
    ],
)
def test_a_task_that_cannot_read_a_ledger_speaks_as_who_asked(error: Exception, words: Words, end: str) -> None:
    options = LedgerReadOptions()
    with pytest.raises(type(error)) as caught:
        list(read_slices(_Refusing(error), options, [Slice(7, 0, 3, 4)], Bounds(), words))  # type: ignore[arg-type]
    assert str(caught.value).endswith(end)


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (
            OF_OPTIONS,
            "no. No password was given: give option password. Or name the ledgers that have none (option ledgers), or "
            "read all of them with option asAdministrator=true",
        ),
        (COMMAND, "no. No password was given: give -D passwd"),
    ],
)
def test_where_no_password_was_given_the_first_remedy_is_to_give_one(words: Words, end: str) -> None:
    client: Any = _Refusing(WrongPassword("no"), password=b"")
    with pytest.raises(WrongPassword) as caught:
        list(read_slices(client, LedgerReadOptions(), [Slice(7, 0, 3, 4)], Bounds(), words))
    assert str(caught.value) == end
