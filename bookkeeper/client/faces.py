"""Objects that belong to one process, such as the iterators of the blocking and the asyncio face."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import ClassVar, NoReturn, TypeVar

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
