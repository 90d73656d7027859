"""Directories that pipelines write to: what is there already is refused before anything is asked, and never touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.exports.export import export_ledgers
from bookkeeper.spark.outputs import OutputState, Stage, check_new
from bookkeeper.spark.space.report import space
from bookkeeper.spark.whatif.question import Question
from bookkeeper.spark.whatif.report import whatif
from hedwig.spark.exports.export import export_topics
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

NOBODY = "zk://127.0.0.1:1/ledgers"
"""Where no metadata store is: who asks there fails with another error."""


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def files_in(directory: Path) -> Mapping[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    "made",
    ["manifest/part-0.txt", "entries/date=2026-11-23/a.parquet", "_plan/ledgers/a.parquet", ".hidden/x", "empty/"],
)
@pytest.mark.parametrize("name", ["monday", "date=monday", "[monday] {1}"])
def test_a_directory_in_which_there_is_anything_is_no_new_one(spark: Any, tmp_path: Path, made: str, name: str) -> None:
    there = tmp_path / name / made
    (there if made.endswith("/") else there.parent).mkdir(parents=True)
    if not made.endswith("/"):
        there.write_bytes(b"x")
    with pytest.raises(InvalidArgument, match="exists: name a directory that does not, or an empty one") as raised:
        check_new(spark, str(tmp_path / name))
    assert str(tmp_path / name) in str(raised.value)


def test_a_file_is_no_new_directory_and_one_that_is_empty_or_not_there_is(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="exists"):
        check_new(spark, str(tmp_path / "file"))
    check_new(spark, str(tmp_path / "empty"))
    check_new(spark, str(tmp_path / "not there" / "either"))


PIPELINES: Mapping[str, Callable[..., object]] = {
    "export": export_ledgers,
    "export-topics": lambda spark, uri, **how: export_topics(spark, uri, topics=["t"], **how),
    "space": space,
    "whatif": lambda spark, uri, **how: whatif(spark, uri, Question(add=1), **how),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_what_is_there_is_refused_before_the_cluster_is_asked_and_stays_as_it_is(
    spark: Any, tmp_path: Path, name: str
) -> None:
    """An export that is good, and somebody names its directory once more."""
    for path in ("manifest/part-0.txt", "ledgers/part-0.txt"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes(b"good")
    before, state = files_in(tmp_path), OutputState()
    with pytest.raises(InvalidArgument, match="exists: name a directory that does not"):
        PIPELINES[name](spark, NOBODY, output=f"{tmp_path}/", state=state)
    assert (files_in(tmp_path), state.stage) == (before, Stage.NOTHING)
