"""What importing the client loads, and what not."""

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_neither_a_reactor_nor_the_client() -> None:
    loaded = modules_after("import bookkeeper, bookkeeper.model, bookkeeper.errors")
    assert "twisted.internet.reactor" not in loaded
    assert "bookkeeper.client.client" not in loaded
    assert not any(name.startswith("kazoo") for name in loaded)


@pytest.mark.parametrize(
    "statement",
    ["from bookkeeper import BookKeeper", "import bookkeeper.blocking", "import bookkeeper.client.client"],
)
def test_no_face_installs_the_global_reactor(statement: str) -> None:
    assert "twisted.internet.reactor" not in modules_after(statement)


def test_the_core_needs_neither_kazoo_nor_sockets() -> None:
    loaded = modules_after("import bookkeeper.client.client")
    assert not any(name.startswith("kazoo") for name in loaded)
    assert "twisted.internet.asyncioreactor" not in loaded


def test_unknown_names_of_the_package_are_attribute_errors() -> None:
    import bookkeeper

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bookkeeper.nothing  # noqa: B018 - the access is the test


def test_settings_are_public_names_and_load_no_client() -> None:
    loaded = modules_after("from bookkeeper import ClientSettings, load_client; load_client(environ={})")
    assert "bookkeeper.client.client" not in loaded
    assert "twisted.internet.reactor" not in loaded
