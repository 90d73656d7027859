"""TLS, credentials and passwords that keep a client out: told first, with the remedy, whatever was to be done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.client.bookies.access_errors import explained
from bookkeeper.client.bookies.tls import ClientSecurity
from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.errors import (
    AuthenticationRefused,
    ConnectFailed,
    EntryUnreadable,
    NoSuchLedger,
    NotDurable,
    NotEnoughBookies,
    TlsFailed,
    UnauthorizedAccess,
    UnsupportedVersion,
)
from bookkeeper.model import LedgerState, Status
from bookkeeper.wire.messages import AddBatch, Auth
from tests.support.certificates import FACTORY, Authority
from tests.support.fake_bookie import LET_NOBODY_IN, SILENCE, FakeCluster

ALL: dict[str, Any] = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 3}
REFUSED = (UnauthorizedAccess, AuthenticationRefused)
"""v2 answers each add and read by itself, v3 nothing but "unauthorized" before TLS or authentication."""

VERDICTS = pytest.mark.parametrize("verdict", [LET_NOBODY_IN, Status.UNAUTHORIZED], ids=["before", "with ids"])
BOTH_KEYS = r"neither: set tlsProviderFactoryClass and clientAuthProviderFactoryClass"


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings with which a fake bookie, which has no TLS, cannot be talked to."""
    authority = Authority(tmp_path_factory.mktemp("ca"), "ca")
    return {"tls_factory": FACTORY, "client_trust_store": str(authority.certificate)}


class Written:
    """A ledger of three entries on all bookies; from then on every bookie refuses everything."""

    def __init__(self, *, closed: bool) -> None:
        self.cluster = FakeCluster(3)
        writer = self.cluster.client(settings(use_v2=False))
        self.ledger = self.cluster.wait(writer.create(**ALL))
        self.cluster.wait(self.ledger.append_many([b"one", b"two", b"three"]))
        if closed:
            self.cluster.wait(self.ledger.close())

    def refuse(self, verdict: object = LET_NOBODY_IN) -> None:
        for bookie in self.cluster.bookies:
            bookie.rule = lambda request: verdict


def unauthorized_calls(client: LedgerClient, ledger_id: int) -> dict[str, Callable[[], Any]]:
    return {
        "recovery": lambda: client.open(ledger_id),
        "last confirmed": lambda: client.open_without_recovery(ledger_id),
        "bookie info": lambda: client.bookie_info("b1:3181"),
        "list of entries": lambda: client.list_entries(ledger_id, "b1:3181"),
    }


@VERDICTS
@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
@pytest.mark.parametrize("what", ["recovery", "last confirmed", "bookie info", "list of entries"])
def test_a_plain_client_is_told_that_tls_or_credentials_may_be_what_is_missing(
    what: str, use_v2: bool, verdict: object
) -> None:
    written = Written(closed=False)
    written.refuse(verdict)
    client = written.cluster.client(settings(use_v2=use_v2))
    with pytest.raises(REFUSED, match=BOTH_KEYS) as failed:
        written.cluster.wait(unauthorized_calls(client, written.ledger.ledger_id)[what]())
    assert "its log says what is missing" in str(failed.value)
    assert "try again" not in str(failed.value)


@VERDICTS
@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
@pytest.mark.parametrize("last", [0, 2], ids=["one entry", "a range"])
def test_so_it_is_where_entries_are_read(last: int, use_v2: bool, verdict: object) -> None:
    written = Written(closed=True)
    handle = written.cluster.wait(written.cluster.client(settings(use_v2=use_v2)).open(written.ledger.ledger_id))
    written.refuse(verdict)
    with pytest.raises(REFUSED, match=BOTH_KEYS) as failed:
        written.cluster.wait(handle.read(0, last))
    assert "try again" not in str(failed.value)
    assert isinstance(failed.value.__cause__, EntryUnreadable)


@VERDICTS
@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
def test_so_it_is_where_entries_are_written(use_v2: bool, verdict: object) -> None:
    written = Written(closed=False)
    client = written.cluster.client(settings(use_v2=use_v2))
    ledger = written.cluster.wait(client.create(**ALL))
    written.cluster.wait(ledger.append(b"x"))
    written.refuse(verdict)
    with pytest.raises(REFUSED, match=BOTH_KEYS):
        written.cluster.wait(ledger.append(b"x"))
    with pytest.raises(REFUSED, match=f"^no ledger was created: .*{BOTH_KEYS}"):
        written.cluster.wait(client.create(**ALL))


@VERDICTS
def test_so_it_is_where_a_ledger_is_forced(verdict: object) -> None:
    written = Written(closed=False)
    written.refuse(verdict)
    with pytest.raises(NotDurable, match=BOTH_KEYS):
        written.cluster.wait(written.ledger.force())


