"""Messages out of byte streams: parts between delimiters, or length-prefixed (a big-endian u32 and that many bytes).

What one chunk brought comes at once; what is not whole yet is kept, up to the size of a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bookkeeper.console.output import CommandFailed
from hedwig.cli.formats import LENGTH


def read_delimited(chunks: Iterable[bytes], delimiter: bytes, size_max: int) -> Iterator[list[bytes]]:
    """The last message needs no delimiter. Raises CommandFailed naming the message of more than `size_max` bytes."""
    rest, done = bytearray(), 0
    searched = 0
    for chunk in chunks:
        rest += chunk
        # A long message comes in many chunks: what was searched before is not searched again.
        if rest.find(delimiter, max(0, searched - len(delimiter) + 1)) < 0:
            searched = len(rest)
            _check(len(rest), size_max, done)
            continue
        messages = bytes(rest).split(delimiter)
        rest = bytearray(messages.pop())
        searched = len(rest)
        for message in messages:
            _check(len(message), size_max, done)
            done += 1
        yield messages
        _check(len(rest), size_max, done)
    if rest:
        yield [bytes(rest)]


def read_length_prefixed(chunks: Iterable[bytes], size_max: int) -> Iterator[list[bytes]]:
    """Raises CommandFailed for a length above the bound, or a cut-off last message."""
    buffer, done = bytearray(), 0
    for chunk in chunks:
        buffer += chunk
        position = 0
        messages: list[bytes] = []
        while len(buffer) - position >= LENGTH.size:
            (size,) = LENGTH.unpack_from(buffer, position)
            start = position + LENGTH.size
            if size > size_max:
                if messages:
                    yield messages
                _check(size, size_max, done + len(messages))
            if len(buffer) - start < size:
                break
            messages.append(bytes(buffer[start : start + size]))
            position = start + size
        del buffer[:position]
        done += len(messages)
        if messages:
            yield messages
    if buffer:
        raise CommandFailed(f"the input ends inside message {done + 1}: {len(buffer)} bytes are left over")


def _check(size: int, size_max: int, done: int) -> None:
    if size > size_max:
        raise CommandFailed(
            f"message {done + 1} has more than {size_max} bytes, which is what hubs take (max_message_size)"
        )
