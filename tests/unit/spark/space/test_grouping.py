import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.space.grouping import GROUPINGS, grouping_called


def test_each_word_is_found_in_any_case() -> None:
    assert [grouping_called(f" {word.upper()}") for word in GROUPINGS] == list(GROUPINGS.values())


def test_a_word_that_there_is_not_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(ConfigurationError, match=r"by 'aplication'; did you mean application\?; there are owner, "):
        grouping_called("aplication")
