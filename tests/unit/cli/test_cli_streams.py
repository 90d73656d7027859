"""Standard streams that are closed or full: said in words, and never an exit code of 0 for what did not arrive."""

import os
import subprocess
import sys

import pytest

from bookkeeper.cli.output import EXIT_FAILURE, EXIT_OK, EXIT_USAGE

BOOKKEEPER = "from bookkeeper.cli.main import main"
JOURNALMGR = "from journalmgr.cli.main import main"


def run(redirection: str, program: str, *words: str, unbuffered: str = "") -> tuple[int, bytes, bytes]:
    """A process of its own: it is started without the stream."""
    command = [sys.executable, "-c", f"import sys; {program}; sys.exit(main())", *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command], capture_output=True, check=False, env=environment
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("program", "name", "words"),
    [
        (BOOKKEEPER, "bookkeeper", ["config", "show"]),
        (BOOKKEEPER, "bookkeeper", ["--version"]),
        (JOURNALMGR, "journalmgr", ["--help"]),
        (JOURNALMGR, "journalmgr", ["config", "show", "--json"]),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirection", "says"),
    [
        (">&-", "standard output is closed"),
        (">&- <&-", "standard output is closed"),
        (">/dev/full", "standard output: No space left on device"),
    ],
)
def test_output_that_cannot_be_written_is_a_failure_that_names_it(
    program: str, name: str, words: list[str], redirection: str, says: str, unbuffered: str
) -> None:
    got = run(redirection, program, *words, unbuffered=unbuffered)
    assert got == (EXIT_FAILURE, b"", f"{name}: {says}\n".encode())


def test_more_than_a_buffer_of_output_fails_in_the_same_words() -> None:
    program = f"{BOOKKEEPER}; import bookkeeper.cli.config as config; config.run = lambda args: print('x' * 100000)"
    for redirection, says in ((">&-", "is closed"), (">/dev/full", "No space left on device")):
        code, _, err = run(redirection, program, "config", "show")
        assert (code, says in err.decode(), err.count(b"\n")) == (EXIT_FAILURE, True, 1)


def test_a_command_that_fails_says_that_and_that_its_output_is_lost() -> None:
    program = (
        f"{BOOKKEEPER}; import bookkeeper.cli.config as config; from bookkeeper.cli.output import CommandFailed\n"
        "def fail(args): print('half'); raise CommandFailed('the other half', 5)\n"
        "config.run = fail"
    )
    assert run(">&-", program, "config", "show") == (
        *(5, b""),
        b"bookkeeper: the other half\nbookkeeper: standard output is closed\n",
    )


def test_a_command_that_prints_nothing_needs_no_output() -> None:
    program = f"{BOOKKEEPER}; import bookkeeper.cli.config as config; config.run = lambda args: 0"
    assert run(">&- <&-", program, "config", "show") == (EXIT_OK, b"", b"")


def test_input_that_is_closed_is_named() -> None:
    code, out, err = run("<&-", JOURNALMGR, "fs", "put", "-", "/x")
    assert (code, out, err) == (EXIT_FAILURE, b"", b"journalmgr: standard input is closed\n")


def test_notes_do_not_get_among_the_data_where_standard_error_is_closed() -> None:
    program = (
        f"{BOOKKEEPER}; import bookkeeper.cli.config as config; from bookkeeper.cli.output import note\n"
        "config.run = lambda args: (note('a note'), print('data'))[0]"
    )
    assert run("2>&-", program, "config", "show") == (EXIT_OK, b"data\n", b"")
    assert run("2>&-", BOOKKEEPER, "config", "show", "--nonsense") == (EXIT_USAGE, b"", b"")


def test_a_file_that_is_opened_does_not_become_a_standard_stream() -> None:
    program = (
        f"{BOOKKEEPER}; import bookkeeper.cli.config as config; import os\n"
        "config.run = lambda args: os.open(os.devnull, os.O_RDONLY)"
    )
    code, _, _ = run(">&- <&-", program, "config", "show")
    assert code > 2


INTERRUPTED = """
import os, sys, signal
from bookkeeper.cli import output

output.prepare_streams()


class Interrupted(Exception):
    pass


def interrupt(frame, event, argument):
    if event == "return" and frame.f_code.co_name == "write":
        raise Interrupted
    return interrupt


sys.stdout.buffer.write(b"once\\n")
sys.settrace(interrupt)
try:
    sys.stdout.buffer.flush()
except Interrupted:
    pass
sys.settrace(None)
sys.stdout.flush()
"""


def test_what_is_written_when_an_interrupt_comes_is_not_written_once_more() -> None:
    """No method of Python stands between the buffer and the system, where Ctrl-C could end it after its work."""
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "once\n"
