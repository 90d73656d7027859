"""Where the pipelines run that `bookkeeper spark` starts; the names of the packages for Spark."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from types import ModuleType

import pytest

import bookkeeper.spark
import hedwig.spark
import journalmgr.spark
from bookkeeper.spark.sessions import chosen_master

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


@pytest.mark.parametrize("package", [bookkeeper.spark, hedwig.spark, journalmgr.spark])
def test_a_public_name_is_the_same_thing_each_time_it_is_asked_for(package: ModuleType) -> None:
    """A module of that name would take its place as soon as it is imported."""
    names: Sequence[str] = package.__all__
    assert not set(names) & {each.name for each in pkgutil.iter_modules(package.__path__)}
    for name in names:
        assert callable(getattr(package, name))
        assert getattr(package, name) is getattr(package, name)
