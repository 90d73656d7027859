"""The seams between decisions and the world: clock, network, worker threads.

Everything that waits, connects or runs on another thread is passed in as one of these, so that the simulator can run
the real client and bookie under its own clock, network and disk. The disk seam is `bookkeeper.filesystem`, the metadata
seam `bookkeeper.metadata.store`; randomness is a `random.Random` that the caller hands over.

The real implementations are in `bookkeeper.runtime`, the simulated ones in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

T = TypeVar("T")


class Timer(Protocol):
    """A scheduled call; the same shape as Twisted's IDelayedCall."""

    def cancel(self) -> None:
        """Forget the call. It must still be pending."""

    def active(self) -> bool:
        """True while the call is pending."""

    def reset(self, delay_s: float, /) -> None:
        """Run the call `delay_s` seconds from now instead."""


class Clock(Protocol):
    """Time in seconds and calls in the future; Twisted's reactor is one."""

    def seconds(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def callLater(self, delay_s: float, call: Callable[..., object], /, *args: Any, **kwargs: Any) -> Timer:
        """Run `call(*args, **kwargs)` on the reactor thread after `delay_s` seconds."""


class Transport(Protocol):
    """The part of Twisted's TCP transport that our protocols use."""

    def write(self, data: bytes, /) -> None:
        """Queue bytes. Never blocks; the registered producer is paused when too much waits."""

    def writeSequence(self, parts: Any, /) -> None:
        """Queue several pieces at once."""

    def loseConnection(self) -> None:
        """Close once everything written has left."""

    def abortConnection(self) -> None:
        """Close at once; unsent bytes are dropped."""

    def pauseProducing(self) -> None:
        """Stop delivering received bytes."""

    def resumeProducing(self) -> None:
        """Deliver received bytes again."""

    def registerProducer(self, producer: Any, streaming: bool, /) -> None:
        """Ask to be paused and resumed as the send buffer fills and drains."""

    def unregisterProducer(self) -> None:
        """End the registration."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of memory that the send buffer uses; at least as many as wait in it."""

    def getPeer(self) -> Any:
        """Address of the other side, for messages only."""


class StreamProtocol(Protocol):
    """The part of Twisted's IProtocol that a network drives."""

    def makeConnection(self, transport: Any, /) -> None:
        """The connection is up."""

    def dataReceived(self, data: bytes, /) -> None:
        """Some bytes arrived."""

    def connectionLost(self, reason: Any, /) -> None:
        """The connection is gone; called once."""


class Listener(Protocol):
    """A bound port."""

    host: str
    port: int

    def stop(self) -> Deferred[None]:
        """Accept no more; existing connections stay."""


class Network(Protocol):
    """TCP as seen from our drivers."""

    def connect(self, host: str, port: int, protocol: StreamProtocol, *, timeout_s: float) -> Deferred[None]:
        """Connect `protocol`. Fires after its makeConnection; fails with errors.ConnectFailed, bound by `timeout_s`.

        Cancelling gives the attempt up; it fails with CancelledError then, which is nobody's failure.
        """

    def listen(self, host: str, port: int, accept: Callable[[], StreamProtocol]) -> Deferred[Listener]:
        """Listen; `accept` makes one protocol per connection. Fails with OSError when the port is taken."""


class Worker(Protocol):
    """One thread that runs pieces of blocking work in the order they were submitted."""

    name: str

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], object], on_error: Callable[[BaseException], object]
    ) -> None:
        """Queue `work` for the thread. Exactly one of the callbacks follows, on the reactor thread, in order.

        The queue is bounded by its users: each of them keeps at most a handful of pieces of work in flight.
        """

    def stop(self) -> Deferred[None]:
        """Run what is queued, then end the thread. `submit` raises RuntimeError from now on."""
