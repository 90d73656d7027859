"""The README's blocks are run as a newcomer would: in order, in one directory, against the cluster that it starts.

Conventions, all visible in the README:
    ```bash, ```python                    is run; a failing command fails the test
    ```text right after a block           is exactly what that block prints on standard output
    # takes minutes       (first line)    is not run here: `make -n` must know its targets
    # runs until Ctrl-C   (first line)    runs in the background until the end, which is SIGINT and exit code 0
    # file: NAME          (first line)    is saved under NAME; a later block runs it, or the test of its subject

The only change: the embedded ZooKeeper, the bookies and the hub take free ports, as the machine may use the usual ones.
The directory holds links to the repository's files, so nothing is left behind in it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.embedded.process import free_port
from tests.support.process_output import await_output

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SLOW, BACKGROUND, SAVED = "# takes minutes", "# runs until Ctrl-C", "# file: "
BLOCK_TIMEOUT_S = 600
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 120
UP = re.compile(rb"Ctrl-C stops everything")

pytestmark = pytest.mark.timeout(1800)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `output` is what it must print, None when the README does not say."""

    line: int
    language: str
    text: str
    output: str | None

    @property
    def head(self) -> str:
        return self.text.split("\n", 1)[0]


def blocks_of(readme: str) -> list[Block]:
    """All blocks in order; a `text` block that follows another directly becomes its expected output."""
    blocks: list[Block] = []
    end = 0
    for match in FENCE.finditer(readme):
        language, text = match.groups()
        line = readme.count("\n", 0, match.start()) + 1
        if language == "text":
            assert blocks, f"README line {line}: output of which block?"
            assert readme[end : match.start()] == "\n", f"README line {line}: output must follow its block directly"
            last = blocks.pop()
            blocks.append(Block(last.line, last.language, last.text, text))
        else:
            blocks.append(Block(line, language, text, None))
        end = match.end()
    return blocks


class Newcomer:
    """A directory in which blocks are run one after the other, and what they started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.hub_port = free_port(), free_port()
        self.ports = Ports()
        for path in ROOT.iterdir():
            if path.name != ".venv":
                (directory / path.name).symlink_to(path)
        (directory / ".venv").symlink_to(sys.prefix)
        self.background: list[subprocess.Popen[bytes]] = []
        known = {key: value for key, value in os.environ.items() if not key.startswith(("BK_", "HW_"))}
        self._environment = {
            **known,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{known['PATH']}",
            "BK_metadataServiceUri": f"zk://127.0.0.1:{self.port}/ledgers",
            "HW_zk_host": f"127.0.0.1:{self.port}",
        }
        self._of_clients = {"HW_default_server_host": f"localhost:{self.hub_port}"}  # a key that hubs do not know

    def adapted(self, text: str) -> str:
        """The block with ports that are free on this machine."""
        text = text.replace("127.0.0.1:2181", f"127.0.0.1:{self.port}")
        text = text.replace("localhost:4080", f"localhost:{self.hub_port}")
        text = re.sub(r"127\.0\.0\.1:(987[01])", lambda found: f"127.0.0.1:{self.ports[found[1]]}", text)
        text = re.sub(r"\b(4081|9877|2182|8204|8211)\b", lambda found: self.ports[found[1]], text)
        text = re.sub(r"(?<=Port=)(320|820)(?=\$n)", lambda found: self.ports[found[1]], text)
        text = re.sub(r"127\.0\.0\.1:(820)1", lambda found: f"127.0.0.1:{self.ports[found[1]]}1", text)
        text = re.sub(r"(?m)^bookiePort=(\d+)$", lambda found: f"bookiePort={self.ports[found[1]]}", text)
        text = text.replace(" --hub\n", f" --hub --hub-port {self.hub_port}\n")
        return re.sub(r"(bookkeeper localbookie \d+)", rf"\1 --zookeeper-port {self.port} --port 0", text)

    def run(self, block: Block) -> str:
        """Run a block to its end and return what it printed."""
        text = self.adapted(block.text)
        command = ["bash", "-e", "-c", text] if block.language == "bash" else [sys.executable, "-c", text]
        done = subprocess.run(
            command,
            cwd=self.directory,
            env={**self._environment, **self._of_clients},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"README line {block.line}: code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, block: Block) -> None:
        """Start a block that goes on until Ctrl-C; return once it says how to reach what it started."""
        output = self.directory / f"background-{block.line}.txt"
        with output.open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-e", "-c", self.adapted(block.text).replace("bookkeeper local", "exec bookkeeper local")],
                cwd=self.directory, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )  # fmt: skip
        self.background.append(process)
        why = await_output(process, output, UP, timeout_s=START_TIMEOUT_S)
        assert why is None, f"README line {block.line}: {why}\n{output.read_text()}"

    def stop(self) -> list[int]:
        """Ctrl-C for everything in the background; their exit codes."""
        for process in self.background:
            process.send_signal(signal.SIGINT)
        codes = [process.wait(STOP_TIMEOUT_S) for process in self.background]
        self.background.clear()
        return codes


class Ports(dict[str, str]):
    """Free ports, by the ports of the README. A port is chosen when a block first names it, just before it is used.

    For a port without its last digit, which is the number of a bookie, the ports with the digits 1 to 3 are free.
    """

    def __missing__(self, documented: str) -> str:
        found = str(free_port())
        if len(documented) == 3:
            while not self._are_free(found[:-1]):
                found = str(free_port())
            found = found[:-1]
        self[documented] = found
        return found

    def _are_free(self, tens: str) -> bool:
        neighbours = [f"{tens}{digit}" for digit in (1, 2, 3)]
        return tens not in self.values() and all(
            each not in self.values() and _is_free(int(each)) for each in neighbours
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    newcomer = Newcomer(tmp_path)
    yield newcomer
    for process in newcomer.background:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


def make_targets_exist(block: Block) -> None:
    """`make -n` knows every target that the block names."""
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "make", f"README line {block.line}: only make may take minutes: {line}"
            done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


def test_every_block_of_the_readme_does_what_it_says(newcomer: Newcomer) -> None:
    kinds = set()
    for block in blocks_of(README.read_text()):
        kinds.add(block.language)
        if block.head == SLOW:
            make_targets_exist(block)
        elif block.head == BACKGROUND:
            newcomer.start(block)
        elif block.head.startswith(SAVED):
            (newcomer.directory / block.head.removeprefix(SAVED)).write_text(newcomer.adapted(block.text))
        else:
            printed = newcomer.run(block)
            if block.output is not None:
                assert printed == block.output, f"README line {block.line}"
    assert kinds == {"bash", "python"}
    assert newcomer.stop() == [0]


def test_the_first_screen_starts_a_cluster_and_writes_a_ledger() -> None:
    """One screen is taken as 60 lines of the file."""
    blocks = blocks_of(README.read_text())
    written = next(block for block in blocks if "ledger write" in block.text)
    started = next(block for block in blocks if "localbookie" in block.text)
    assert started.line < written.line < 60


def test_the_faces_are_shown_in_about_ten_lines_each() -> None:
    programs = [block for block in blocks_of(README.read_text()) if block.language == "python"][:3]
    assert [sum(bool(line.strip()) for line in program.text.splitlines()) <= 12 for program in programs] == [True] * 3


def test_links_of_the_readme_lead_somewhere() -> None:
    text = README.read_text()
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors
        else:
            assert (ROOT / target).exists(), target
