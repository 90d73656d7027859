"""A stand-alone Spark master with two workers, as processes of this machine that share nothing with who uses them.

    with SparkMaster(directory) as master:
        master.url                        spark://127.0.0.1:PORT
        master.executor_above(pid)        the executor that a task's process belongs to, for SIGKILL

Master and workers have an environment of their own (none of ours) and other working directories. For executors there
is the Python of `bare_python`: the third-party packages, and not this project. Workers have one task slot and 1 GiB
each, so an application has two executors, one below each worker.

    <directory>/master/, worker-1/, worker-2/     working directories
    <directory>/worker-<n>/work/                  of its executors: <application>/<number>/stderr
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import TracebackType

import pyspark

from bookkeeper.embedded.java import find_java
from bookkeeper.embedded.process import dying_with_parent
from bookkeeper.spark.environment import adapted_home, has_vector_module
from tests.support.process_output import await_output, tail
from tests.support.spark import SMALL_JAVA

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
BUILD_TIMEOUT_S = 120

_MASTER = re.compile(rb"Starting Spark master at (spark://\S+)")
_ELECTED = re.compile(rb"I have been elected leader")
_REGISTERED = re.compile(rb"Successfully registered with master")


def build_wheel(directory: Path) -> Path:
    """The wheel of this project, built from a copy of its files with what is installed (no download).

    setuptools comes with grpcio-tools.
    """
    source = directory / "source"
    for package in ("bookkeeper", "hedwig", "journalmgr"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / file, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(directory), str(source)]
    subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S)
    [wheel] = directory.glob("*.whl")
    return wheel


def bare_python(directory: Path) -> Path:
    """An interpreter that has what is installed here, but not this project."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    packages = directory / "packages"
    packages.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if "pybookkeeper" not in each.name and each.suffix != ".pth":
            (packages / each.name).symlink_to(each)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (directory / "lib" / version / "site-packages" / "packages.pth").write_text(f"{packages}\n")
    return directory / "bin" / "python"


class SparkMaster:
    """See above. java_home is one that Spark starts on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        java = find_java()
        self.java_home = java.home if has_vector_module(java) else adapted_home(java, directory / "java")
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What a program that uses Spark needs, and no more: nothing of ours."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self._directory),
            "LANG": "C.UTF-8",
            "JAVA_HOME": str(self.java_home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._directory / "scratch"),
        }

    def start(self) -> None:
        """Return once both workers are registered."""
        self._directory.mkdir(parents=True, exist_ok=True)
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master, log = self._start("master", "Master", *at)
        self._await(master, log, _ELECTED)
        found = _MASTER.search(log.read_bytes())
        assert found is not None, tail(log)
        self.url = found[1].decode()
        room = ["--cores", "1", "--memory", "1g"]
        started = [self._start(f"worker-{number}", "Worker", *at, *room, self.url) for number in range(1, WORKERS + 1)]
        self._workers = [worker for worker, _ in started]
        for worker, log in started:
            self._await(worker, log, _REGISTERED)

    def _start(self, name: str, kind: str, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        directory = self._directory / name
        directory.mkdir()
        log = directory / "log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *words]
        environment = {
            **self.environment,
            "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                dying_with_parent(command), cwd=directory, env=environment, stdout=output, stderr=output
            )
        self._processes.append(process)
        return process, log

    @staticmethod
    def _await(process: subprocess.Popen[bytes], log: Path, pattern: re.Pattern[bytes]) -> None:
        why = await_output(process, log, pattern, timeout_s=START_TIMEOUT_S)
        assert why is None, f"{log}: {why}\n{tail(log)}"

    def executor_above(self, pid: int) -> int:
        """The executor that runs a task's process: its ancestor below one of our workers."""
        workers = {worker.pid for worker in self._workers}
        while (parent := parent_of(pid)) not in workers:
            assert parent > 1, f"process {pid} is no task of our workers"
            pid = parent
        return pid

    def logs(self) -> str:
        """The ends of what master, workers and executors said."""
        found = sorted(self._directory.rglob("log")) + sorted(self._directory.rglob("stderr"))
        return "\n".join(f"--- {path}\n{tail(path)}" for path in found)

    def stop(self) -> None:
        """Executors end with their workers."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> SparkMaster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def parent_of(pid: int) -> int:
    """The parent of a process, 0 for one that is gone."""
    with contextlib.suppress(FileNotFoundError):
        # The name in brackets may hold anything.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
