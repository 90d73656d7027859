"""Hadoop 2's journal manager on ledgers, step by step: ledgers by the genuine client of 4.2.3, znodes byte by byte.

Maven Central does not have its jar, so its steps are made here as they are recorded of a genuine one, and shared with
nothing of ours: texts are compared with the recorded ones, records are told apart by their lengths alone. Whatever it
finds that the genuine one did not write, or would refuse, is an error.

Source: journalmgr/FORMATS.md 2.1 to 2.5, 3.4, 3.6, 3.7 (what Hadoop does differently), 11.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.apache import ApacheClient
from tests.support.apache.content import fingerprints

HOSTNAME = "vm/127.0.0.1"
LAYOUT_VERSION = -63
_RECORD_HEAD = struct.Struct(">BIq")
_UNCOUNTED = 5  # of a record's bytes its length leaves out opcode and itself
_SEGMENT = re.compile(
    rb"dataLayoutVersion: -63\nledgerId: ([0-9]+)\nfirstTxId: ([0-9]+)\n(?:lastTxId: ([0-9]+)\n)?", re.ASCII
)
_CURRENT = re.compile(rb'path: "([^"\\]+)"\nhostname: "[^"\\]+"\n')
_MAX_TXID = re.compile(rb"txId: ([0-9]+)\n")


class Refused(Exception):
    """What the genuine journal manager answers with an IOException."""


def txids(entry: bytes) -> list[int]:
    """Of the records in an entry, which holds whole ones and nothing else."""
    found, position = [], 0
    while position < len(entry):
        _, length, txid = _RECORD_HEAD.unpack_from(entry, position)
        found.append(txid)
        position += length + _UNCOUNTED
    assert position == len(entry), "the last record goes on behind the end of its entry"
    return found


@dataclass(frozen=True, slots=True)
class RecordedSegment:
    """A segment's znode, whose text is exactly what the genuine one writes."""

    name: str
    ledger_id: int
    first_txid: int
    last_txid: int | None
    version: int


