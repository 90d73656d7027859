"""Objects that belong to one process, and the iterators of the blocking and the asyncio face among them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import ClassVar, NoReturn, TypeVar

T = TypeVar("T")


class OfOneProcess:
    """An object with connections or files of its process. Pickling and copying it raise a TypeError with the remedy."""

    __slots__ = ()

    instead: ClassVar[str] = (
        "pass the metadataServiceUri, the ClientSettings and ledger ids instead, and connect again where they arrive"
    )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(f"{kind}: cannot be pickled or copied, what it holds open is of this process; {self.instead}")


class Pieces(OfOneProcess, Iterator[T]):
    """The iterator over a generator. A loop over it uses the generator itself."""

    __slots__ = ("_generator",)

    def __init__(self, generator: Generator[T, None, None]) -> None:
        self._generator = generator

    def __iter__(self) -> Iterator[T]:
        return self._generator

    def __next__(self) -> T:
        return next(self._generator)

    def close(self) -> None:
        """End the iteration: nothing is read ahead any more. Waits for nothing."""
        self._generator.close()


class AsyncPieces(OfOneProcess, AsyncIterator[T]):
    """The asynchronous iterator over a generator. A loop over it uses the generator itself."""

    __slots__ = ("_generator",)

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator

    def __aiter__(self) -> AsyncIterator[T]:
        return self._generator

    async def __anext__(self) -> T:
        return await anext(self._generator)

    async def aclose(self) -> None:
        """End the iteration: nothing is read ahead any more."""
        await self._generator.aclose()
