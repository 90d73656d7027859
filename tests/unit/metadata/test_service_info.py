"""What a bookie publishes about itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.bookies.service_info import format_service_info, parse_service_info
from bookkeeper.model import BookieId, BookieServiceInfo, Endpoint

ID = BookieId("10.0.0.1:3181")
PATH = "/ledgers/available/10.0.0.1:3181"

# bookkeeper/wire/FORMATS.md 4.6, 7.1; written by Apache's protobuf classes.
VECTOR = bytes.fromhex("32280a0d31302e302e302e313a3331383110ed181a0831302e302e302e31220a626f6f6b69652d727063")
INFO = BookieServiceInfo((Endpoint("10.0.0.1:3181", "10.0.0.1", 3181, "bookie-rpc"),))


def test_the_vector_is_apaches_to_the_byte() -> None:
    assert format_service_info(INFO) == VECTOR
    assert parse_service_info(VECTOR, ID, PATH) == INFO


def test_a_bookie_before_4_11_publishes_nothing_and_means_its_id() -> None:
    assert parse_service_info(b"", ID, PATH) == INFO
    assert parse_service_info(b"", BookieId("bookie-7"), PATH).address() is None
    assert parse_service_info(b"", BookieId("host:port"), PATH).address() is None
    assert parse_service_info(b"", BookieId("host:70000"), PATH).address() is None


@pytest.mark.parametrize("size", range(1, len(VECTOR)))
def test_a_truncated_record_is_corrupt(size: int) -> None:
    with pytest.raises(MetadataCorrupt, match=PATH):
        parse_service_info(VECTOR[:size], ID, PATH)


def test_text_that_is_not_utf_8_is_corrupt() -> None:
    with pytest.raises(MetadataCorrupt, match="not text"):
        parse_service_info(VECTOR.replace(b"bookie-rpc", b"bookie\xffrpc"), ID, PATH)


TEXT = st.text(max_size=10)
ENDPOINTS = st.builds(
    Endpoint, TEXT, TEXT, st.integers(0, 65535), TEXT, st.tuples(TEXT, TEXT), st.lists(TEXT, max_size=2).map(tuple)
)


@given(st.lists(ENDPOINTS, min_size=1, max_size=3).map(tuple), st.dictionaries(TEXT, TEXT, max_size=3))
def test_what_is_written_is_read(endpoints: tuple[Endpoint, ...], properties: dict[str, str]) -> None:
    info = BookieServiceInfo(endpoints, properties)
    assert parse_service_info(format_service_info(info), ID, PATH) == info
