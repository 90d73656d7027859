import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.whatif.question import Question, Quorums


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "nothing is asked"),
        ({"lose": ("a:1",), "quorums": Quorums(write_quorum=3)}, "exclude each other"),
        ({"add": -1}, "-1 bookies cannot be added: 1 to 10000"),
        ({"quorums": Quorums(ensemble=0)}, "ensemble 0: it is 1 at least"),
        ({"quorums": Quorums(ensemble=2, write_quorum=3)}, "write quorum 3 is above ensemble 2"),
        ({"quorums": Quorums(ensemble=2, ack_quorum=3)}, "ack quorum 3 is above ensemble 2"),
    ],
)
def test_a_question_that_has_no_answer_is_refused_with_the_reason(asked: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Question(**asked)  # type: ignore[arg-type]


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"-5 bookies.*write quorum 4 is above ensemble 3"):
        Question(add=-5, quorums=Quorums(ensemble=3, write_quorum=4))


def test_losses_go_with_additions_and_quorums_that_are_not_given_are_the_ledgers_own() -> None:
    assert Question(lose=("a:1",), lose_racks=("/r",), add=2).loses
    assert Quorums(write_quorum=3).of(4, 2, 2) == (4, 3, 2)
    assert not Quorums()
