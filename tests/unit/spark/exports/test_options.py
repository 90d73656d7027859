"""The words of an export and of an import."""

from __future__ import annotations

import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.exports.options import EXPORT, IMPORT, ExportOptions, ImportOptions
from bookkeeper.spark.options.tables import read_options

URI = {"uri": "zk://127.0.0.1:2181/ledgers"}


def test_words_have_defaults() -> None:
    export = read_options(ExportOptions, URI, where=EXPORT).own
    assert (export.ledgers.ranges, export.open_too, export.fail_on_data_loss) == (None, False, True)
    assert (export.as_administrator, export.file_bytes_max) == (False, 128 << 20)
    taken = read_options(ImportOptions, {**URI, "job": "restore-1"}, where=IMPORT).own
    assert (taken.job, taken.ensemble, taken.write_quorum, taken.ack_quorum) == ("restore-1", 0, 0, 0)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "option job of format [a-z.]+: is missing: a name for this import"),
        ({"job": "a/b"}, "want 1 to 200 letters"),
        ({"job": "j", "writeQuorumSize": "2", "ackQuorumSize": "3"}, "2, 3: none may be larger"),
        ({"job": "j", "ensembleSize": "0"}, "ensembleSize"),
        ({"job": "j", "ledgers": "7"}, "ledgers"),
    ],
)
def test_words_of_an_import_that_cannot_be_meant_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_options(ImportOptions, {**URI, **given}, where=IMPORT)
