"""How commands that make ledgers read their options: quorums that follow the ensemble, passwords from a file."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.console.output import EXIT_USAGE, CommandFailed

ENSEMBLE = 3
QUORUM = 2
"""Copies, and copies to wait for, where the ensemble has room for them."""

QUORUM_DEFAULT = f"{QUORUM}, or fewer if --ensemble is smaller"
ACK_QUORUM_DEFAULT = f"{QUORUM}, or fewer if the write quorum is smaller"

PASSWORD_FILE_SIZE_MAX = 4096
PASSWORD_MEANING = """\
A password keeps others from writing to the ledger and from fencing it. It does not
encrypt anything: it stands in the ledger's metadata as it is. Without these options the
setting `passwd` counts (BK_passwd in the environment), which is empty by default."""


@dataclass(frozen=True, slots=True)
class Quorums:
    """ensemble >= write >= ack >= 1."""

    ensemble: int
    write: int
    ack: int


def quorums_of(ensemble: int, write: int | None, ack: int | None) -> Quorums:
    """The quorums of a new ledger; those not given fit themselves to what is. Raises CommandFailed where none can."""
    write = min(QUORUM, ensemble) if write is None else write
    ack = min(QUORUM, write) if ack is None else ack
    if not ensemble >= write >= ack >= 1:
        raise CommandFailed(
            f"ensemble {ensemble}, write quorum {write}, ack quorum {ack}: "
            "need ensemble >= write quorum >= ack quorum >= 1",
            EXIT_USAGE,
        )
    return Quorums(ensemble, write, ack)


def add_password_arguments(parser: argparse.ArgumentParser) -> None:
    """--password and --password-file."""
    group = parser.add_argument_group("password", PASSWORD_MEANING).add_mutually_exclusive_group()
    group.add_argument(
        "--password",
        metavar="TEXT",
        help="the ledger's; other users of this machine see it in the list of processes (default: see above)",
    )
    group.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="the ledger's, out of a file; a line end at its end does not count (default: see above)",
    )


def password_of(args: argparse.Namespace) -> bytes | None:
    """What the command line says is the password; None: nothing, the settings' counts. Raises CommandFailed."""
    if args.password is not None:
        return str(args.password).encode()
    if args.password_file is None:
        return None
    return read_password(args.password_file)


def read_password(path: Path) -> bytes:
    """Return the password in the file that --password-file names. Raises CommandFailed."""
    try:
        with path.open("rb") as file:
            data = file.read(PASSWORD_FILE_SIZE_MAX + 1)
    except OSError as error:
        raise CommandFailed(f"--password-file {path}: cannot be read: {error.strerror}") from error
    if len(data) > PASSWORD_FILE_SIZE_MAX:
        raise CommandFailed(f"--password-file {path}: larger than {PASSWORD_FILE_SIZE_MAX} bytes, which no password is")
    return data.removesuffix(b"\n").removesuffix(b"\r")
