"""Objects that belong to one process, such as the iterators of the blocking and the asyncio face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import ClassVar, NoReturn, Self, TypeVar

T = TypeVar("T")


class OfOneProcess:
    """An object with connections or files of its process; to pickle or copy it raises a TypeError with the remedy."""

    __slots__ = ()

    instead: ClassVar[str] = (
        "pass the metadataServiceUri, the ClientSettings and ledger ids instead, and connect again where they arrive"
    )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(f"{kind}: cannot be pickled or copied, it has connections or files open; {self.instead}")


class BlockingFace(ABC):
    """An object with a ReactorThread: a context manager that closes it at the end of the block."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> object:
        """End the connections in order, then the reactor, and wait for that."""

    @abstractmethod
    def _abandon(self) -> None:
        """End them in order without waiting; see ReactorThread.leave."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is GeneratorExit:
            self._abandon()
        else:
            self.close()


class Pieces(OfOneProcess, Iterator[T]):
    """An iterator over a generator. `for` loops use the generator itself."""

    __slots__ = ("_generator",)

    def __init__(self, generator: Generator[T, None, None]) -> None:
        self._generator = generator

    def __iter__(self) -> Iterator[T]:
        return self._generator

    def __next__(self) -> T:
        return next(self._generator)

    def close(self) -> None:
        """End the iteration and its read-ahead, without waiting."""
        self._generator.close()


class AsyncPieces(OfOneProcess, AsyncIterator[T]):
    """An asynchronous iterator over a generator. `async for` loops use the generator itself."""

    __slots__ = ("_generator",)

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator

    def __aiter__(self) -> AsyncIterator[T]:
        return self._generator

    async def __anext__(self) -> T:
        return await anext(self._generator)

    async def aclose(self) -> None:
        """End the iteration and its read-ahead."""
        await self._generator.aclose()
