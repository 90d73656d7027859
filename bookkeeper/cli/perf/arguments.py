"""Options that several measurements share, and their types."""

from __future__ import annotations

import argparse
import contextlib
import math

from bookkeeper.cli.perf.worker import Replication
from bookkeeper.console.connection import DIGESTS, digest_type_of
from bookkeeper.console.ledger_options import ENSEMBLE, QUORUM, quorums_of
from bookkeeper.console.output import EXIT_USAGE, CommandFailed
from bookkeeper.console.subcommands import at_least
from bookkeeper.model import FRAME_SIZE_MAX_DEFAULT, DigestType
from bookkeeper.wire.entry_size import entry_body_size_max, payload_size_max


def boolean(text: str) -> bool:
    """true or false."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text}: true or false")
    return text.lower() == "true"


def duration(text: str) -> float:
    """Seconds above 0."""
    return _above_zero(text, "seconds")


def minutes(text: str) -> float:
    """Minutes above 0."""
    return _above_zero(text, "minutes")


def share(text: str) -> float:
    """Above 0, below 1."""
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < 1:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} must be above 0 and below 1")


def _above_zero(text: str, unit: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} must be a number of {unit} above 0")


def add_quorums(group: argparse._ArgumentGroup) -> None:
    """-ensemble, -quorum, -ackQuorum, --digest: how new ledgers are replicated and checked."""
    group.add_argument(
        "-ensemble", type=at_least(1), default=ENSEMBLE, metavar="E", help="bookies (default: %(default)s)"
    )
    group.add_argument("-quorum", type=at_least(1), metavar="QW",
                       help=f"copies (default: {QUORUM}, or fewer if -ensemble is smaller)")  # fmt: skip
    group.add_argument("-ackQuorum", type=at_least(1), metavar="QA",
                       help=f"copies to wait for (default: {QUORUM}, or fewer if -quorum is smaller)")  # fmt: skip
    group.add_argument("--digest", choices=DIGESTS, default="crc32c", help="checksum (default: %(default)s)")


def add_entry_size(group: argparse._ArgumentGroup | argparse.ArgumentParser, *, least: int, default: int) -> None:
    """Add -entrysize, the payload bytes of an entry; `check_entry_size` checks its limit."""
    group.add_argument("-entrysize", type=at_least(least), default=default, metavar="BYTES",
                       help=f"payload, at most {payload_size_max(FRAME_SIZE_MAX_DEFAULT):,} with any --digest and "
                            "the default nettyMaxFrameSizeBytes (default: %(default)s)")  # fmt: skip


def check_entry_size(entry_size: int, replication: Replication, frame_size_max: int = FRAME_SIZE_MAX_DEFAULT) -> None:
    """Refuse an entry that no write handle would accept. Raises CommandFailed."""
    from bookkeeper.wire.digest import digest_of

    limit = entry_body_size_max(frame_size_max) - digest_of(DigestType[replication.digest], b"").overhead
    if entry_size > limit:
        raise CommandFailed(f"an entry of {entry_size:,} bytes: at most {limit:,} fit into a frame", EXIT_USAGE)


def replication_of(args: argparse.Namespace) -> Replication:
    """What these options say. Raises CommandFailed for quorums that cannot be."""
    quorums = quorums_of(args.ensemble, args.quorum, args.ackQuorum)
    return Replication(quorums.ensemble, quorums.write, quorums.ack, digest_type_of(args.digest).name)
