"""The command line against a bookie with TLS and passwords, with one file for both, as the README shows."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.auth.passwords import hash_password
from bookkeeper.console.output import EXIT_FAILURE
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.certificates import FACTORY, Authority
from tests.support.cluster import STEADY, local_cluster
from tests.support.command_line import CommandLine, Outcome

COUNT = 250

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Keys of the bookie and of its clients."""
    directory = tmp_path_factory.mktemp("secure")
    authority = Authority(directory, "ca")
    bookie = authority.issue("bookie")
    users, alice = directory / "users", directory / "alice"
    users.write_text(f"alice:{hash_password(b'secret')}\n")
    alice.write_text("alice:secret\n")
    alice.chmod(0o600)
    users.chmod(0o600)
    return {
        **STEADY,
        "tlsProviderFactoryClass": FACTORY,
        "tlsKeyStore": str(bookie.key),
        "tlsCertificatePath": str(bookie.certificate),
        "tlsTrustStore": str(authority.certificate),
        "bookieAuthProviderFactoryClass": "password-file",
        "bookiePasswordFile": str(users),
        "clientAuthProviderFactoryClass": "password-file",
        "clientPasswordFile": str(alice),
    }


@pytest.fixture(scope="module")
def cluster(
    zookeeper: Any, settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    root = f"/cli-secure-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("cluster")
    with local_cluster(zookeeper.address, root, 1, directory=directory, settings=settings) as running:
        yield running


class Shell:
    """`bookkeeper shell --conf FILE ...`: the bookie's own file."""

    def __init__(self, command_line: CommandLine, conf: Path) -> None:
        self._command_line, self._conf = command_line, conf

    def __call__(self, *words: object, more: tuple[str, ...] = (), code: int = 0) -> Outcome:
        return self._command_line("shell", "--conf", self._conf, *more, *words, code=code)


@pytest.fixture
def command_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capfd, monkeypatch)


@pytest.fixture
def shell(cluster: LocalCluster, command_line: CommandLine) -> Shell:
    return Shell(command_line, cluster.bookies[0].conf_path)


@pytest.fixture
def ledger_id(cluster: LocalCluster, command_line: CommandLine) -> int:
    lines = b"".join(b"entry-%d\n" % number for number in range(COUNT))
    conf = cluster.bookies[0].conf_path
    return int(command_line("ledger", "write", "--conf", conf, "--ensemble", "1", stdin=lines).out)


def test_what_talks_to_bookies_uses_the_client_s_keys_of_the_file(
    cluster: LocalCluster, shell: Shell, ledger_id: int
) -> None:
    bookie_id = cluster.bookies[0].bookie_id
    assert "1,000 entries written to ledger " in shell("simpletest", "-e", 1).out
    assert [space["error"] for space in json.loads(shell("--json", "bookieinfo").out)] == [""]
    assert shell("readledger", "-l", ledger_id, "-m").lines[-1] == f"entry-{COUNT - 1}"
    assert "10 entries" in shell("bookiesanity").out
    assert "10 entries" in shell("bookiesanity", "-b", bookie_id).out


def test_a_read_of_one_bookie_s_copy_is_secured_alike(cluster: LocalCluster, shell: Shell, ledger_id: int) -> None:
    bookie_id = cluster.bookies[0].bookie_id
    read = shell("readledger", "-l", ledger_id, "-b", bookie_id, "-m")
    assert read.lines[1::2] == [f"entry-{number}" for number in range(COUNT)]
    assert read.err.endswith(f"{COUNT} entries\n")


@pytest.mark.parametrize("words", [["simpletest", "-e", "1"], ["bookieinfo"], ["readledger", "-l", "0", "-b", "{}"]])
def test_a_trust_store_that_is_not_there_is_told(words: list[str], cluster: LocalCluster, shell: Shell) -> None:
    words = [word.format(cluster.bookies[0].bookie_id) for word in words]
    failed = shell(*words, more=("-D", "tlsTrustStore=nope.pem"), code=EXIT_FAILURE)
    assert "tlsTrustStore=nope.pem cannot be read: No such file" in failed.err


def test_a_wrong_password_is_told_by_either_way_of_reading(
    cluster: LocalCluster, shell: Shell, ledger_id: int, tmp_path: Path
) -> None:
    mallory = tmp_path / "mallory"
    mallory.write_text("alice:guess\n")
    bookie_id = cluster.bookies[0].bookie_id
    for more in ([], ["-b", bookie_id]):
        failed = shell(
            "readledger", "-l", ledger_id, *more, more=("-D", f"clientPasswordFile={mallory}"), code=EXIT_FAILURE
        )
        assert f"authentication at bookie {bookie_id} as 'alice'" in failed.err


def test_what_talks_to_the_metadata_store_alone_needs_none_of_them(
    cluster: LocalCluster, shell: Shell, settings: dict[str, str]
) -> None:
    """A bookie's own file need not name authorities, a client's no keys of a bookie."""
    bookie_id = cluster.bookies[0].bookie_id
    for missing in ("tlsTrustStore", "tlsKeyStore", "clientPasswordFile", "bookiePasswordFile"):
        assert bookie_id in shell("listbookies", "-rw", more=("-D", f"{missing}=")).out
