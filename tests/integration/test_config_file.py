"""Configuration files that cannot be read are faults like any other, not tracebacks."""

from pathlib import Path

import pytest

from bookkeeper.config import load_server
from bookkeeper.config.properties import FILE_SIZE_MAX
from bookkeeper.errors import ConfigurationError


def test_a_file_is_read_and_its_lines_are_named(tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text("# one\nbookiePort=4000\n")
    loaded = load_server(conf, environ={})
    assert loaded.settings.bookie_port == 4000
    assert loaded.origin("bookiePort").place == f"{conf}:2"


def test_a_missing_file_is_reported_beside_the_other_faults(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as failure:
        load_server(tmp_path / "absent.conf", overrides={"bookiePort": "x"}, environ={})
    assert f"{tmp_path}/absent.conf: cannot be read: No such file or directory" in str(failure.value)
    assert "command line: bookiePort=x" in str(failure.value)


@pytest.mark.parametrize(
    ("data", "words"), [(b"a=\xff\xfe\n", "not UTF-8 text (byte 2)"), (b"#" * (FILE_SIZE_MAX + 1), "larger than")]
)
def test_a_file_that_is_no_configuration_is_reported(tmp_path: Path, data: bytes, words: str) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_bytes(data)
    with pytest.raises(ConfigurationError) as failure:
        load_server(conf, environ={})
    assert words in str(failure.value)
