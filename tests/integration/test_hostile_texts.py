"""Control characters in every text that a peer or a znode supplies, through every command that shows it.

The cluster consists of metadata only: no bookie and no hub runs. A znode's name may contain all that ZooKeeper allows
(U+202E, but no C0 and C1 controls). The content of a znode and the answer of a hub may contain any bytes.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from bookkeeper.cli.main import main as bookkeeper_main
from bookkeeper.metadata.bookies.service_info import format_service_info
from bookkeeper.metadata.ledgers.codec import format_ledger
from bookkeeper.metadata.ledgers.paths import hierarchical_path
from bookkeeper.metadata.underreplication.format import format_lock, format_mark, format_vote, leaf_name, mark_path
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess, format_process, node_name
from bookkeeper.model import (
    BookieId,
    BookieServiceInfo,
    DigestType,
    Endpoint,
    Fragment,
    LedgerId,
    LedgerMetadata,
    LedgerState,
)
from hedwig.cli.main import main as hedwig_main
from hedwig.model import LocalId, MessageId, Preferences, Status, Subscription
from hedwig.wire.framing import FRAME_SIZE_MAX_CLIENT, FrameDecoder
from hedwig.wire.records import encode_layout, encode_subscription
from hedwig.wire.requests import Publishes, decode_request
from hedwig.wire.responses import error_frame
from tests.support.in_process import run_here

pytestmark = pytest.mark.timeout(180)

CONTENT = "x\x1b]0;title\x07\x1b[2J\x9b2J\x7f\r\nforged: line\t\u202e\u2066\u061c\u200e\u2028y"
NAME = "x\u202e\u2066\u061c\u200ey"
"""Hostile text that the name of a znode may contain."""
LEDGER = LedgerId(7)


class Region:
    """A cluster with hostile texts in its records, and the programs that run on it."""

    def __init__(self, address: str, root: str) -> None:
        self.uri, self.root, self.hubs = f"zk+hierarchical://{address}{root}", root, f"{root}-hubs"
        self.environment = {**os.environ, "HW_metadataServiceUri": self.uri, "HW_zk_prefix": self.hubs}

    def bookkeeper(self, *words: str) -> str:
        return self._run(bookkeeper_main, *words, "--uri", self.uri)

    def shell(self, *words: str) -> str:
        return self._run(bookkeeper_main, "shell", "--uri", self.uri, *words)

    def hedwig(self, *words: str, data: bytes = b"") -> str:
        return self._run(hedwig_main, *words, data=data)

    def _run(self, main: Any, *words: str, data: bytes = b"") -> str:
        _, out, err = run_here(main, words, self.environment, data)
        return out.decode() + err


@pytest.fixture(scope="module")
def region(zookeeper: Any) -> Iterator[Region]:
    root = f"/hostile-{os.getpid()}-{os.urandom(3).hex()}"
    region = Region(zookeeper.address, root)
    region.shell("initnewcluster")
    session = KazooClient(zookeeper.address)
    session.start()
    try:
        for path, data in znodes().items():
            session.ensure_path(f"{root}/{path}")
            session.set(f"{root}/{path}", data)
        topics = f"{region.hubs}/standalone/topics"
        records = {
            f"{region.hubs}/standalone/managers/METADATA/LAYOUT": encode_layout(),
            f"{region.hubs}/standalone/hosts/{NAME}:1:2": b"\xff",
            f"{topics}/{NAME}/hub": f'hostname: "{octal(CONTENT)}:4080" czxid: 1'.encode(),
            f"{topics}/{NAME}/subscribers/{NAME}": encode_subscription(
                Subscription(MessageId(LocalId(3)), Preferences(options={CONTENT: CONTENT.encode()}))
            ),
            f"{topics}/{NAME}/subscribers/unreadable": CONTENT.encode(),
            f"{topics}/unreadable/ledgers": CONTENT.encode(),
        }
        for path, data in records.items():
            session.ensure_path(path)
            session.set(path, data)
        yield region
    finally:
        session.stop()
        session.close()


def octal(text: str) -> str:
    """Return the bytes of a text, escaped as in protobuf's text format."""
    return "".join(f"\\{byte:03o}" for byte in text.encode())


COOKIE = f'''5
bookieHost: "{octal(CONTENT)}"
journalDir: "{octal(CONTENT)}"
ledgerDirs: "1\\t/l"
'''


