"""Output of commands: data to standard output, notes and progress to standard error.

Tables on a terminal and in pipes, one JSON document with `--json`; a question before destruction; progress that
rewrites one line on a terminal and is silent elsewhere.

Standard output and standard error contain no control characters: `prepare_streams` installs streams that escape them
(`bookkeeper.printable`), and all characters that the encoding lacks. A stream keeps tabs and line ends, since it cannot
know where a line ends. `print_line`, `print_table` and `note` escape these too, and print all names and texts of peers
and metadata. Bytes (`sys.stdout.buffer`) pass unchanged.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from bookkeeper.metadata.bad_records import BadRecords

from bookkeeper.errors import PortableError
from bookkeeper.printable import json_escape, printable

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_PARTIAL = 3
"""Records that could not be read are named on standard error; the others were shown."""
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""What a shell sees of a program that SIGPIPE ended: 128 + 13."""

PROGRESS_INTERVAL_S = 0.5

_CLOSED_OUTPUT = "standard output is closed"

_SIZE_UNITS = ("B", "KB", "MB", "GB", "TB")


class CommandFailed(PortableError):
    """Ends a command: the message goes to standard error, without a traceback."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILURE):
        super().__init__(message)
        self.exit_code = exit_code


def expected_text(error: Exception) -> str | None:
    """What an error says that is written for the operator; None for one that only its traceback explains."""
    from bookkeeper.errors import BookKeeperError

    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return (str(error) or None) if isinstance(error, BookKeeperError | OSError) else None


class _Output(io.FileIO):
    """Unbuffered output that remembers why it could not be written: whoever wrote may have kept that to himself.

    Not below a buffer, which keeps what could not be written and fails again in the end: an interrupt that comes when
    the bytes are written, and before the method of Python has returned, would have the buffer write them once more.
    """

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all bytes. The system may write only a part before it fails, as with a full disk or a closed pipe."""
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                written = super().write(left)
                if written is None:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                left = left[written:]
        except OSError as error:
            self.failure = error
            raise
        return size


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(json_escape, error.object[error.start : error.end])), error.end


_ESCAPED = "bookkeeper.escaped"
"""Error handler of encodings: writes a JSON escape for each character that the encoding lacks."""
codecs.register_error(_ESCAPED, _escape_unencodable)

_OF_LINES = "\t\n"


class _PrintableText(io.TextIOWrapper):
    """Text output without control characters. Bytes written to `buffer` pass unchanged."""

    def write(self, text: str) -> int:
        """Write the escaped text."""
        super().write(printable(text, _OF_LINES))
        return len(text)

    def write_controls(self, text: str) -> None:
        """Write text that contains our own control characters, unchanged."""
        super().write(text)


def prepare_streams() -> frozenset[str]:
    """Watch standard output, and put something in the place of the streams that are closed; which those are.

    Afterwards, standard output and standard error escape control characters.

    Python has None there, `print` drops what it is given without a word, and the next file that is opened gets the
    number of the stream. What stands there now fails as soon as it is really written to or read from; of standard
    error nobody would see that, so there it drops everything.
    """
    closed = []
    for name, descriptor, mode, flags in (
        ("stdin", 0, "r", os.O_WRONLY),
        ("stdout", 1, "w", os.O_RDONLY),
        ("stderr", 2, "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, flags)
        if opened == descriptor:
            os.set_inheritable(opened, True)  # as a standard stream is
        setattr(sys, name, open(opened, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for as long as we run
        closed.append(name)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and (out is sys.__stdout__ or "stdout" in closed):
        unbuffered = isinstance(out.buffer, io.RawIOBase)  # PYTHONUNBUFFERED
        sys.stdout = _PrintableText(
            _Output(out.fileno(), "w", closefd=False)
            if unbuffered
            else io.BufferedWriter(io.FileIO(out.fileno(), "w", closefd=False)),
            encoding=out.encoding,
            errors=_ESCAPED,
            line_buffering=out.line_buffering,
            write_through=unbuffered,
        )
    err = sys.stderr
    if isinstance(err, io.TextIOWrapper) and (err is sys.__stderr__ or "stderr" in closed):
        sys.stderr = _PrintableText(
            io.BufferedWriter(io.FileIO(err.fileno(), "w", closefd=False)),
            encoding=err.encoding,
            errors=_ESCAPED,
            line_buffering=True,
        )
    return frozenset(closed)


def lost_output() -> str | None:
    """Why what was printed does not arrive; None if it does. Raises BrokenPipeError.

    Nothing is said of it once more at the exit of the interpreter.
    """
    try:
        sys.stdout.flush()
        buffer = getattr(sys.stdout, "buffer", None)
        raw = getattr(buffer, "raw", buffer)
        if isinstance(raw, _Output) and raw.failure is not None:
            raise raw.failure
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        return _CLOSED_OUTPUT if error.errno == errno.EBADF else f"standard output: {error.strerror}"
    return None


def drop_output() -> None:
    """Let standard output take everything from now on, and throw it away."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def closed_stream(error: Exception, closed: frozenset[str]) -> str | None:
    """Which stream that was closed from the start an error comes from. closed: of `prepare_streams`."""
    if not isinstance(error, OSError) or error.errno != errno.EBADF:
        return None
    if "stdin" in closed and "stdout" not in closed:
        return "standard input is closed"
    return _CLOSED_OUTPUT if "stdout" in closed else None


def note(text: str) -> None:
    """Print a line for the operator on standard error. Further lines of `text` are indented."""
    print(indented(text), file=sys.stderr, flush=True)


def indented(text: str) -> str:
    """Return `text` with all lines after the first indented, so that none of them looks like a separate message."""
    first, *others = text.split("\n")
    return "\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in others)])


def print_line(text: object, out: TextIO | None = None) -> None:
    """Print exactly one line. Line ends within `text` are escaped."""
    print(printable(str(text)), file=out)


def end_partial(*found: BadRecords) -> int:
    """Name bad records on standard error; return EXIT_PARTIAL if there are any, else EXIT_OK."""
    for bad_records in found:
        for line in bad_records.lines():
            note(f"passed over: {line}")
    return EXIT_PARTIAL if any(found) else EXIT_OK


def counted(number: int, one: str, several: str | None = None) -> str:
    """`1 entry`, `1,000 entries`: a number and what it counts. several: `one` with an s unless given."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def readable_size(size: int) -> str:
    """`1.234GB`: bytes in the largest decimal unit up to TB, rounded down, as Apache's shell shows disk space."""
    power = min((len(str(size)) - 1) // 3, len(_SIZE_UNITS) - 1)
    thousandths = size * 1000 // 1000**power
    return f"{thousandths // 1000}.{thousandths % 1000:03}".rstrip("0").rstrip(".") + _SIZE_UNITS[power]


def entries(number: int) -> str:
    """`1 entry`, `1,000 entries`."""
    return counted(number, "entry", "entries")


def print_json(value: object) -> None:
    """One JSON document on standard output; bytes as Latin-1 text, mappings and sequences as they are."""
    print(json.dumps(value, default=_plain, indent=2, sort_keys=False))


def print_json_line(value: object) -> None:
    """One JSON value on a line of its own (`-J`, streams)."""
    print(json_line(value))


def json_line(value: object) -> str:
    """Return a value as one line of JSON in which only unprintable characters are escaped."""
    return printable(json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")))


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("latin-1")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], out: TextIO | None = None) -> None:
    """Columns separated by two spaces; numbers to the right."""
    out = out or sys.stdout
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [len(name) for name in header]
    for row in cells:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], len(cell))
    right = [bool(cells) and all(_is_number(row[column]) for row in cells) for column in range(len(header))]
    for row in [list(header), *cells]:
        line = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        print("  ".join(line).rstrip(), file=out)


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "").rstrip("%"))
    except ValueError:
        return cell in ("", "-")
    return True


