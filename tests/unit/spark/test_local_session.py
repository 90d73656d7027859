"""Where the pipelines run that `bookkeeper spark` starts."""

from __future__ import annotations

import pytest

from bookkeeper.spark.local_session import chosen_master

SUBMITTED = {"PYSPARK_GATEWAY_PORT": "25333"}


@pytest.mark.parametrize(
    ("asked", "environ", "master"),
    [
        (None, {}, "local[*]"),
        ("spark://m:7077", {}, "spark://m:7077"),
        (None, SUBMITTED, None),
        ("local[2]", SUBMITTED, "local[2]"),
    ],
)
def test_the_master_of_spark_submit_is_kept_unless_another_is_asked_for(
    asked: str | None, environ: dict[str, str], master: str | None
) -> None:
    assert chosen_master(asked, environ) == master
