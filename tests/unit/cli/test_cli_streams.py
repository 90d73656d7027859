"""Standard streams that are closed or full: said in words, and never an exit code of 0 for what did not arrive."""

import os
import subprocess
import sys

import pytest

from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, EXIT_USAGE

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
        f"{BOOKKEEPER}; import bookkeeper.cli.config as config; from bookkeeper.console.output import CommandFailed\n"
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
        f"{BOOKKEEPER}; import bookkeeper.cli.config as config; from bookkeeper.console.output import note\n"
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
from bookkeeper.console import output

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
    """No Python method stands between the buffer and the system, so Ctrl-C cannot interrupt one after the write."""
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "once\n"


HOSTILE = "x\x1b]0;title\x07\x1b[2J\x9b2J\x7f\u202ename\u2066\u061c\u2028y"
SHOWN = r"x\u001b]0;title\u0007\u001b[2J\u009b2J\u007f\u202ename\u2066\u061c\u2028y"
SAYS = (
    f"{BOOKKEEPER}; import bookkeeper.cli.config as config; from bookkeeper.console import output as o; import sys\n"
    f"name = {HOSTILE!a}\n"
    "config.run = lambda args: "
)


def said(what: str, redirection: str = "") -> tuple[int, str, str]:
    code, out, err = run(redirection, SAYS + what, "config", "show")
    return code, out.decode(), err.decode()


def test_no_text_of_a_command_has_control_characters() -> None:
    assert said("print(name)") == (EXIT_OK, f"{SHOWN}\n", "")
    assert said("print(name, file=sys.stderr)") == (EXIT_OK, "", f"{SHOWN}\n")
    assert said("o.note(name)") == (EXIT_OK, "", f"{SHOWN}\n")
    assert said("o.print_table(['n'], [[name]])") == (EXIT_OK, f"n\n{SHOWN}\n", "")
    assert said("o.print_json_line([name])") == (EXIT_OK, f'["{SHOWN}"]\n', "")
    failure = "(_ for _ in ()).throw(o.CommandFailed(name))"
    assert said(failure) == (EXIT_FAILURE, "", f"bookkeeper: {SHOWN}\n")
    unexpected = "(_ for _ in ()).throw(ZeroDivisionError(name))"
    assert said(unexpected) == (
        EXIT_FAILURE,
        "",
        f"bookkeeper: ZeroDivisionError: {SHOWN} (-v shows where)\n",
    )


def test_no_text_of_a_command_forges_a_line() -> None:
    assert said("o.print_line('a\\nb\\r\\tc')") == (EXIT_OK, "a\\nb\\r\\tc\n", "")
    assert said("o.print_table(['n'], [['a\\nb']])") == (EXIT_OK, "n\na\\nb\n", "")
    assert said("o.note('a\\nbookkeeper: b\\n  c')") == (EXIT_OK, "", "a\n  bookkeeper: b\n  c\n")
    failure = "(_ for _ in ()).throw(o.CommandFailed('a\\nbookkeeper: b'))"
    assert said(failure) == (EXIT_FAILURE, "", "bookkeeper: a\n  bookkeeper: b\n")


def test_data_that_is_asked_for_is_written_unchanged() -> None:
    code, out, _ = run("", f"{SAYS}sys.stdout.buffer.write(b'\\x1b[2J\\xff\\x00') and 0", "config", "show")
    assert (code, out) == (EXIT_OK, b"\x1b[2J\xff\x00")


def test_the_usage_of_a_command_that_was_typed_wrong_has_no_control_characters() -> None:
    code, _, err = run("", BOOKKEEPER, "config", "show", "--\x1b[2J\u202e")
    assert code == EXIT_USAGE
    assert err.decode().replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, b"\\u00fc\\u540d\\ud83d\\ude00"),
        ({"PYTHONIOENCODING": "latin-1"}, b"\xfc\\u540d\\ud83d\\ude00"),
        ({"PYTHONIOENCODING": "utf-8"}, "ü名😀".encode()),
    ],
)
def test_a_name_that_the_encoding_lacks_is_escaped_and_a_listing_continues(
    encoding: dict[str, str], shown: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in encoding.items():
        monkeypatch.setenv(name, value)
    rows = "[print(n) or o.print_json_line(n) or o.note(n) for n in ('\\xfc\\u540d\\U0001f600', 'last')] and 0"
    code, out, err = run("", SAYS + rows, "config", "show")
    assert code == EXIT_OK
    assert out == shown + b'\n"' + shown + b'"\nlast\n"last"\n'
    assert err == shown + b"\nlast\n"
