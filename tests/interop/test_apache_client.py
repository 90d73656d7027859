"""The genuine clients of three releases against our bookies, and beside our client on the same ledgers.

One cluster serves all tests, and one Java process each release; each test makes ledgers of its own. Entries are
"entry-0", ... What every pair of client and bookies writes and reads is in test_matrix.py; this is what one client does
to the other's ledgers. All of it in metadata and with a digest that the oldest release has.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingWriteHandle, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import LedgerFencedOff, NoSuchLedger
from bookkeeper.model import DigestType
from tests.interop.ground import REQUEST_TIMEOUT_S
from tests.support.apache import CLASSIC, RELEASES, ApacheClient, ApacheError, Release

PASSWORD = "pass-word"
CODE_WRONG_PASSWORD = -102
CODE_FENCED = -101
CODE_NO_SUCH_LEDGER = -25
CODE_NO_SUCH_LEDGER_CLASSIC = -7


def entries(count: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(count)]


@dataclass(frozen=True, slots=True)
class Peers:
    """Our client and a genuine one, of the same wire version, on one cluster of ours."""

    release: Release
    uri: str
    protocol: int
    ours: BlockingBookKeeper
    theirs: ApacheClient

    def create(self) -> BlockingWriteHandle:
        """A ledger of ours that the genuine client can read."""
        return self.ours.create(
            password=PASSWORD.encode(), digest=DigestType.CRC32, metadata_version=self.release.metadata_version
        )

    def run(self, command: str, *arguments: object, password: str = PASSWORD) -> list[str]:
        """A command of the genuine client that creates or opens a ledger."""
        return self.theirs.run(command, self.uri, self.protocol, "CRC32", password, *arguments)


@pytest.fixture(
    scope="module",
    params=[(release, protocol) for release in RELEASES.values() for protocol in release.protocols],
    ids=lambda pair: f"{pair[0].version}-v{pair[1]}",
)
def peers(
    request: pytest.FixtureRequest, cluster: LocalCluster, apache_clients: Callable[[str], ApacheClient]
) -> Iterator[Peers]:
    release, protocol = request.param
    with connect(cluster.uri, ClientSettings(use_v2=protocol == 2, read_timeout_base_s=REQUEST_TIMEOUT_S)) as client:
        yield Peers(release, cluster.uri, protocol, client, apache_clients(release.version))


def test_the_genuine_client_recovers_our_abandoned_ledger_and_fences_our_writer(peers: Peers) -> None:
    ledger = peers.create()
    ledger.append_many(entries(150))
    assert [line.encode() for line in peers.run("read", ledger.id)] == entries(150)
    with pytest.raises(LedgerFencedOff):
        ledger.append(b"too late")
    assert peers.ours.metadata(ledger.id).last_entry_id == 149


def test_we_recover_the_genuine_clients_abandoned_ledger_and_fence_its_writer(peers: Peers) -> None:
    (ledger_id,) = peers.run("begin", 3, 3, 2, 150)
    with peers.ours.open(int(ledger_id), password=PASSWORD.encode()) as ledger:
        assert [entry.payload for entry in ledger.entries()] == entries(150)
    with pytest.raises(ApacheError) as refused:
        peers.theirs.run("append", ledger_id, 1)
    assert refused.value.code == CODE_FENCED
    assert peers.ours.metadata(int(ledger_id)).last_entry_id == 149


def test_we_tail_the_genuine_clients_ledger_without_disturbing_it(peers: Peers) -> None:
    (ledger_id,) = peers.run("begin", 3, 2, 2, 10)
    with peers.ours.open_without_recovery(int(ledger_id), password=PASSWORD.encode()) as tail:
        assert tail.last_add_confirmed == 8  # the last entry's own LAC says so much
        assert peers.theirs.run("append", ledger_id, 5) == ["14"]
        assert tail.read_last_confirmed() == 13
        assert [entry.payload for entry in tail.entries()] == entries(14)


def test_the_genuine_client_tails_our_ledger(peers: Peers) -> None:
    with peers.create() as ledger:
        for payload in entries(10):
            ledger.append(payload)
        # 8 from the last entry, or 9 when our explicit LAC was written already and the reader's protocol has it.
        assert peers.run("watch", ledger.id)[0] in ("8", "9")
        ledger.append(b"entry-10")
        assert peers.theirs.run("lac", ledger.id)[0] in ("9", "10")
        ledger.append(b"entry-11")


def test_the_genuine_client_refuses_the_wrong_password_of_our_ledger(peers: Peers) -> None:
    with peers.create() as ledger:
        ledger.append(b"entry-0")
    with pytest.raises(ApacheError) as refused:
        peers.run("read", ledger.id, password="other")
    assert refused.value.code == CODE_WRONG_PASSWORD
    assert peers.run("read", ledger.id) == ["entry-0"]


def test_either_client_deletes_the_others_ledger(peers: Peers) -> None:
    with peers.create() as ours:
        ours.append(b"entry-0")
    peers.theirs.run("delete", peers.uri, peers.protocol, ours.id)
    with pytest.raises(NoSuchLedger):
        peers.ours.metadata(ours.id)
    (theirs,) = peers.run("write", 3, 2, 2, 1)
    peers.ours.delete(int(theirs))
    with pytest.raises(ApacheError) as gone:
        peers.run("read", theirs)
    assert gone.value.code == (CODE_NO_SUCH_LEDGER_CLASSIC if peers.release is CLASSIC else CODE_NO_SUCH_LEDGER)
