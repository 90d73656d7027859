"""Genuine Hadoop in one Java process, for as many commands as a module has. See tests/interop/java/hadoop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.hadoop.fetched import PACKAGE, Hadoop
from tests.support.java_programs import Driver


class ToldOp(NamedTuple):
    """A transaction as Hadoop read it. name: with OP_ before it. fields: by the names they have there.

    offset, end: where it begins in the file, and just behind it.
    """

    name: str
    txid: int
    offset: int
    end: int
    fields: dict[str, Any]


class Reading(NamedTuple):
    """What Hadoop read of a file. error: why it ended early, or None."""

    layout_version: int
    ops: list[ToldOp]
    error: str | None


class HadoopTool(Driver):
    """One Java process with all of Hadoop that we need. A context manager."""

    def __init__(self, hadoop: Hadoop, log_path: Path) -> None:
        """Start it. log_path: where its standard error goes."""
        super().__init__(hadoop.command(f"{PACKAGE}.HadoopTool"), log_path, "Hadoop")

    def view(self, processor: str, source: Path, target: Path) -> bytes:
        """What its OfflineEditsViewer writes: xml, binary (which takes XML), stats. Raises CommandFailed."""
        self.run("view", processor, source, target)
        return target.read_bytes()

    def view_image(self, source: Path, target: Path) -> str:
        """What its OfflineImageViewer writes of an image: XML. Raises CommandFailed."""
        self.run("image", source, target)
        return target.read_text("utf-8")

    def read(self, path: Path) -> Reading:
        """The transactions of an edits file, up to its end or to where reading breaks."""
        layout_version, *lines = self.run("read", path)
        told = [json.loads(line) for line in lines]
        error = told.pop()["error"] if told and "error" in told[-1] else None
        return Reading(int(layout_version), [ToldOp(**values) for values in told], error)

    def samples(self, path: Path, seed: int, rounds: int) -> Path:
        """An edits file with each operation that Hadoop can write, `rounds` times, with values made from the seed."""
        self.run("samples", path, seed, rounds)
        return path

    def cluster_edits(self, directory: Path) -> Path:
        """The edits that Hadoop's own test of the viewer makes on a cluster, with DataNode and clients."""
        (path,) = self.run("cluster", directory)
        return Path(path)

    def merge_text(self, message: str, text: bytes) -> bytes:
        """What the text of a journal's znode says, as binary protobuf. Raises CommandFailed."""
        return bytes.fromhex(self.run("merge", message, text.hex())[0])

    def print_text(self, message: str, wire: bytes) -> bytes:
        """The text that Hadoop's journal manager writes for a message that is given as binary protobuf."""
        return bytes.fromhex(self.run("print", message, wire.hex())[0])

    def use_web(self, address: str) -> Any:
        """Run Hadoop's WebHDFS client against the name node at host:port; return what it saw (see WebClient.java)."""
        (line,) = self.run("web", address)
        return json.loads(line)

    def format(self, directory: Path) -> None:
        """Make a name directory."""
        self.run("format", directory)

    def start(self, directory: Path) -> int:
        """Run a NameNode on a name directory, instead of the one that runs; the last txid that it loaded."""
        (answer,) = self.run("start", directory)
        _port, txid = answer.split()
        return int(txid)

    def stop(self) -> None:
        """Stop the NameNode, if one runs."""
        self.run("stop")

    def tree(self, path: str = "/") -> dict[str, dict[str, Any]]:
        """What the NameNode serves there and below, by path."""
        return {entry.pop("path"): entry for entry in map(json.loads, self.run("tree", path))}

    def fs(self, operation: str, *arguments: object) -> list[str]:
        """An operation of a client of the NameNode."""
        return self.run("fs", operation, *arguments)
