"""How files and connections share the descriptors of a process."""

from __future__ import annotations

import resource

import pytest

from bookkeeper.bookie.process import part_settings
from bookkeeper.config import ServerSettings
from bookkeeper.serving.descriptors import (
    CONNECTIONS_MIN,
    FILES_RESERVED,
    OPEN_FILES_MIN,
    fitting_files,
    raise_descriptor_limit,
)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """Set the soft and the hard limit on open files."""
    found: int = request.param
    monkeypatch.setattr(resource, "getrlimit", lambda _: (found, found))
    return found


@pytest.mark.parametrize("limit", [64, 128, 256, 512, 1024, 2048, 4096, 20_000, 1_048_576], indirect=True)
@pytest.mark.parametrize("wanted", [16, 1000, 1_000_000])
def test_files_and_connections_of_a_bookie_fit_the_limit(limit: int, wanted: int) -> None:
    settings = ServerSettings(open_index_files_max=wanted)
    files = part_settings.storage_settings(settings).open_files_max
    connections = part_settings.connection_bounds(settings).connections_max
    assert OPEN_FILES_MIN <= files <= wanted
    assert connections >= CONNECTIONS_MIN
    rest = limit - files - connections
    assert rest >= min(FILES_RESERVED, limit // 2), (files, connections)
    if limit - FILES_RESERVED >= 2 * wanted:
        assert files == wanted, "what fits is left as it is"


@pytest.mark.parametrize("limit", [64], indirect=True)
def test_the_least_limit_leaves_the_least_of_each(limit: int) -> None:
    assert fitting_files(1000) == OPEN_FILES_MIN


@pytest.mark.parametrize(
    ("limits", "raised", "found"),
    [((1024, 4096), [(4096, 4096)], 4096), ((4096, 4096), [], 4096), ((1024, resource.RLIM_INFINITY), None, 1_000_000)],
)
def test_the_soft_limit_is_raised_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: list[tuple[int, int]] | None, found: int
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: set_to.append(new))
    assert raise_descriptor_limit() == found
    assert set_to == ([limits[1:] * 2] if raised is None else raised)
