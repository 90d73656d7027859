"""Every error of publish-subscribe that a caller may act on, one class per reason. Pure.

    PubSubError              status: its number on the wire; retriable: trying again later may help
      MalformedRequest         a part of the request is missing, or cannot be served
      AlreadySubscribed        CREATE, and the subscription exists
      NotSubscribed            ATTACH, or an end, of a subscription that does not exist
      TopicBusy                another connection holds the subscription
      NotResponsible           another hub serves the topic: which one, if it is known
      ServiceDown              the hub's metadata or ledgers cannot be used now
        NoHub                    what answers at the address is no hub
      UncertainState           the connection ended, or nothing was heard: what became of the request is open
      InvalidFilter            a filter that the hub does not have, or whose options are wrong
        FilterTooCostly          a filter needs too many steps for a message
      MessageTooLarge          a message was delivered that this client's settings do not take
      UnexpectedCondition      what is stored contradicts itself
      CompositeFailure         several steps failed
      StaleVersion             a record changed since it was read
      Refused                  a status that has no class of its own

NoHubReached, a ConnectFailed of bookkeeper.errors, comes before any request.
Errors of the ledger client and of the metadata store are chained as causes.
"""

from __future__ import annotations

from typing import ClassVar, Self

from bookkeeper.errors import BookKeeperError, ConnectFailed
from hedwig.model import HubAddress, LocalId, Status


class PubSubError(BookKeeperError):
    """Base of all."""

    status: ClassVar[Status] = Status.UNEXPECTED_CONDITION
    retriable: ClassVar[bool] = False


class NoHubReached(ConnectFailed):
    """None of the hubs that were given could be connected to. failures: why, of each, without what helps."""

    failures = ""

    @classmethod
    def of(cls, failures: str, named_by: str = "`--hub`, `hedwig.connect`") -> Self:
        """With what helps. named_by: what it is that names a hub, to who made the client."""
        error = cls(f"{failures}. Start one there (`hedwig hub`), or give the address of one that runs ({named_by})")
        error.failures = failures
        return error


class MalformedRequest(PubSubError):
    """The request lacks what its type needs, or is of a type that hubs do not serve."""

    status = Status.MALFORMED_REQUEST


class AlreadySubscribed(PubSubError):
    """There is such a subscription, and a new one was asked for."""

    status = Status.CLIENT_ALREADY_SUBSCRIBED


class NotSubscribed(PubSubError):
    """There is no such subscription."""

    status = Status.CLIENT_NOT_SUBSCRIBED


class TopicBusy(PubSubError):
    """Another connection holds the subscription (I-96)."""

    status = Status.TOPIC_BUSY
    retriable = True


class NotResponsible(PubSubError):
    """Another hub serves the topic. owner: where; None where nobody knows, so ask any hub."""

    status = Status.NOT_RESPONSIBLE_FOR_TOPIC
    retriable = True

    def __init__(self, message: str, owner: HubAddress | None = None) -> None:
        super().__init__(message)
        self.owner = owner


class ServiceDown(PubSubError):
    """Metadata or ledgers cannot be used now; nothing was done."""

    status = Status.SERVICE_DOWN
    retriable = True


class NoHub(ServiceDown):
    """What answers at the addresses that were given is no hub."""


class UncertainState(PubSubError):
    """What became of the request is not known."""

    status = Status.UNCERTAIN_STATE
    retriable = True


class InvalidFilter(PubSubError):
    """The hub cannot run the filter that a subscription names."""

    status = Status.INVALID_MESSAGE_FILTER


class FilterTooCostly(InvalidFilter):
    """A filter needs more steps for a message than one message may use."""


class MessageTooLarge(PubSubError):
    """The hub delivered a message that this client's settings do not take. local_id: which, where that is known."""

    def __init__(self, message: str, local_id: LocalId | None = None) -> None:
        super().__init__(message)
        self.local_id = local_id


class StaleVersion(PubSubError):
    """A record changed since it was read."""

    status = Status.BAD_VERSION
    retriable = True


class UnexpectedCondition(PubSubError):
    """What is stored contradicts itself, or is not what it must be."""

    status = Status.UNEXPECTED_CONDITION


class CompositeFailure(PubSubError):
    """Several steps of one request failed together. causes: in their order."""

    status = Status.COMPOSITE

    def __init__(self, causes: list[PubSubError]) -> None:
        super().__init__(f"Composite exception: [{' :: '.join(map(str, causes))}]")
        self.causes = causes


class Refused(PubSubError):
    """A hub's answer whose status has no class of its own."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(f"{status.name} ({status}): {message}" if message else f"{status.name} ({status})")
        self.told = status


_CLASSES: tuple[type[PubSubError], ...] = (
    *(MalformedRequest, AlreadySubscribed, NotSubscribed, TopicBusy, ServiceDown, UncertainState, InvalidFilter),
    *(StaleVersion, UnexpectedCondition),
)
_BY_STATUS = {each.status: each for each in _CLASSES}


def error_of(status: Status, message: str) -> PubSubError:
    """What a client raises for a hub's answer; redirects are dealt with before."""
    known = _BY_STATUS.get(status)
    return Refused(status, message) if known is None else known(message or status.name)
