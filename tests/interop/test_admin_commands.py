"""Commands of our shell beside the genuine shell's of the same name, on the same cluster and the same directories.

Each says of what the other did or sees what it says itself: cookies, the cluster, marks and switches of auto-recovery,
and the files of a bookie that does not run.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.cli.main import main
from bookkeeper.config import ClientSettings
from bookkeeper.console.reactor import with_store
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, LedgerId
from tests.interop.conftest import SESSION_TIMEOUT
from tests.support.apache import Apache
from tests.support.apache_admin import ApacheAutoRecovery, ApacheShell, ShellFailed, attributes
from tests.support.cluster import wait_for_exit

COUNT = 60
PASSWORD = b"pass-word"
INTERLEAVED = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "sortedLedgerStorageEnabled": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(2, directory=tmp_path_factory.mktemp("commands"), settings=SESSION_TIMEOUT) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def theirs(apache: Apache, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheShell]:
    with ApacheShell(apache, tmp_path_factory.mktemp("shell"), cluster.uri) as shell:
        yield shell


class OurShell:
    """`bookkeeper shell --uri ...` in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str], *options: object) -> None:
        self._capture, self._options = capture, options

    def __call__(self, *words: object, code: int = 0) -> str:
        self._capture.readouterr()
        got = main(["shell", *map(str, self._options), *map(str, words)])
        out, err = self._capture.readouterr()
        assert got == code, err
        return out

    def json(self, *words: object) -> Any:
        return json.loads(self("--json", *words))