def znodes() -> dict[str, bytes]:
    member = BookieId(CONTENT)
    ledger = LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        state=LedgerState.OPEN,
        fragments=(Fragment(0, (member,)),),
        digest_type=DigestType.CRC32C,
        password=b"",
        custom={CONTENT: CONTENT.encode("latin-1", "backslashreplace")},
    )
    info = BookieServiceInfo((Endpoint(CONTENT, CONTENT, 3181, CONTENT, (CONTENT,), ()),), {CONTENT: CONTENT})
    process = RecoveryProcess("h", 7, 5, BookieId(CONTENT), (CONTENT, 8080))
    tree = "underreplication"
    return {
        hierarchical_path(LEDGER)[1:]: format_ledger(ledger),
        f"stray{NAME}": b"",
        f"available/{NAME}": CONTENT.encode(),
        "available/endpoint:1": format_service_info(info),
        f"cookies/{NAME}": CONTENT.encode(),
        "cookies/said:1": COOKIE.encode(),
        f"{tree}/ledgers{mark_path(LEDGER)}": format_mark([BookieId(CONTENT)], 5),
        f"{tree}/locks/{leaf_name(LEDGER)}": format_lock(CONTENT),
        f"{tree}/auditorelection/V_0000000000": format_vote(BookieId(CONTENT)),
        f"{tree}/workers/{node_name(process)}": format_process(process),
        f"{tree}/lostBookieRecoveryDelay": CONTENT.encode(),
        "INSTANCEID": CONTENT.encode(),
    }


SHELL = [
    "clusterinfo",
    "listbookies",
    "listbookies -a -h",
    "bookieinfo",
    "listledgers -meta",
    "ledgermetadata -l 7",
    "listunderreplicated -pmr -prw",
    "whoisauditor",
    "queryautorecoverystatus",
    "whatisinstanceid",
    "lostbookierecoverydelay -g",
    "cookie_get said:1",
    f"cookie_get {NAME}",
    "readledger -l 7",
    "recover -q nobody:1",
]
BOOKKEEPER = ["ledger list", "ledger list --long", "ledger show 7", "ledger read 7", "why ledger 7", "metadata check"]
HEDWIG = [
    "topics",
    "topics --long",
    "subscriptions",
    f"describe {NAME}",
    "describe unreadable",
    "hubs",
    f"readtopic {NAME}",
]


def assert_shown(text: str, words: str) -> None:
    for line in text.splitlines(keepends=True):
        assert line.removesuffix("\n").replace("\t", "").isprintable(), (words, line)
    assert not [line for line in text.splitlines() if line.startswith("forged")], (words, text)


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_command_of_bookkeeper_prints_a_control_character(region: Region, as_json: bool) -> None:
    shown = 0
    for words in [*(f"shell {each}" for each in SHELL), *BOOKKEEPER]:
        run = region.shell if words.startswith("shell ") else region.bookkeeper
        text = run(*words.removeprefix("shell ").split(" "), *["--json"] * as_json)
        assert_shown(text, words)
        shown += "u202e" in text
    assert shown >= 15, "the texts are shown, escaped"


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_command_of_hedwig_prints_a_control_character(region: Region, as_json: bool) -> None:
    for words in HEDWIG:
        text = region.hedwig(*words.split(" "), *["--json"] * as_json)
        assert_shown(text, words)
        assert "u202e" in text or "unreadable" in words, (words, text)


def test_json_keeps_the_meaning_of_what_it_escapes(region: Region) -> None:
    document = json.loads(region.bookkeeper("ledger", "show", "7", "--json"))
    assert document["fragments"][0]["ensemble"] == [CONTENT]
    assert json.loads(region.hedwig("topics", "--json").splitlines()[0])["topic"] in (NAME, "unreadable")


def test_the_text_of_a_hub_s_refusal_is_escaped(region: Region) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        hub = threading.Thread(target=_refuse, args=(server,))
        hub.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        text = region.hedwig("pub", "news", "--hub", address, "-m", "x")
        hub.join(60)
    assert_shown(text, "pub")
    assert "u202e" in text


def _refuse(server: socket.socket) -> None:
    """Refuse the first request of the first connection."""
    connection, _ = server.accept()
    decoder = FrameDecoder(FRAME_SIZE_MAX_CLIENT)
    with connection:
        frames: list[Any] = []
        while not frames:
            frames = list(decoder.receive(connection.recv(1 << 16)))
        request = decode_request(frames[0])
        assert isinstance(request, Publishes)
        connection.sendall(error_frame(request.txn_ids[0], Status.UNEXPECTED_CONDITION, CONTENT))
        connection.recv(1 << 16)  # until the client has read it