def test_what_the_client_has_is_not_asked_for() -> None:
    anything: Any = object()
    assert ClientSecurity(anything, anything, 1.0).hint == ""
    only_tls, only_credentials = ClientSecurity(anything, None, 1.0).hint, ClientSecurity(None, anything, 1.0).hint
    assert ("clientAuthProviderFactoryClass" in only_tls, "tlsProviderFactoryClass" in only_tls) == (True, False)
    assert ("clientAuthProviderFactoryClass" in only_credentials, "tlsProviderFactoryClass" in only_credentials) == (
        False,
        True,
    )


@pytest.mark.parametrize("deferred_sync", [False, True])
def test_a_write_that_tls_keeps_out_says_so_first(tls: dict[str, str], deferred_sync: bool) -> None:
    cluster = FakeCluster(5)  # two to replace others with
    client = cluster.client(settings(use_v2=False, **tls))
    with pytest.raises(TlsFailed, match=r"^no ledger was created: TLS with bookie b\d:3181 .* it has no TLS") as told:
        cluster.wait(client.create(**ALL, deferred_sync=deferred_sync))
    assert "more bookies" not in str(told.value)
    assert not told.value.retriable


ONLY_V2 = r"bookies before 4\.3 speak v2 alone, set useV2WireProtocol=true"


def speak_v2_alone(cluster: FakeCluster, *numbers: int) -> None:
    for number in numbers or range(len(cluster.bookies)):
        bookie = cluster.bookies[number]
        bookie.version_3 = bookie.hangs_up = False


@pytest.mark.parametrize("options", [{}, {"ledger_id": 7}, {"deferred_sync": True}])
def test_errors_of_a_client_set_to_v3_name_first_that_bookies_speak_only_v2(options: dict[str, Any]) -> None:
    cluster = FakeCluster(5)
    speak_v2_alone(cluster)
    client = cluster.client(settings(use_v2=False))
    for _ in range(2):  # the second one fails before any bookie is asked
        with pytest.raises(UnsupportedVersion, match=rf"^no ledger was created: bookie b\d:3181: .*{ONLY_V2}") as told:
            cluster.wait(client.create(**ALL, **options))
        assert "more bookies" not in str(told.value)
        assert not told.value.retriable
    ledger = cluster.wait(cluster.client(settings(use_v2=True)).create(**ALL))
    assert cluster.wait(ledger.append(b"x")) == 0


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
def test_a_bookie_that_answers_a_request_for_tls_in_v2_fails_as_tls(tls: dict[str, str], use_v2: bool) -> None:
    cluster = FakeCluster(3)
    speak_v2_alone(cluster)
    with pytest.raises(TlsFailed, match=r"^no ledger was created: TLS with bookie .* it may have no TLS"):
        cluster.wait(cluster.client(settings(use_v2=use_v2, **tls)).create(**ALL))


def test_errors_name_first_a_version_that_a_bookie_does_not_serve() -> None:
    cluster = FakeCluster(3)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: Status.BAD_VERSION
    with pytest.raises(UnsupportedVersion, match=r"^no ledger was created: bookie .*: change useV2WireProtocol"):
        cluster.wait(cluster.client(settings()).create(**ALL))


def test_read_errors_of_a_client_set_to_v3_name_first_that_bookies_speak_only_v2() -> None:
    written = Written(closed=True)
    client = written.cluster.client(settings(use_v2=False))
    handle = written.cluster.wait(client.open(written.ledger.ledger_id))
    speak_v2_alone(written.cluster)
    with pytest.raises(UnsupportedVersion, match=rf"^ledger 0, entry 0: bookie b\d:3181: .*{ONLY_V2}"):
        written.cluster.wait(handle.read(0, 2))


def test_garbage_from_a_bookie_that_has_answered_is_not_another_version() -> None:
    written = Written(closed=True)
    client = written.cluster.client(settings(use_v2=False))
    handle = written.cluster.wait(client.open(written.ledger.ledger_id))
    written.cluster.wait(handle.read(0, 2))
    speak_v2_alone(written.cluster)
    with pytest.raises(EntryUnreadable, match="broke the protocol"):
        written.cluster.wait(handle.read(0, 2))


@pytest.mark.parametrize("spare", [False, True])
def test_errors_name_refusals_first_if_the_other_bookies_do_not_suffice(spare: bool) -> None:
    cluster = FakeCluster(4 if spare else 3)
    speak_v2_alone(cluster, 1)
    cluster.bookies[0].rule = lambda request: SILENCE
    error = NotEnoughBookies if spare else UnsupportedVersion
    with pytest.raises(error, match=r"^no ledger was created: ") as told:
        cluster.wait(cluster.client(settings(use_v2=False)).create(**ALL))
    assert ("start more bookies" in str(told.value)) == spare
    assert "gave no answer in time" in str(told.value)
    assert "useV2WireProtocol=true" in str(told.value)