@pytest.fixture
def ours(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> OurShell:
    return OurShell(capfd, "--uri", cluster.uri)


# --- cookies


def test_cookies_are_the_same_text_and_either_shell_restores_what_the_other_deletes(
    cluster: LocalCluster, ours: OurShell, theirs: ApacheShell
) -> None:
    bookie = cluster.bookies[0]
    version = bookie.ledger_directory / "current" / "VERSION"
    text = ours("cookie_get", bookie.bookie_id)
    assert text == version.read_text()
    shown = "\n".join(theirs.run("cookie_get", bookie.bookie_id))
    assert all(line in shown for line in text.splitlines()[1:])
    theirs.run("cookie_delete", bookie.bookie_id)
    ours("cookie_get", bookie.bookie_id, code=1)
    ours("cookie_create", "-cf", version, bookie.bookie_id)
    theirs.run("cookie_update", "-cf", version, bookie.bookie_id)
    ours("cookie_delete", bookie.bookie_id)
    with pytest.raises(ShellFailed, match="CookieNotFound"):
        theirs.run("cookie_get", bookie.bookie_id)
    theirs.run("cookie_create", "-cf", version, bookie.bookie_id)
    ours("cookie_update", "-cf", version, bookie.bookie_id)
    assert ours("cookie_get", bookie.bookie_id) == text


def test_generated_cookies_are_the_same_bytes(
    cluster: LocalCluster, ours: OurShell, theirs: ApacheShell, tmp_path: Path
) -> None:
    files = tmp_path / "ours", tmp_path / "theirs"
    options = ("-j", "/j1,/j2", "-l", "/l1,/l2", "-ix", "/i1", "-i", "an-instance")
    ours("cookie_generate", *options, "-o", files[0], "bookie-7:3181")
    theirs.run("cookie_generate", *options, "-o", files[1], "bookie-7:3181")
    assert files[0].read_bytes() == files[1].read_bytes()


# --- cluster and auto-recovery


def await_auditor(recovery: ApacheAutoRecovery, ours: OurShell) -> None:
    recovery.await_condition(lambda: ours.json("clusterinfo")["auditorElected"], "an auditor elected", timeout_s=90)


def test_clusterinfo_has_the_same_facts(
    apache: Apache, cluster: LocalCluster, ours: OurShell, theirs: ApacheShell, tmp_path: Path
) -> None:
    def their_facts() -> dict[str, object]:
        text = "".join(theirs.run("clusterinfo"))
        found: dict[str, object] = json.loads(re.search(r"\{[^{}]*\"auditorElected\"[^{}]*\}", text)[0])  # type: ignore[index]
        return found

    facts = their_facts()
    assert facts["auditorElected"] is False
    assert {name: ours.json("clusterinfo")[name] for name in facts} == facts
    with ApacheAutoRecovery(apache, tmp_path, cluster.uri, "auditor") as recovery:
        await_auditor(recovery, ours)
        facts = their_facts()
        assert {name: ours.json("clusterinfo")[name] for name in facts} == facts
        assert ours("whoisauditor").strip() == facts["auditorId"] == recovery.bookie_id
        assert recovery.bookie_id in "".join(theirs.run("whoisauditor"))


def test_both_shells_set_and_show_switches_and_the_delay(
    apache: Apache, cluster: LocalCluster, ours: OurShell, theirs: ApacheShell, tmp_path: Path
) -> None:
    ours("autorecovery", "-disable")
    assert "already disabled" in "".join(theirs.run("autorecovery", "-disable"))
    theirs.run("autorecovery", "-enable")
    assert ours.json("queryautorecoverystatus")["enabled"] is True
    for delay in (31, 1):
        ours("lostbookierecoverydelay", "-set", delay)
        assert attributes("delay", theirs.run("lostbookierecoverydelay", "-g")) == [str(delay)]
    theirs.run("lostbookierecoverydelay", "-s", 17)
    assert ours("lostbookierecoverydelay", "-get") == "17\n"
    with ApacheAutoRecovery(apache, tmp_path, cluster.uri, "auditor") as recovery:  # Apache's command needs an auditor
        await_auditor(recovery, ours)
        ours("triggeraudit")
        theirs.run("triggeraudit")
    assert ours("lostbookierecoverydelay", "-get") == "17\n"


def test_marked_ledgers_are_listed_and_filtered_alike(
    cluster: LocalCluster, ours: OurShell, theirs: ApacheShell
) -> None:
    lost, other = BookieId("10.0.0.1:3181"), BookieId("10.0.0.2:3181")

    async def mark(store: MetadataStore) -> None:
        for ledger_id, missing in ((9001, (lost,)), (9002, (other,)), (9003, (lost, other))):
            await store.underreplication.mark(LedgerId(ledger_id), missing, now_ms=1_700_000_000_000)

    with_store(ClientSettings(metadata_service_uri=cluster.uri), mark)
    for options in ((), ("-mr", lost), ("-emr", lost), ("-mr", lost, "-emr", other)):
        printed = theirs.run("listunderreplicated", *options)
        theirs_found = {int(word) for line in printed for word in re.findall(r"\b900\d\b", line)}
        assert {int(line) for line in ours("listunderreplicated", *options).splitlines()} == theirs_found
    shown = "\n".join(theirs.run("listunderreplicated", "-pmr"))
    assert lost in shown
    assert lost in ours("listunderreplicated", "-pmr")


# --- the files of a bookie that does not run


class Files:
    """The second bookie, stopped, with three ledgers, one of which is deleted; the genuine shell on its directories."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.bookie: LocalBookie = cluster.bookies[1]
        self.ledgers = []
        with connect(cluster.uri) as client:
            for _ in range(3):
                with client.create(
                    ensemble=1, write_quorum=1, ack_quorum=1, password=PASSWORD, bookies=[self.bookie.bookie_id]
                ) as ledger:
                    ledger.append_many([b"entry-%d" % number for number in range(COUNT)])
                self.ledgers.append(ledger.id)
            client.delete(self.ledgers[1])
        self.bookie.stop()
        self.current = self.bookie.ledger_directory / "current"

    @property
    def settings(self) -> dict[str, str]:
        return {
            **INTERLEAVED,
            "bookiePort": str(self.bookie.port),
            "journalDirectories": str(self.bookie.journal_directory),
            "ledgerDirectories": str(self.bookie.ledger_directory),
        }

    def index(self, ledger_id: int) -> Path:
        return self.current / f"{ledger_id >> 8 & 0xFF:x}" / f"{ledger_id & 0xFF:x}" / f"{ledger_id:x}.idx"

    def log(self) -> Path:
        """The newest one that has entries."""
        used = [path for path in self.current.glob("*.log") if path.stat().st_size > 1024]
        return max(used, key=lambda path: int(path.stem, 16))


@pytest.fixture
def files(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    files = Files(cluster)
    kept = {path: path.read_bytes() for path in files.bookie.ledger_directory.rglob("*") if path.is_file()}
    yield files
    for path in files.bookie.ledger_directory.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)
    files.bookie.start()


@pytest.fixture
def their_local(
    apache: Apache, cluster: LocalCluster, files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheShell]:
    directory = tmp_path_factory.mktemp("local")
    with ApacheShell(apache, directory, cluster.uri, files.settings) as shell:
        yield shell


@pytest.fixture
def our_local(files: Files, capfd: pytest.CaptureFixture[str]) -> OurShell:
    return OurShell(capfd, "--conf", files.bookie.conf_path)


def test_both_find_our_files_sound_and_both_find_a_wrong_location(
    files: Files, their_local: ApacheShell, our_local: OurShell
) -> None:
    our_local("localconsistencycheck")
    assert "Check passed" in "".join(their_local.run("localconsistencycheck"))
    our_local("localconsistencycheck")  # their tool left nothing that is wrong to us
    with files.index(files.ledgers[0]).open("r+b") as file:
        file.seek(1024 + 8 * 7)
        location = file.read(8)
        file.seek(1024 + 8 * 9)
        file.write(location)  # entry 9 is where entry 7 is
    found = our_local("localconsistencycheck", code=1)
    assert f"{files.index(files.ledgers[0])} at offset {1024 + 8 * 9}: entry 9 is to be at" in found
    with pytest.raises(ShellFailed):
        their_local.run("localconsistencycheck")


def test_activeledgers_names_the_same_ledgers(files: Files, their_local: ApacheShell, our_local: OurShell) -> None:
    log_id = int(files.log().stem, 16)
    alive = {int(ledger_id) for ledger_id in our_local.json("activeledgers", "-l", log_id)["active"]}
    assert alive >= {files.ledgers[0], files.ledgers[2]}
    assert files.ledgers[1] not in alive
    printed = "\n".join(their_local.run("activeledgers", "-l", log_id, "-t", "10000"))
    listed = {int(word) for word in re.findall(r"(?:ledgerId=|^)(\d+)\b", printed, re.MULTILINE)}
    assert listed == alive, printed


def test_regenerated_index_files_have_the_same_locations_key_and_fence(
    cluster: LocalCluster, files: Files, their_local: ApacheShell, our_local: OurShell
) -> None:
    ledger_id = files.ledgers[0]
    path = files.index(ledger_id)
    before = path.read_bytes()
    command = "regenerate-interleaved-storage-index-file"
    path.unlink()
    our_local(command, "-l", ledger_id, "-password", PASSWORD.decode())
    ours_made = path.read_bytes()
    path.unlink()
    their_local.run(command, "-l", ledger_id, "-password", PASSWORD.decode())
    theirs_made = path.read_bytes()
    size = 1024 + 8 * COUNT
    assert ours_made[1024:size] == theirs_made[1024:size] == before[1024:size]
    # Magic, version, key, and the fence that both set because nobody knows.
    assert ours_made[:36] == theirs_made[:36]
    assert int.from_bytes(ours_made[32:36], "big") == 1
    path.write_bytes(ours_made)
    files.bookie.start()
    with connect(cluster.uri) as client, client.open(ledger_id, password=PASSWORD) as ledger:
        assert [entry.payload for entry in ledger.entries()] == [b"entry-%d" % number for number in range(COUNT)]
    files.bookie.stop()


# --- identity


def test_a_cookie_that_our_shell_has_grown_is_listed_alike_and_printed_by_the_genuine_one(
    apache: Apache, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The genuine 4.18.0 shell takes -expandstorage for -list, so only ours can grow a bookie."""
    with LocalCluster(1, directory=tmp_path / "cluster", settings=SESSION_TIMEOUT) as cluster:
        (bookie,) = cluster.bookies
        ours = OurShell(capfd, "--conf", bookie.conf_path)
        bookie.stop()
        directories = [bookie.ledger_directory, tmp_path / "second"]
        bookie.settings["ledgerDirectories"] = ",".join(map(str, directories))
        assert wait_for_exit(bookie) != 0  # and has written the conf file that both read
        settings = {
            "bookiePort": str(bookie.port),
            "journalDirectories": str(bookie.journal_directory),
            "ledgerDirectories": bookie.settings["ledgerDirectories"],
        }
        (tmp_path / "shell").mkdir()
        with ApacheShell(apache, tmp_path / "shell", cluster.uri, settings) as theirs:
            ours("updatecookie", "-expandstorage")
            shown = "\n".join(theirs.run("cookie_get", bookie.bookie_id))
            assert f'ledgerDirs: "2\\t{directories[0]}\\t{directories[1]}"' in shown
            listed = "\n".join(theirs.run("updatecookie", "-list"))
            for row in ours.json("updatecookie", "-list"):
                assert f"bookie {bookie.bookie_id} of cluster " in row["owner"]
                assert row["place"] == cluster.uri or row["place"] in listed
        bookie.start()
        with connect(cluster.uri) as client, client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
            ledger.append(b"x")
