"""Spark on more than one machine: a stand-alone master, two workers that share nothing with a program but its options.

Aim: what tasks do does not depend on the driver's disk, environment or installation, and each row is written once
though executors and the program itself are killed while they write.

Method: the project is built as a wheel and given to spark-submit; neither its Python nor that of the executors has the
project otherwise. A program (tests/support/spark_cluster_program.py) tells what it saw; its tasks stop at faults that
are injected, until the test has killed what runs them. Programs and clusters are dear, so one story has all of it.
"""

from __future__ import annotations

import errno
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import bookkeeper.blocking
import hedwig.blocking
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.embedded.process import dying_with_parent
from bookkeeper.spark.sink.history import commit_of_job, commits_of_query
from bookkeeper.spark.sink.purpose import Fate
from bookkeeper.spark.sink.sweep import sweep
from hedwig.embedded import LocalHub
from hedwig.model import SubscribeMode
from tests.support.cluster import STEADY, STEADY_HUB, local_cluster, with_long_timeouts
from tests.support.damaged_disks import change_a_byte
from tests.support.process_output import tail
from tests.support.sink_ledgers import check_nothing_is_left, ledgers_of, named_by
from tests.support.spark import SMALL_JAVA
from tests.support.spark_master import SPARK_HOME, SparkMaster, bare_python, build_wheel

pytestmark = pytest.mark.timeout(1800)

TESTS = Path(__file__).resolve().parents[2]
SUPPORT, README = TESTS / "support", TESTS.parent / "README.md"
PROGRAM = ("spark_cluster_program.py", "faulty_ledger_sink.py")

FACT = b"FACT "
"""Before what the program tells, among what else comes on its standard output."""

STEP_S = 300.0
"""Patience with one step of a program."""

SIZES = (700, 500)
"""Entries of the ledgers that are read."""
TOTAL = sum(SIZES)
PER_TRIGGER = 400
MESSAGES = 300
DAMAGED = 650
JOB = "copied"


@dataclass
class Machines:
    """The master, and what programs are submitted with."""

    master: SparkMaster
    wheel: Path
    python: Path
    directory: Path
    """Where programs run: with the program, and nothing of ours."""
    programs: list[Submitted] = field(default_factory=list)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    directory = tmp_path_factory.mktemp("spark-cluster")
    wheel = build_wheel(directory / "build")
    python = bare_python(directory / "python")
    (directory / "driver").mkdir()
    for name in PROGRAM:
        shutil.copy(SUPPORT / name, directory / "driver")
    with SparkMaster(directory / "machines") as master:
        machines = Machines(master, wheel, python, directory / "driver")
        try:
            yield machines
        finally:
            for program in machines.programs:
                program.close()


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-cluster-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("bookies")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as connected:
        yield connected


def readme_command(name: str, machines: Machines) -> list[str]:
    """The words of a command as the README has it for a cluster, with the test's master and wheel."""
    _, _, block = README.read_text().partition("# file: on-a-cluster.sh\n")
    [line] = [each for each in block.partition("```")[0].splitlines() if each.startswith(f"{name} ")]
    ours = {"spark://master:7077": machines.master.url, "$wheel": str(machines.wheel)}
    return [ours.get(word, word) for word in shlex.split(line)]


