"""Authentication providers for tests: a token in one round, and a dialogue of several rounds.

bookieAuthProviderFactoryClass=tests.support.auth_plugins:token_bookie
clientAuthProviderFactoryClass=tests.support.auth_plugins:token_client
"""

from __future__ import annotations

from typing import Any

from bookkeeper.auth.provider import Answer, AuthenticationFailed, Peer

TOKEN = b"secret"
QUESTIONS = [b"name?", b"quest?", b"colour?"]
ANSWERS = {b"name?": b"Lancelot", b"quest?": b"the grail", b"colour?": b"blue"}


class Token:
    """Both sides of a plug-in whose client says one word."""

    plugin_name = "token"
    identity = "somebody"

    def __init__(self, token: bytes = TOKEN) -> None:
        self._token = token
        self.peers: list[Peer] = []

    def converse(self, peer: Peer) -> _Token:
        self.peers.append(peer)
        return _Token(self._token)


class _Token:
    def __init__(self, token: bytes) -> None:
        self._token = token

    def first(self) -> bytes:
        return self._token

    def respond(self, payload: bytes) -> Any:
        if payload == TOKEN:
            return Answer(b"", True, "somebody")
        if payload:
            raise AuthenticationFailed("this is not the word")
        return None


class Dialogue:
    """Both sides of a plug-in that asks several questions, one after the other."""

    plugin_name = "dialogue"
    identity = "Lancelot"

    def converse(self, peer: Peer) -> _Dialogue:
        return _Dialogue()


class _Dialogue:
    def __init__(self) -> None:
        self._asked: list[bytes] = []

    def first(self) -> bytes:
        return b"hello"

    def respond(self, payload: bytes) -> Any:
        if payload in ANSWERS:  # a question: we are the client
            return ANSWERS[payload]
        if payload == b"pass":
            return None
        wanted = ANSWERS[self._asked[-1]] if self._asked else b"hello"
        if payload != wanted:
            raise AuthenticationFailed(f"{payload!r} is wrong")
        if len(self._asked) == len(QUESTIONS):
            return Answer(b"pass", True, "Lancelot")
        self._asked.append(QUESTIONS[len(self._asked)])
        return Answer(self._asked[-1], False)


def token_client(settings: Any) -> Token:
    return Token()


def wrong_token_client(settings: Any) -> Token:
    return Token(b"guess")


def token_bookie(settings: Any, run_in_thread: Any) -> Token:
    return Token()


def dialogue_client(settings: Any) -> Dialogue:
    return Dialogue()


def dialogue_bookie(settings: Any, run_in_thread: Any) -> Dialogue:
    return Dialogue()
