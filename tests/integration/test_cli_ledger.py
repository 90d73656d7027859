"""`bookkeeper ledger` against a real cluster: streams in, streams out, exit codes, bad input."""

import json
import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.console.output import EXIT_BROKEN_PIPE, EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import LedgerIdOccupied
from tests.support.cluster import STEADY, local_cluster
from tests.support.command_line import CommandLine, start
from tests.support.stranger import claim


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/cli-ledger-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("cluster")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Commands find the cluster through the environment, as an operator would set it."""
    monkeypatch.setenv("BK_metadataServiceUri", cluster.uri)
    return CommandLine(capfd, monkeypatch)


@pytest.fixture
def written(run: CommandLine) -> str:
    """A closed ledger of the lines 0..99."""
    numbers = b"".join(b"%d\n" % number for number in range(100))
    return run("ledger", "write", stdin=numbers).out.strip()


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


# --- write and read


def test_what_lines_write_read_prints(run: CommandLine, written: str) -> None:
    outcome = run("ledger", "read", written)
    assert outcome.lines == numbers(0, 100)
    assert outcome.err == f"100 entries of ledger {written}\n"


def test_writing_says_what_was_written_as_json(run: CommandLine) -> None:
    outcome = run("ledger", "write", "--json", stdin=b"one\n\nthree")
    value = json.loads(outcome.out)
    assert outcome.err == f"ledger {value['ledger_id']}\n"
    assert value == {"ledger_id": value["ledger_id"], "entries": 3, "length": 8}
    assert run("ledger", "read", value["ledger_id"]).out == "one\n\nthree\n"


def test_binary_entries_go_in_and_out_length_prefixed(run: CommandLine) -> None:
    data = b"".join(struct.pack(">I", len(entry)) + entry for entry in (b"a\nb", b"", b"\r\n"))
    ledger = run("ledger", "write", "--length-prefixed", stdin=data).out.strip()
    assert run("ledger", "read", ledger, "--length-prefixed").out.encode() == data


@pytest.mark.parametrize("digest", ["crc32c", "crc32", "mac", "dummy"])
def test_digest_password_quorums_and_custom_metadata_are_as_asked(run: CommandLine, digest: str) -> None:
    options = ("--digest", digest, "--password", "se cret", "--ensemble", 2, "--ack-quorum", 1, "--custom", "app=test")
    ledger = run("ledger", "write", *options, stdin=b"x\n").out.strip()
    shown = json.loads(run("ledger", "show", ledger, "--json", "--secrets").out)
    assert (shown["digest_type"], shown["password"]) == (digest.upper(), "se cret")
    assert (shown["ensemble_size"], shown["write_quorum"], shown["ack_quorum"]) == (2, 2, 1)
    assert shown["custom"] == {"app": "test"}
    assert run("ledger", "read", ledger, "--password", "se cret").out == "x\n"
    refused = run("ledger", "read", ledger, "--password", "wrong", code=EXIT_FAILURE)
    assert f"ledger {ledger}: the password is not the one it was created with" in refused.err


def test_a_password_need_not_stand_on_the_command_line(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "password"
    path.write_text("s3cret\n")
    ledger = run("ledger", "write", "--password-file", path, stdin=b"x\n").out.strip()
    assert json.loads(run("ledger", "show", ledger, "--json", "--secrets").out)["password"] == "s3cret"
    assert run("ledger", "read", ledger, "--password-file", path).out == "x\n"
    run("ledger", "read", ledger, code=EXIT_FAILURE)
    monkeypatch.setenv("BK_passwd", "s3cret")
    assert run("ledger", "tail", ledger).out == "x\n"
    assert run("ledger", "read", run("ledger", "write", stdin=b"y\n").out.strip(), "--password", "s3cret").out == "y\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-o", "98"], ["98", "99"]),
        (["-o", "-3"], ["97", "98", "99"]),
        (["-o", "-1000", "-c", "2"], ["0", "1"]),
        (["-o", "end"], []),
        (["-o", "100"], []),
        (["-c", "0"], []),
        (["-o", "10", "--last", "12"], ["10", "11", "12"]),
        (["--last", "1000", "-o", "99"], ["99"]),
    ],
)
def test_where_reading_begins_and_ends(run: CommandLine, written: str, options: list[str], expected: list[str]) -> None:
    assert run("ledger", "read", written, *options).lines == expected


def test_reading_beyond_the_end_is_told(run: CommandLine, written: str) -> None:
    for action in ("read", "tail"):
        failed = run("ledger", action, written, "-o", 101, code=EXIT_FAILURE)
        assert (failed.out, f"there is no entry 101: ledger {written} ends at entry 99" in failed.err) == ("", True)
    beyond = run("ledger", "read", written, "--last", 9999, "-o", 98)
    assert beyond.lines == ["98", "99"]
    assert f"ledger {written} ends at entry 99, before --last 9999\n" in beyond.err
    empty = run("ledger", "create").out.strip()
    assert f"ledger {empty} has no entries" in run("ledger", "read", empty, "-o", 1, code=EXIT_FAILURE).err
    assert run("ledger", "read", empty).lines == []
    backwards = run("ledger", "read", written, "-o", 10, "--last", 5, code=EXIT_USAGE)
    assert "-o 10 --last 5: the last entry, 5, is before the first, 10" in backwards.err


def test_output_is_formatted_as_asked(run: CommandLine, written: str) -> None:
    assert run("ledger", "read", written, "-c", 2, "-f", r"%l/%o=%s;\n").lines == [f"{written}/0=0;", f"{written}/1=1;"]
    (line,) = run("ledger", "read", written, "-c", 1, "-J").lines
    assert json.loads(line) == {"ledger_id": int(written), "entry_id": 0, "size": 1, "payload": "0"}


@pytest.mark.parametrize(("ensemble", "quorums"), [(1, (1, 1)), (2, (2, 2)), (3, (2, 2))])
def test_quorums_that_are_not_given_fit_the_ensemble(run: CommandLine, ensemble: int, quorums: tuple[int, int]) -> None:
    made = json.loads(run("ledger", "create", "--ensemble", ensemble, "--json").out)
    assert (made["ensemble_size"], made["write_quorum"], made["ack_quorum"]) == (ensemble, *quorums)


def test_a_chosen_id_is_taken_once(run: CommandLine) -> None:
    ledger = run("ledger", "write", "--ledger-id", 4_000_000_000, stdin=b"x\n").out.strip()
    assert ledger == "4000000000"
    assert "4000000000" in run("ledger", "create", "--ledger-id", 4_000_000_000, code=EXIT_FAILURE).err


# --- bad input


def test_input_cut_inside_an_entry_keeps_the_whole_ones_and_fails(run: CommandLine, cluster: LocalCluster) -> None:
    data = struct.pack(">I", 3) + b"one" + struct.pack(">I", 99) + b"half"
    failed = run("ledger", "write", "--length-prefixed", stdin=data, code=EXIT_FAILURE)
    assert "the input ends inside entry 1: 8 bytes are left over" in failed.err
    ledger = failed.out.strip()
    assert f"Ledger {ledger} is closed. It holds 1 entry; no more was acknowledged." in failed.err
    assert run("ledger", "read", ledger).out == "one\n"


@pytest.mark.parametrize("version", [("-D", "useV2WireProtocol=true"), ("-D", "useV2WireProtocol=false")])
@pytest.mark.parametrize("digest", ["crc32c", "crc32", "mac", "dummy"])
def test_an_entry_above_what_fits_into_a_frame_is_refused_with_that_limit(
    run: CommandLine, digest: str, version: tuple[str, str]
) -> None:
    options = ("--digest", digest, *version, "-D", "nettyMaxFrameSizeBytes=2048")
    failed = run("ledger", "write", *options, stdin=b"x" * 3000 + b"\n", code=EXIT_FAILURE)
    limit = int(re.findall(r"line 1 has more than (\d+) bytes, the limit of an entry", failed.err)[0])
    assert run("ledger", "write", *options, stdin=b"x" * limit + b"\n").err == f"1 entry, {limit:,} bytes\n"
    above = run("ledger", "write", *options, stdin=b"x" * (limit + 1) + b"\n", code=EXIT_FAILURE)
    assert f"line 1 has more than {limit} bytes" in above.err


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ((), b"x" * 3000),
        (("--length-prefixed",), struct.pack(">I", 3000)),
        (("--length-prefixed",), struct.pack(">I", 30) + b"too short"),
    ],
)
def test_input_that_is_of_no_use_from_its_beginning_leaves_no_ledger(
    run: CommandLine, options: tuple[str, ...], data: bytes
) -> None:
    before = run("ledger", "list").lines
    failed = run("ledger", "write", "-D", "nettyMaxFrameSizeBytes=2048", *options, stdin=data, code=EXIT_FAILURE)
    assert failed.out == ""
    assert run("ledger", "list").lines == before


def test_no_input_is_an_empty_ledger(run: CommandLine) -> None:
    outcome = run("ledger", "write")
    assert outcome.err == "0 entries, 0 bytes\n"
    assert run("ledger", "read", outcome.out.strip()).lines == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["read", "123456"], EXIT_FAILURE, "123456"),
        (["show", "123456"], EXIT_FAILURE, "123456"),
        (["read", "0", "-o", "somewhere"], EXIT_USAGE, "use beginning, end, -N or an entry id"),
        (["create", "--ensemble", "2", "--write-quorum", "3"], EXIT_USAGE, "need ensemble >= write quorum"),
        (["create", "--ensemble", "9"], EXIT_FAILURE, "the ledger needs 9 bookies and 3 are writable"),
        (["create", "--custom", "novalue"], EXIT_USAGE, "write it as KEY=VALUE"),
        (["create", "-D", "readEntryTimeoutSecs=1"], EXIT_FAILURE, "readEntryTimeoutSec"),
        (["list", "--uri", "zk://127.0.0.1:1/ledgers", "-D", "zkTimeout=500"], EXIT_FAILURE, "127.0.0.1:1"),
    ],
)
def test_bad_input_is_one_line_that_names_the_thing(
    run: CommandLine, written: str, words: list[str], code: int, message: str
) -> None:
    failed = run("ledger", *words, code=code)
    assert failed.out == ""
    assert message in failed.err
    assert "Traceback" not in failed.err


def test_a_reader_that_leaves_early_is_no_failure_of_ours(cluster: LocalCluster, run: CommandLine) -> None:
    ledger = run("ledger", "write", stdin=b"x" * 60_000 + b"\n").out.strip()
    reader, writer = os.pipe()
    os.close(reader)  # before the command writes, since the pipe could hold all of its output
    reading = start("ledger", "read", ledger, "--uri", cluster.uri, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    _, err = reading.communicate(timeout=60)
    assert reading.returncode == EXIT_BROKEN_PIPE
    assert err == ""


def test_a_ledger_whose_id_nobody_reads_is_closed_all_the_same(run: CommandLine, cluster: LocalCluster) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = ("ledger", "write", "--ledger-id", "987654", "--uri", cluster.uri)
    writing = start(*words, stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    writing.communicate("one\n", timeout=60)
    assert writing.returncode == EXIT_BROKEN_PIPE
    assert json.loads(run("ledger", "show", "987654", "--json").out)["state"] == "CLOSED"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_live_pipe_can_be_tailed_and_a_signal_closes_its_ledger(
    cluster: LocalCluster, run: CommandLine, number: signal.Signals
) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    writing = start("ledger", "write", "--uri", cluster.uri, **pipes)
    assert writing.stdin is not None
    assert writing.stdout is not None
    writing.stdin.write("0\n1\n")
    writing.stdin.flush()
    ledger = writing.stdout.readline().strip()
    tail = start("ledger", "tail", ledger, "--uri", cluster.uri, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert tail.stdout is not None
    assert [tail.stdout.readline() for _ in range(2)] == ["0\n", "1\n"]
    writing.send_signal(number)
    out, err = writing.communicate(timeout=60)
    assert (writing.returncode, out) == (EXIT_INTERRUPTED, "")
    assert err == f"Ledger {ledger} is closed. It holds 2 entries; no more was acknowledged.\n"
    assert tail.communicate(timeout=60) == ("", "")
    assert tail.returncode == EXIT_OK
    assert json.loads(run("ledger", "show", ledger, "--json").out)["state"] == "CLOSED"


# --- create, list, show, delete


def test_create_makes_a_closed_ledger_or_an_open_one(run: CommandLine) -> None:
    closed = run("ledger", "create").out.strip()
    assert json.loads(run("ledger", "show", closed, "--json").out)["state"] == "CLOSED"
    still_open = json.loads(run("ledger", "create", "--open", "--json").out)
    assert still_open["state"] == "OPEN"
    assert run("ledger", "read", still_open["ledger_id"], "--recover").out == ""
    assert json.loads(run("ledger", "show", still_open["ledger_id"], "--json").out)["state"] == "CLOSED"


def test_show_is_for_people_without_json_and_hides_the_password(run: CommandLine) -> None:
    ledger = run("ledger", "create", "--password", "hidden").out.strip()
    shown = run("ledger", "show", ledger).out
    assert shown.startswith(f"ledger {ledger}: CLOSED, last entry -1, 0 bytes\n  E=3 Qw=2 Qa=2, digest CRC32C\n")
    assert "hidden" not in shown
    assert "password" not in json.loads(run("ledger", "show", ledger, "--json").out)


def test_list_has_every_ledger_and_the_limit_holds(run: CommandLine, written: str) -> None:
    everything = run("ledger", "list")
    assert written in everything.lines
    assert everything.lines == sorted(everything.lines, key=int)
    assert run("ledger", "list", "--limit", 1).lines == everything.lines[:1]
    metadata = [json.loads(line) for line in run("ledger", "list", "--long", "--json").lines]
    assert [str(value["ledger_id"]) for value in metadata] == everything.lines


def test_delete_asks_tries_and_deletes(run: CommandLine) -> None:
    ledger = run("ledger", "create").out.strip()
    assert "--force" in run("ledger", "delete", ledger, code=EXIT_USAGE).err
    assert f"would delete ledger {ledger}" in run("ledger", "delete", ledger, "--dry-run").err
    assert ledger in run("ledger", "list").lines
    assert f"deleted ledger {ledger}" in run("ledger", "delete", ledger, "--force").err
    assert ledger not in run("ledger", "list").lines
    run("ledger", "delete", ledger, "--force", code=EXIT_FAILURE)


# --- tail


def test_tail_follows_an_open_ledger_until_it_is_closed(cluster: LocalCluster) -> None:
    with connect(cluster.uri) as client:
        ledger = client.create()
        ledger.append_many([b"0", b"1", b"2"])
        tail = start("ledger", "tail", ledger.id, "--uri", cluster.uri, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert tail.stdout is not None
        assert [tail.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
        ledger.append(b"3")
        assert tail.stdout.readline() == "3\n"
        ledger.append(b"4")
        ledger.close()
        out, err = tail.communicate(timeout=60)
    assert (tail.returncode, out, err) == (EXIT_OK, "4\n", "")


@pytest.mark.parametrize("ensemble", [1, 3])
@pytest.mark.parametrize("offset", ["beginning", "end"])
def test_tail_of_a_ledger_that_nobody_writes_ends_with_its_reader(
    cluster: LocalCluster, ensemble: int, offset: str
) -> None:
    words = ("ledger", "tail", left_open(cluster, ensemble), "-o", offset, "--uri", cluster.uri)
    with start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        try:
            assert tail.stdout is not None
            if offset == "beginning":
                assert tail.stdout.readline() == "0\n"
            tail.stdout.close()
            _, err = tail.communicate(timeout=60)
        finally:
            tail.kill()
    assert (tail.returncode, err) == (EXIT_BROKEN_PIPE, "")


def left_open(cluster: LocalCluster, ensemble: int) -> int:
    """A ledger that holds "0", readable, and whose writer has gone without closing it."""
    settings = ClientSettings(explicit_lac_interval_s=0.0)  # otherwise a writer that pauses confirms "1", too
    with connect(cluster.uri, settings) as client:
        quorum = min(2, ensemble)
        ledger = client.create(ensemble=ensemble, write_quorum=quorum, ack_quorum=quorum)
        ledger.append(b"0")
        ledger.append(b"1")  # says that "0" is confirmed
        ledger.abort()
        return ledger.id


def test_a_read_of_an_open_ledger_names_the_entries_it_leaves_out(cluster: LocalCluster, run: CommandLine) -> None:
    ledger = left_open(cluster, 3)
    for args in (("ledger", "read", ledger), ("ledger", "tail", ledger, "-e"), ("shell", "readledger", "-l", ledger)):
        outcome = run(*args)
        assert "entry 0 is the last one known to be acknowledged; entry 1 is stored" in outcome.err
        assert "--recover" in outcome.err
    assert run("ledger", "read", ledger).out == "0\n"
    recovered = run("ledger", "read", ledger, "--recover")
    assert (recovered.out, "warning" in recovered.err) == ("0\n1\n", False)


def test_tail_stops_at_the_end_or_after_a_count(run: CommandLine, written: str) -> None:
    assert run("ledger", "tail", written, "-e", "-o", -2).lines == ["98", "99"]
    assert run("ledger", "tail", written, "-c", 3).lines == ["0", "1", "2"]
    assert run("ledger", "tail", written, "-o", "97").lines == ["97", "98", "99"]


def test_tail_never_disturbs_the_writer(cluster: LocalCluster, run: CommandLine) -> None:
    with connect(cluster.uri) as client, client.create() as ledger:
        for number in range(5):
            ledger.append(b"%d" % number)
        assert run("ledger", "tail", ledger.id, "-c", 4).lines == numbers(0, 4)
        assert ledger.append(b"still writing") == 5


def test_an_operator_can_close_a_claimed_ledger_as_empty(run: CommandLine, cluster: LocalCluster) -> None:
    """The ledger was claimed between its creation and its first entry: no recovery can find its end."""
    with connect(cluster.uri) as client, connect(cluster.uri) as other:
        plain = client.create(ensemble=3, write_quorum=3, ack_quorum=2)
        ledger = client.create(ensemble=3, write_quorum=3, ack_quorum=2)
        members = ledger.metadata.last_fragment.ensemble
        client.run(lambda each: Deferred.fromCoroutine(claim(each.context, members, [ledger.ledger_id])))
        ledger.abort()
        with pytest.raises(LedgerIdOccupied, match=f"bookkeeper ledger close-empty {ledger.ledger_id}"):
            other.open(ledger.ledger_id)
        assert (
            f"bookkeeper ledger close-empty {ledger.ledger_id}" in run("why", "ledger", ledger.ledger_id, code=None).out
        )
        outcome = run("ledger", "close-empty", str(ledger.ledger_id), code=EXIT_USAGE)
        assert "another key claimed this id" in outcome.err
        assert "given up for good" in outcome.err
        assert not client.metadata(ledger.ledger_id).is_closed
        outcome = run("ledger", "close-empty", str(ledger.ledger_id), "--force")
        assert outcome.code == EXIT_OK
        assert other.open(ledger.ledger_id).last_add_confirmed == -1
        # A ledger that can be recovered is recovered.
        plain.append(b"kept")
        outcome = run("ledger", "close-empty", str(plain.ledger_id), "--force")
        assert (outcome.code, outcome.err) == (EXIT_OK, f"ledger {plain.ledger_id} was recovered: closed at entry 0\n")