class Bkjm:
    """A genuine journal manager's turns on one journal. Blocking.

    ledgers: the URI of the cluster; where the genuine client of 4.2.3 has its ledgers.
    """

    def __init__(
        self, client: ApacheClient, zookeeper: KazooClient, ledgers: str, root: str, password: str = ""
    ) -> None:
        self._client, self._zookeeper, self._root = client, zookeeper, root
        self._where = (ledgers, 2, "MAC", password or "-")
        self._ledger: str | None = None

    # --- its znodes

    @property
    def root(self) -> str:
        """The journal's."""
        return self._root

    @property
    def current_path(self) -> str:
        """Of the pointer to the segment that is being written."""
        return f"{self._root}/CurrentInprogress"

    def path_of(self, name: str) -> str:
        """Of a segment's znode."""
        return f"{self._root}/ledgers/{name}"

    def segments(self) -> list[RecordedSegment]:
        """All of them by first txid, each text being exactly as the genuine one prints it."""
        names = self._zookeeper.get_children(f"{self._root}/ledgers")
        return sorted((self.segment(name) for name in names), key=lambda segment: segment.first_txid)

    def segment(self, name: str) -> RecordedSegment:
        """One of them."""
        data, stat = self._zookeeper.get(self.path_of(name))
        parts = _SEGMENT.fullmatch(data)
        assert parts is not None, f"{name} holds {data!r}"
        ledger_id, first = int(parts[1]), int(parts[2])
        last = None if parts[3] is None else int(parts[3])
        assert name == (f"inprogress_{first:x}" if last is None else f"edits_{first:018d}_{last:018d}")
        return RecordedSegment(name, ledger_id, first, last, stat.version)

    def max_txid(self) -> int:
        """The greatest txid seen; 0 before the first."""
        try:
            data, _ = self._zookeeper.get(f"{self._root}/maxtxid")
        except NoNodeError:
            return 0
        parts = _MAX_TXID.fullmatch(data)
        assert parts is not None, f"maxtxid holds {data!r}"
        return int(parts[1])

    def _store_max_txid(self, txid: int) -> None:
        if txid <= self.max_txid():
            return
        path, data = f"{self._root}/maxtxid", b"txId: %d\n" % txid
        stat = self._zookeeper.exists(path)
        if stat is None:
            self._zookeeper.create(path, data)
        else:
            self._zookeeper.set(path, data, stat.version)

    def current(self) -> tuple[str | None, int]:
        """The path that the pointer names, None where it holds null data, and the version to change it by."""
        if self._zookeeper.exists(self.current_path) is None:
            self._zookeeper.create(self.current_path, None)
        data, stat = self._zookeeper.get(self.current_path)
        if data is None:
            return None, stat.version
        parts = _CURRENT.fullmatch(data)
        if parts is None:  # b"" too, which is not null
            raise Refused(f"Invalid/Incomplete data in znode: {data!r}")
        return parts[1].decode(), stat.version

    def _clear_current(self, path: str) -> None:
        current, version = self.current()
        if current == path:
            self._zookeeper.set(self.current_path, None, version)

    # --- its operations

    def format(self, version: str) -> None:
        """Make an empty journal. version: the text that says whose."""
        self._zookeeper.create(self._root, b"0")
        self._zookeeper.create(f"{self._root}/version", version.encode())
        self._zookeeper.create(f"{self._root}/ledgers", b"0")

    def start(self, first_txid: int) -> int:
        """Begin a segment; its ledger's id."""
        if first_txid <= self.max_txid():
            raise Refused(f"We've already seen {first_txid}")
        current, version = self.current()
        if current is not None and self._zookeeper.exists(current) is not None:
            raise Refused("Inprogress node already exists")
        (self._ledger,) = self._client.run("begin", *self._where, 3, 2, 2, 0)
        path = self.path_of(f"inprogress_{first_txid:x}")
        text = f"dataLayoutVersion: {LAYOUT_VERSION}\nledgerId: {self._ledger}\nfirstTxId: {first_txid}\n"
        self._zookeeper.create(path, text.encode())
        self._store_max_txid(first_txid)
        pointer = f'path: "{path}"\nhostname: "{HOSTNAME}"\n'
        self._zookeeper.set(self.current_path, pointer.encode(), version)
        return int(self._ledger)

    def add(self, *entries: bytes) -> int:
        """Write entries to the segment, each acknowledged before the next; the last one's id. Raises ApacheError."""
        (last,) = self._client.run("putbytes", self._ledger, *(entry.hex() for entry in entries))
        return int(last)

    def finalise(self, first_txid: int, last_txid: int) -> None:
        """End the segment that it writes."""
        self._client.run("close", self._ledger)
        self._ledger = None
        self._finalise(self.segment(f"inprogress_{first_txid:x}"), last_txid)

    def _finalise(self, segment: RecordedSegment, last_txid: int) -> None:
        text = (
            f"dataLayoutVersion: {LAYOUT_VERSION}\nledgerId: {segment.ledger_id}\n"
            f"firstTxId: {segment.first_txid}\nlastTxId: {last_txid}\n"
        )
        self._zookeeper.create(self.path_of(f"edits_{segment.first_txid:018d}_{last_txid:018d}"), text.encode())
        self._store_max_txid(last_txid)
        self._zookeeper.delete(self.path_of(segment.name), segment.version)
        self._clear_current(self.path_of(segment.name))

    def recover(self) -> list[int]:
        """Fence and finalise what is in progress, or remove it where it is empty; the last txids of the finalised."""
        ends = []
        for segment in self.segments():
            if segment.last_txid is not None:
                continue
            entries = self.entries(segment.ledger_id)
            if entries:
                ends.append(txids(entries[-1])[-1])
                self._finalise(segment, ends[-1])
            else:
                self._remove_empty(segment)
        return ends

    def _remove_empty(self, segment: RecordedSegment) -> None:
        """Its ledger stays, and so does the pointer to it."""
        if self.max_txid() == segment.first_txid:
            self._zookeeper.set(f"{self._root}/maxtxid", b"txId: %d\n" % (segment.first_txid - 1))
        self._zookeeper.delete(self.path_of(segment.name))

    # --- its ledgers

    def entries(self, ledger_id: int) -> list[bytes]:
        """Open with recovery, which fences whoever writes; the entries."""
        return [bytes.fromhex(line) for line in self._client.run("dump", *self._where, ledger_id)]

    def holds(self, ledger_id: int, entries: Sequence[bytes]) -> bool:
        """The same for large entries: whether these are all."""
        return self._client.run("hashes", *self._where, ledger_id) == fingerprints(entries)

    def confirmed(self, ledger_id: int) -> list[str]:
        """Open without recovery; fingerprints of the entries that are confirmed now."""
        return self._client.run("peek", *self._where, ledger_id)

    def watch(self, ledger_id: int) -> int:
        """Open without recovery and keep it open; the LAC."""
        (lac,) = self._client.run("watch", *self._where, ledger_id)
        return int(lac)

    def lac(self, ledger_id: int) -> int:
        """Of a ledger that is watched."""
        (lac,) = self._client.run("lac", ledger_id)
        return int(lac)