class Submitted:
    """A program that runs under spark-submit; what it tells, in order."""

    def __init__(self, machines: Machines, given: dict[str, Any]) -> None:
        self._said = machines.directory / f"{given['stage']}.err"
        self._master = machines.master
        settings = {
            "spark.pyspark.python": machines.python,
            "spark.driver.extraJavaOptions": SMALL_JAVA,
            "spark.executor.extraJavaOptions": SMALL_JAVA,
            "spark.driver.memory": "768m",
            "spark.executor.memory": "512m",
            # Tasks begin when both executors are there, and may run on either.
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{STEP_S:.0f}s",
            "spark.locality.wait": "0",
            # Several batches a task, so that one can be stopped in the middle of a few rows.
            "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        program, *words, _ = readme_command("spark-submit", machines)
        words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(SPARK_HOME / "bin" / program), *words, PROGRAM[0], json.dumps(given)]
        with self._said.open("wb") as errors:
            self.process = subprocess.Popen(
                dying_with_parent(command),
                cwd=machines.directory,
                env={**self._master.environment, "BK_readTimeout": "77"},
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        self._unread = b""
        machines.programs.append(self)

    def fact(self, name: str) -> Any:
        """The next thing that it tells, which must be this."""
        while True:
            while b"\n" not in self._unread:
                data = os.read(self._output, 65536) if self._readable(self._output) else b""
                assert data, f"the program tells no {name}: {self._why()}"
                self._unread += data
            line, _, self._unread = self._unread.partition(b"\n")
            if line.startswith(FACT):
                told, fact = json.loads(line[len(FACT) :])
                assert told == name, f"{told} instead of {name}"
                return fact

    def stopped_at(self, marks: Path) -> int:
        """The process that has come to a fault which hangs."""
        pipe = os.open(marks / "begun", os.O_RDONLY | os.O_NONBLOCK)
        ended = os.pidfd_open(self.process.pid)
        try:
            found, _, _ = select.select([pipe, ended], [], [], STEP_S)
            assert pipe in found, f"no fault in {marks}: {self._why()}"
            # To the end: who told it has closed its own end then, and is not taken for the next one that opens it.
            os.set_blocking(pipe, True)
            told = b"".join(iter(lambda: os.read(pipe, 100), b""))
            return int(told)
        finally:
            os.close(pipe)
            os.close(ended)

    def kill(self) -> None:
        """SIGKILL; returns once it is gone with what it had started."""
        self.process.kill()
        self.process.wait(STEP_S)
        self._end()

    def end(self) -> int:
        """Its exit code."""
        self._end()
        return self.process.wait(STEP_S)

    def close(self) -> None:
        """Whatever it does."""
        with self.process:
            self.process.kill()

    def _end(self) -> None:
        """Read its output until the last process with the pipe has ended."""
        while self._readable(self._output) and os.read(self._output, 65536):
            pass

    @staticmethod
    def _readable(descriptor: int) -> bool:
        return bool(select.select([descriptor], [], [], STEP_S)[0])

    def _why(self) -> str:
        return f"code {self.process.poll()}\n{tail(self._said)}\n{self._master.logs()}"


def marks_in(directory: Path, name: str) -> Path:
    """Where faults leave their marks, with the pipes of those that hang."""
    marks = directory / name
    marks.mkdir()
    for pipe in ("begun", "never"):
        os.mkfifo(marks / pipe)
    return marks


def await_end(pid: int) -> None:
    """Until a process that is not ours has ended."""
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([ended], [], [], STEP_S)[0], f"process {pid} lives on"
    finally:
        os.close(ended)


def nobody_waits(marks: Path) -> bool:
    """Whether no process is left at a fault."""
    try:
        os.close(os.open(marks / "never", os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


def published(cluster: LocalCluster) -> dict[str, str]:
    """A topic of MESSAGES messages; the options that read it."""
    prefix = f"{cluster.root}-hubs"
    settings = {"zk_prefix": prefix, "explicitLacInterval": "20", "max_entries_per_ledger": "100"}
    hub = LocalHub.beside(cluster, 1, {**STEADY_HUB, **settings})
    cluster.start_others([hub])
    with hedwig.blocking.connect(hub.address) as publisher:
        publisher.subscribe("news", "keeper", SubscribeMode.CREATE).close()
        publisher.publish_many("news", [b"message %03d" % number for number in range(MESSAGES)])
    return {"uri": cluster.uri, "zk_prefix": prefix, "subscribe": "news", "startingOffsets": "earliest"}


def written(client: BlockingBookKeeper, count: int) -> int:
    with client.create() as ledger:
        ledger.append_many([b"entry %d of some" % number for number in range(count)])
        return int(ledger.id)


def holder_of(cluster: LocalCluster, client: BlockingBookKeeper, ledger_id: int, entry_id: int) -> LocalBookie:
    """A bookie that has a copy of an entry."""
    ensemble = client.metadata(ledger_id).last_fragment.ensemble
    wanted = ensemble[entry_id % len(ensemble)]
    return next(bookie for bookie in cluster.bookies if bookie.bookie_id == wanted)


@dataclass
class Story:
    """What the programs are told, and where they run."""

    machines: Machines
    cluster: LocalCluster
    client: BlockingBookKeeper
    commits: str
    ledgers: list[int]
    marks: dict[str, Path]
    given: dict[str, Any]

    def program(self, stage: str) -> Submitted:
        """One that begins now."""
        return Submitted(self.machines, {**self.given, "stage": stage})

    def kill_executor_at(self, program: Submitted, marks: str) -> int:
        """SIGKILL for the executor above the task that has come to a fault; the task's process."""
        stopped = program.stopped_at(self.marks[marks])
        os.kill(self.machines.master.executor_above(stopped), signal.SIGKILL)
        return stopped


def begun(machines: Machines, cluster: LocalCluster, client: BlockingBookKeeper, directory: Path) -> Story:
    """Ledgers and a topic are written."""
    ledgers = [written(client, count) for count in SIZES]
    topic = published(cluster)
    marks = {name: marks_in(directory, name) for name in ("batch", "stream")}
    commits = f"{cluster.root}-commits"
    given: dict[str, Any] = {
        "uri": cluster.uri,
        "commits": commits,
        "ledgers": ",".join(map(str, ledgers)),
        "audited": ",".join(map(str, ledgers)),
        "entries_per_trigger": PER_TRIGGER,
        "topic": topic,
        "tables": {"topics": {"zk_prefix": topic["zk_prefix"]}, "segments": {"journal": "/nowhere"}, "bookies": {}},
        "job": JOB,
        "batch_marks": str(marks["batch"]),
        "stream_marks": str(marks["stream"]),
        "checkpoint": str(directory / "checkpoint"),
    }
    return Story(machines, cluster, client, commits, ledgers, marks, given)


def check_tasks(machines: Machines, tasks: list[dict[str, Any]]) -> None:
    """They run on both machines, and have nothing of the driver but its options."""
    assert len({machines.master.executor_above(task["pid"]) for task in tasks}) == 2
    for task in tasks:
        assert Path(task["directory"]).is_relative_to(machines.directory.parent / "machines")
        assert not [name for name in task["environment"] if name.startswith("BK_")]
        assert task["python"] == str(machines.python)
        assert f"{machines.wheel.stem}.zip/bookkeeper/" in task["package"]


def check_read(program: Submitted) -> None:
    """What tasks read is what was written, and what other packages add to the tables comes with the wheel."""
    payload = sum(len(b"entry %d of some" % number) for count in SIZES for number in range(count))
    assert program.fact("read") == [TOTAL, payload, TOTAL]
    tables = program.fact("tables")
    assert (tables["topics"], tables["bookies"]) == ([1], [3])
    assert "was never formatted" in tables["segments"]
    told = program.fact("help")
    assert all(name in told for name in ("topics", "subscriptions", "hubs", "segments"))
    assert program.fact("topic") == [MESSAGES, MESSAGES, MESSAGES * len(b"message 000")]


def work_among_kills(story: Story) -> None:
    """A batch write and a stream, while executors and the program are killed in the middle."""
    program = story.program("work")
    check_tasks(story.machines, program.fact("tasks"))
    check_read(program)

    # An executor is killed in the middle of a batch write: its task is tried again.
    story.kill_executor_at(program, "batch")
    assert program.fact("written")
    assert commit_of_job(story.cluster.uri, JOB, commit_path=story.commits).entries == TOTAL

    # Another one in the middle of a stream; then the program, when a commit took effect and Spark does not know it.
    stopped = story.kill_executor_at(program, "stream")
    committer = program.stopped_at(story.marks["stream"])
    program.kill()
    await_end(stopped)
    await_end(committer)
    assert nobody_waits(story.marks["batch"])
    assert nobody_waits(story.marks["stream"])


def go_on(story: Story) -> str:
    """From its checkpoint the stream goes on where it was; an audit by the same program finds a copy that went bad."""
    rows = [f"{ledger}:{entry}" for ledger, count in zip(story.ledgers, SIZES, strict=True) for entry in range(count)]
    copied = [TOTAL, TOTAL, sum(map(len, rows))]
    program = story.program("rest")
    query = str(program.fact("query"))
    assert program.fact("batch") == copied
    assert program.fact("stream") == copied
    assert program.fact("audit") == [story.machines.master.url, 4]
    assert program.end() == 0
    commits = commits_of_query(story.cluster.uri, query, commit_path=story.commits)
    assert [commit.batch for commit in commits] == [0, 1, 2]
    return query


def check_leftovers(story: Story, query: str) -> None:
    """What the killed executors had begun is all that is left, and the sweep deletes it."""
    uri, commits = story.cluster.uri, story.commits
    named = named_by(story.cluster, commits, query)
    named |= {each.ledger_id for each in commit_of_job(uri, JOB, commit_path=commits).ledgers}
    orphans = sweep(uri, commit_path=commits, dry_run=True).orphans
    assert [each.fate for each in orphans] == [Fate.SUPERSEDED] * 2
    assert ledgers_of(story.client, commits) == named | {each.ledger_id for each in orphans}
    check_nothing_is_left(story.cluster, story.client, commits, named)


def check_command(story: Story, victim: LocalBookie) -> None:
    """The command of an installation, on the same machines: their tasks have neither its file nor its package."""
    machines = story.machines
    (machines.directory / "client.conf").write_text(f"metadataServiceUri={story.cluster.uri}\nreadTimeout=20\n")
    program_name, *words = readme_command("bookkeeper", machines)
    assert (program_name, words[:2]) == ("bookkeeper", ["spark", "audit"])
    done = subprocess.run(
        [sys.executable, "-m", "bookkeeper.cli.main", *words, "--json", "--ledgers", str(story.given["audited"])],
        cwd=machines.directory,
        env={**machines.master.environment, "PYSPARK_PYTHON": str(machines.python), "JDK_JAVA_OPTIONS": SMALL_JAVA},
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    assert done.returncode == 4, done.stderr + machines.master.logs()
    audited = json.loads(done.stdout)
    assert (list(audited["found"]), audited["entries"], audited["copies"]) == (["bad"], TOTAL, 2 * TOTAL)
    found = audited["findings"]  # the bookie refuses a page of its log as a whole, of whichever ledger
    assert {(each["bookie"], each["good_copies"]) for each in found} == {(victim.bookie_id, 1)}
    found = [each for each in found if each["ledger_id"] == story.ledgers[0]]
    assert any(each["first_entry_id"] <= DAMAGED <= each["last_entry_id"] for each in found)


def test_on_two_machines_tasks_go_by_options_and_each_row_is_written_once_whoever_is_killed(
    machines: Machines, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    story = begun(machines, cluster, client, tmp_path)
    work_among_kills(story)
    victim = holder_of(cluster, client, story.ledgers[0], DAMAGED)
    change_a_byte(victim, b"entry %d" % DAMAGED)
    query = go_on(story)
    check_leftovers(story, query)
    check_command(story, victim)