def test_an_ensemble_change_that_refusals_prevent_names_them_first() -> None:
    cluster = FakeCluster(4)
    client = cluster.client(settings(use_v2=False))
    members = [bookie.bookie_id for bookie in cluster.bookies[:3]]
    ledger = cluster.wait(client.create(**ALL, bookies=members))
    cluster.wait(ledger.append(b"x"))
    speak_v2_alone(cluster, 3)
    cluster.bookies[0].crash()
    with pytest.raises(UnsupportedVersion, match=rf"^ledger 0 .* replacement for b1:3181.*b4:3181: .*{ONLY_V2}"):
        cluster.wait(ledger.append(b"y"))


def test_a_write_that_fails_for_other_reasons_asks_for_more_bookies(tls: dict[str, str]) -> None:
    cluster = FakeCluster(3)
    ledger = cluster.wait(cluster.client(settings()).create(**ALL))
    refused = cluster.client(settings(**tls)).create(**ALL)
    for bookie in cluster.bookies:
        bookie.leave()
    with pytest.raises(NotEnoughBookies, match="start more bookies"):
        cluster.wait(refused)
    with pytest.raises(NotEnoughBookies, match="start more bookies"):
        cluster.wait(ledger.append(b"x"))


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
def test_reads_and_recoveries_that_tls_keeps_out_say_so_first(tls: dict[str, str], use_v2: bool) -> None:
    for written in (Written(closed=True), Written(closed=False)):
        client = written.cluster.client(settings(use_v2=use_v2, **tls))

        async def read() -> None:
            await (await client.open(written.ledger.ledger_id)).read(0, 2)  # noqa: B023 - awaited in this round

        with pytest.raises(TlsFailed, match=r"^ledger 0.*: TLS with bookie b\d:3181 .* it has no TLS") as told:
            written.cluster.wait(read())
        assert "bookies are back" not in str(told.value)
        metadata = written.cluster.wait(client.metadata(written.ledger.ledger_id))
        assert metadata.state in {LedgerState.CLOSED, LedgerState.IN_RECOVERY}  # nothing was decided


def test_credentials_that_are_refused_are_told_first() -> None:
    cluster = FakeCluster(3)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: Status.UNAUTHORIZED if isinstance(request, Auth) else None
    provider = "tests.support.auth_plugins:token_client"
    with pytest.raises(AuthenticationRefused, match=f"clientAuthProviderFactoryClass={provider}"):
        cluster.wait(cluster.client(settings(auth_provider=provider, use_v2=False)).create(**ALL))


def test_no_further_ledger_is_created_on_bookies_that_keep_the_client_out(tls: dict[str, str]) -> None:
    cluster = FakeCluster(3)
    client = cluster.client(settings(**tls))
    for _ in range(2):  # the second one fails before any bookie is asked
        with pytest.raises(TlsFailed, match=r"^no ledger was created: TLS with bookie .* it has no TLS"):
            cluster.wait(client.create(**ALL))
    for ledger_id in range(3):
        with pytest.raises(NoSuchLedger):
            cluster.wait(client.metadata(ledger_id))
    cluster.run(client.settings.reconnect_delay_max_s + 1.0)  # the cause of the refusals may be gone by now
    channel = client.context.channel(cluster.bookies[0].bookie_id)
    connected = channel.connect_count
    with pytest.raises(TlsFailed):
        cluster.wait(client.create(**ALL))
    assert channel.connect_count > connected


def test_verdicts_do_not_hide_a_refusal_and_other_failures_do() -> None:
    refused, gone = TlsFailed("TLS with b1: no", bookie_id="b1"), ConnectFailed("gone", bookie_id="b2")
    decisive = EntryUnreadable(
        "cannot be read", ledger_id=3, entry_id=7, answers={"b1": refused, "b2": "no such entry"}
    )
    told = explained(decisive)
    assert isinstance(told, TlsFailed)
    assert str(told) == "ledger 3, entry 7: TLS with b1: no [b2: no such entry]"
    assert told.__cause__ is decisive
    mixed = EntryUnreadable("cannot be read", ledger_id=3, entry_id=7, answers={"b1": refused, "b2": gone})
    assert explained(mixed) is mixed


def test_the_bookies_that_take_the_adds_are_not_blamed() -> None:
    """One of three has another key: the handle ends, and names it."""
    cluster = FakeCluster(3)
    ledger = cluster.wait(cluster.client(settings()).create(**ALL))
    cluster.wait(ledger.append(b"x"))
    cluster.bookies[1].rule = lambda request: Status.UNAUTHORIZED if isinstance(request, AddBatch) else None
    with pytest.raises(UnauthorizedAccess, match=r"^bookie b2:3181 refuses the password") as told:
        cluster.wait(ledger.append(b"x"))
    assert told.value.bookie_id == "b2:3181"
