"""From a new connection to its first request: the path each kind of connection takes, and that there is no other."""

import itertools

import pytest

from bookkeeper.errors import LocalProtocolError
from bookkeeper.model import Status
from bookkeeper.protocol.handshake import LEAVES, Event, Handshake, HandshakeState, auth_refusal, tls_refusal

S = HandshakeState

PATHS = {
    (False, False): [(Event.CONNECTED, S.READY)],
    (False, True): [(Event.CONNECTED, S.AUTHENTICATING), (Event.AUTHENTICATED, S.READY)],
    (True, False): [(Event.CONNECTED, S.REQUESTING_TLS), (Event.TLS_GRANTED, S.SECURING), (Event.SECURED, S.READY)],
    (True, True): [
        (Event.CONNECTED, S.REQUESTING_TLS),
        (Event.TLS_GRANTED, S.SECURING),
        (Event.SECURED, S.AUTHENTICATING),
        (Event.AUTHENTICATED, S.READY),
    ],
}


@pytest.mark.parametrize(("tls", "credentials"), PATHS)
def test_each_kind_of_connection_has_one_path_and_is_ready_only_at_its_end(tls: bool, credentials: bool) -> None:
    handshake = Handshake(tls=tls, credentials=credentials)
    assert handshake.state is S.CONNECTING
    for event, state in PATHS[tls, credentials]:
        assert not handshake.ready
        assert handshake.on(event) is state
        assert handshake.ready is (state is S.READY)
    handshake.on_ended()
    assert (handshake.state, handshake.ready) == (S.ENDED, False)


@pytest.mark.parametrize(("tls", "credentials"), PATHS)
def test_an_event_out_of_order_changes_nothing(tls: bool, credentials: bool) -> None:
    """In every state of every path, each event that does not belong to it is refused."""
    path = PATHS[tls, credentials]
    for done, event in itertools.product(range(len(path) + 1), Event):
        handshake = Handshake(tls=tls, credentials=credentials)
        for step, _ in path[:done]:
            handshake.on(step)
        before = handshake.state
        if LEAVES[event] is before:
            continue
        with pytest.raises(LocalProtocolError):
            handshake.on(event)
        assert handshake.state is before


@pytest.mark.parametrize("event", Event)
def test_nothing_revives_a_connection_that_ended(event: Event) -> None:
    handshake = Handshake(tls=True, credentials=True)
    handshake.on_ended()
    with pytest.raises(LocalProtocolError):
        handshake.on(event)


def test_why_tls_was_refused() -> None:
    assert tls_refusal(Status.OK) is None
    assert "has no TLS" in (tls_refusal(Status.BAD_REQUEST) or "")
    assert "i/o" in (tls_refusal(Status.IO_ERROR) or "").lower()


@pytest.mark.parametrize("plugin", ["token", "AuthDisabledPlugin"])
def test_an_answer_of_our_plugin_or_of_none_is_no_refusal(plugin: str) -> None:
    assert auth_refusal(Status.OK, plugin, "token") is None


@pytest.mark.parametrize(("status", "plugin"), [(Status.UNAUTHORIZED, "token"), (Status.OK, "other")])
def test_a_refusal_names_the_plugin(status: Status, plugin: str) -> None:
    assert "token" in (auth_refusal(status, plugin, "token") or "")
