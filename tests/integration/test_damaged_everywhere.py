"""An entry that is bad on all its bookies, which are all there: all who tell of it tell that."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.bookie.storage.index.format import index_name, slot_offset
from bookkeeper.cli.main import main
from bookkeeper.embedded.cluster import LocalCluster, free_port
from tests.support.auto_recovery import LocalAutoRecovery
from tests.support.cluster import STEADY, local_cluster
from tests.support.damaged_disks import change_a_byte

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Path) -> Iterator[LocalCluster]:
    """Two bookies."""
    root = f"/everywhere-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, 2, directory=tmp_path, settings=STEADY) as cluster:
        yield cluster


def test_no_good_copy_is_told_by_the_reader_the_ledger_and_the_status(
    cluster: LocalCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """First without anybody who would repair; then with a worker, which fails, and keeps failing."""
    payloads = [b"%d/" % number + b"p" * 500 for number in range(100)]
    with connect(cluster.uri) as client:
        with client.create(ensemble=2, write_quorum=2, ack_quorum=2, password=b"") as ledger:
            ledger.append_many(payloads)
    for bookie in cluster.bookies:
        change_a_byte(bookie, b"77/ppp")
    uri = ("--uri", cluster.uri)
    own, other = sorted(bookie.bookie_id for bookie in cluster.bookies)

    def said(*words: str) -> str:
        capfd.readouterr()
        assert main([*words, *uri]) == 0
        return capfd.readouterr().out

    assert main(["ledger", "read", str(ledger.id), "-o", "77", "-c", "3", *uri]) != 0
    error = capfd.readouterr().err
    assert "entry 77 can be read from none of its bookies: " in error, error
    assert re.search(
        r"answered, and cannot read their copies \(a copy or its index is damaged, .*; waiting does not help: ", error
    ), error
    assert f"`bookkeeper why ledger {ledger.id}`" in error

    assert main(["ledger", "read", str(ledger.id), *uri]) != 0
    output = capfd.readouterr()
    printed = output.out.splitlines()
    assert printed == [payload.decode() for payload in payloads[: len(printed)]]
    (stop,) = re.findall(rf"The output stops before entry (\d+) of ledger {ledger.id}: entries 0..\d+ were", output.err)
    assert len(printed) == int(stop) > 60, output.err
    assert f"entry {stop} can be read from none of its bookies" in output.err

    def without_good_copy() -> list[list[int]]:
        facts = json.loads(said("why", "ledger", str(ledger.id), "--json"))["facts"].get("damaged")
        return (facts or {}).get("without_good_copy") or []

    while not (found := without_good_copy()) or found[0][0] >= 77:
        pass  # until both have reported all that is in the page: also what nobody has read
    ((first, last, count),) = found  # a page, and entries that reach into it
    state = said("why", "ledger", str(ledger.id))
    assert first < 77 < last < 99
    assert re.match(rf"ledger {ledger.id}: no good copy is known of {count} entr\w+ \({first}..{last}\): every ", state)
    for each in (own, other):
        assert re.search(rf"{each} reported .* that its copies of {first}..{last} are bad: ", state), state
    assert "nothing by itself: no process with auto-recovery runs that mends reported copies" in state
    assert "run auto-recovery: bookkeeper autorecovery" in state
    assert "a worker" not in state
    main(["shell", *uri, "autorecovery", "-disable"])
    assert "nothing by itself: auto-recovery is disabled" in said("why", "ledger", str(ledger.id))
    main(["shell", *uri, "autorecovery", "-enable"])

    settings = {**STEADY, "httpServerEnabled": "true", "httpServerPort": str(free_port())}
    with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, settings) as recovery:
        while "the worker of" not in (state := said("why", "ledger", str(ledger.id))):
            pass
        assert re.search(rf"the worker of .* failed \d+ times?: .*entry {first} can be read from none of its", state), (
            state
        )
        assert "it succeeds only when one bookie has a good copy" in state
        assert f"bring a good copy back: stop {own} or {other}, restore the files" in state

        def printed(*words: str) -> str:
            capfd.readouterr()
            assert main(["shell", *uri, *words]) == 0
            return capfd.readouterr().out

        # Look between two tries: during a try, a worker holds the lock of the ledger.
        idle = "under-replicated: 0, locked by workers: 0"
        failed = rf"^ledger {ledger.id}: not repaired: .*entry {first} can be read from none"
        while not (idle in (status := printed("queryautorecoverystatus")) and re.search(failed, status, re.MULTILINE)):
            pass
        assert "reported damaged by bookies: 1 (`listunderreplicated -damaged` names them)" in status
        assert re.search(
            r"^in trouble: 1, without a copy that could be read for several tries: [01]$", status, re.MULTILINE
        ), status
        while "  not repaired: " not in (listed := printed("listunderreplicated", "-damaged")):
            pass
        (line,) = listed.splitlines()
        assert line.startswith(
            f"{ledger.id}  {own} reported {first}..{last}; {other} reported {first}..{last}  not repaired: "
        ), line
        for words, count in (((), 1), (("-emr", own), 0), (("-mr", other), 1)):
            assert main(["shell", *uri, "--json", "listunderreplicated", "-damaged", "-c", *words]) == 0
            assert json.loads(capfd.readouterr().out) == {"count": count}
        assert main(["shell", *uri, "listunderreplicated"]) == 0
        assert capfd.readouterr().out == ""
        assert "[twisted" not in recovery.log_path.read_text()


def test_why_an_index_page_stays_damaged_is_what_the_bookie_says(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """The entry log that it would be made anew from is damaged, too."""
    with connect(cluster.uri) as client:
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=b"") as ledger:
            ledger.append_many([b"%d/" % number + b"p" * 500 for number in range(100)])
        (own,) = ledger.metadata.last_fragment.ensemble
    bookie = next(each for each in cluster.bookies if each.bookie_id == own)
    change_a_byte(bookie, b"77/ppp")
    assert bookie.stop() == 0
    path = bookie.ledger_directory / "current" / index_name(ledger.id)
    with path.open("r+b") as file:
        file.seek(slot_offset(10))
        file.write(bytes(80))
    bookie.settings["httpServerEnabled"] = "true"
    bookie.settings["httpServerPort"] = str(free_port())
    bookie.start()
    while True:
        capfd.readouterr()
        assert main(["why", "ledger", str(ledger.id), "--json", "--uri", cluster.uri]) == 0
        said = json.loads(capfd.readouterr().out)
        if any(line.startswith(f"{own} says: page 0 of {path} stays damaged: ") for line in said["error"]):
            break
    assert any(line.startswith("nothing by itself") for line in said["next"]), said["next"]
    assert any(f"regenerate-interleaved-storage-index-file -ledgerIds {ledger.id}" in line for line in said["do"])


def test_entries_of_a_log_that_is_gone_are_no_copies_though_the_index_lists_them(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without anybody who would repair; `why ledger` finds it out by reading, whether it is reported by then or not."""
    with connect(cluster.uri) as client:
        with client.create(ensemble=2, write_quorum=2, ack_quorum=2, password=b"") as ledger:
            ledger.append_many([b"%d/" % number + b"p" * 500 for number in range(100)])
    bookie = cluster.bookies[0]
    bookie.stop()
    logs = list((bookie.ledger_directory / "current").glob("*.log"))
    assert logs
    for log in logs:
        log.unlink()
    bookie.start()
    capfd.readouterr()
    assert main(["why", "ledger", str(ledger.id), "--json", "--uri", cluster.uri]) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["healthy"] is False
    standings = {place["bookie_id"]: place["standing"] for place in said["facts"]["places"]}
    assert standings == {cluster.bookies[0].bookie_id: "DAMAGED", cluster.bookies[1].bookie_id: "GOOD"}
    assert any(
        f"{bookie.bookie_id} lists all 100 it should hold, and cannot read all" in line for line in said["holds"]
    )
