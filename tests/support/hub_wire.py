"""Hubs as processes in integration tests, and a connection to one that speaks the wire without our client."""

from __future__ import annotations

import contextlib
import socket
import ssl
from types import TracebackType

from bookkeeper.embedded.cluster import LocalProcessFailed
from hedwig.embedded import LocalHub
from hedwig.model import FIRST_ID, MessageId, Preferences, SubscribeMode, SubscriberId, Topic
from hedwig.wire.framing import FRAME_SIZE_MAX_CLIENT, FrameDecoder
from hedwig.wire.messages import Message, encode_message
from hedwig.wire.requests import consume_frame, publish_frame, subscribe_frame
from hedwig.wire.responses import Answer, Delivery, Told, decode_response

ANSWER_TIMEOUT_S = 60.0


def wait_for_exit(hub: LocalHub) -> int:
    """Start a hub that is expected to end by itself before it serves; its exit code."""
    hub.start(wait=False)
    with contextlib.suppress(LocalProcessFailed):
        hub.wait_ready()
        raise AssertionError(f"{hub.name} serves; it was expected to refuse")
    return hub.stop()


class RawHubClient:
    """One blocking connection. tls: what secures it, if anything."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1")
        self._decoder = FrameDecoder(FRAME_SIZE_MAX_CLIENT)
        self._received: list[Answer | Delivery | Told] = []
        self._txn_id = 0

    def receive(self) -> Answer | Delivery | Told:
        """The next one. Raises ConnectionError when the hub closed the connection."""
        while not self._received:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the hub closed the connection")
            self._received += [decode_response(frame) for frame in self._decoder.receive(data)]
        return self._received.pop(0)

    def answer(self) -> Answer:
        """The next one, which is an answer."""
        found = self.receive()
        assert isinstance(found, Answer), found
        return found

    def deliveries(self, count: int) -> list[Delivery]:
        """The next so many."""
        found = [self.receive() for _ in range(count)]
        assert all(isinstance(each, Delivery) for each in found), found
        return [each for each in found if isinstance(each, Delivery)]

    def publish(self, topic: Topic, body: bytes) -> Answer:
        """A message, and its answer; this hub is asked to claim the topic."""
        self._txn_id += 1
        self.socket.sendall(publish_frame(self._txn_id, topic, encode_message(Message(body)), should_claim=True))
        return self.answer()

    def subscribe(self, topic: Topic, subscriber: SubscriberId) -> Answer:
        """Make or attach a subscription."""
        self._txn_id += 1
        mode = SubscribeMode.CREATE_OR_ATTACH
        frame = subscribe_frame(self._txn_id, topic, subscriber, mode, Preferences(), should_claim=True)
        self.socket.sendall(frame)
        return self.answer()

    def consume(self, topic: Topic, subscriber: SubscriberId, up_to: MessageId) -> None:
        """All up to this one."""
        self.socket.sendall(consume_frame(0, topic, subscriber, up_to))

    def __enter__(self) -> RawHubClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


__all__ = ["FIRST_ID", "RawHubClient", "wait_for_exit"]