def confirm(question: str, *, force: bool) -> None:
    """Ask before something is destroyed. `force` answers yes; without a terminal it is required.

    Raises CommandFailed when the answer is not yes.
    """
    if force:
        return
    if not sys.stdin.isatty():
        raise CommandFailed(f"{question} This needs --force when nobody can be asked.", EXIT_USAGE)
    print(f"{printable(question)} (y/N) ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("Nothing was done.")


class Progress:
    """`what: done/total, rate, time left; waits for ...` on one line of the terminal, at most twice a second.

    Elsewhere, and with NO_PROGRESS set, silent; unless lines_every_s is given: then one line so often where standard
    error is no terminal, for commands that take hours and end in a log file. `clock`: seconds, for tests.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        lines_every_s: float | None = None,
        clock: Any = time.monotonic,
        out: TextIO | None = None,
    ):
        self._what, self._total, self._clock = what, total, clock
        self._out = out or sys.stderr
        wanted = "NO_PROGRESS" not in os.environ
        self._rewrites = self._out.isatty()
        self._shown = wanted and (self._rewrites or lines_every_s is not None)
        self._interval_s = PROGRESS_INTERVAL_S if self._rewrites else lines_every_s or 0
        self._started = self._last = clock()

    def update(self, done: int, waits_for: str = "", *, total: int | None = None, besides: str = "") -> None:
        """Show the state unless it was shown just now.

        waits_for: what goes on only when that does. total: where it is known only by now. besides: other figures.
        """
        self._total = self._total if total is None else total
        if self.is_due:
            now = self._last = self._clock()
            text = self._text(done, now) + (f"; {besides}" if besides else "")
            text += f"; waits for {waits_for}" if waits_for else ""
            text = printable(text)
            self._write(f"\r{text}\x1b[K" if self._rewrites else f"{text}\n")

    def _write(self, line: str) -> None:
        write = self._out.write_controls if isinstance(self._out, _PrintableText) else self._out.write
        write(line)
        self._out.flush()

    def _text(self, done: int, now: float) -> str:
        rate = done / max(now - self._started, 1e-9)
        if self._total is None:
            return f"{self._what}: {done:,}, {_rate(rate)}"
        left_s = (self._total - done) / rate if rate else 0
        left = f", {_duration(left_s)} left" if left_s >= 1 else ""
        return f"{self._what}: {done:,}/{self._total:,}, {_rate(rate)}{left}"

    @property
    def is_due(self) -> bool:
        """Whether an update would be shown now: for one that costs something to put together."""
        return self._shown and self._clock() - self._last >= self._interval_s

    def close(self) -> None:
        """Clear the line."""
        if self._shown and self._rewrites and self._last > self._started:
            self._write("\r\x1b[K")

    def finish(self, done: int) -> None:
        """Clear the line, and say what was done in what time."""
        self.close()
        took_s = self._clock() - self._started
        rate = done / max(took_s, 1e-9)
        print(f"{self._what}: {done:,} in {took_s:,.1f} s, {_rate(rate)}", file=self._out, flush=True)


def _rate(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 or rate == 0 else f"{rate:.2g}/s"


def _duration(seconds: float) -> str:
    """`59 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"
