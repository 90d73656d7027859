"""Run the embedded ZooKeeper: a real one, from the jars inside the pyspark package, on 127.0.0.1.

exit codes: 0 stopped by Ctrl-C or SIGTERM, also while it starts; 1 it did not start, or ended by itself; 2 usage

example:
  bookkeeper zookeeper --port 2181 --directory /var/lib/zookeeper
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.console.output import EXIT_OK, CommandFailed, note
from bookkeeper.console.subcommands import add_verbose, at_least
from bookkeeper.console.supervision import Child, stopping_on_signals, wait_for_signal
from bookkeeper.embedded.process import why_not_free
from bookkeeper.embedded.zookeeper import HEAP_MIB, HOST, JUTE_MAX_BUFFER_MIB, EmbeddedZooKeeper

PORT_MAX = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper zookeeper`."""
    add_verbose(parser)
    parser.add_argument("--port", type=port_number, default=2181, metavar="PORT",
                        help="client port; 0 picks a free one (default: %(default)s)")  # fmt: skip
    parser.add_argument("--directory", type=Path, help="where the data lives (default: a temporary directory)")
    parser.add_argument("--heap", type=at_least(64), default=HEAP_MIB, metavar="MIB",
                        help="memory for all znodes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--jute-maxbuffer", type=at_least(1), default=JUTE_MAX_BUFFER_MIB, metavar="MIB",
                        help="largest record; the end of a session with 100,000 ephemeral znodes needs 10 "
                        "(default: %(default)s)")  # fmt: skip


def port_number(text: str) -> int:
    """A TCP port of the command line, 0 included."""
    if not text.isascii() or not text.isdecimal() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; it must be in 0..{PORT_MAX}")
    return int(text)


def require_free(port: int, option: str) -> None:
    """Raise CommandFailed when nothing can listen on the port that `option` chose; 0 is chosen later."""
    if port and (reason := why_not_free(HOST, port, f"choose another with {option} (0 picks a free one)")) is not None:
        raise CommandFailed(reason)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    require_free(args.port, "--port")
    zookeeper = EmbeddedZooKeeper(
        data_dir=args.directory, port=args.port, heap_mib=args.heap, jute_max_buffer_mib=args.jute_maxbuffer
    )
    with stopping_on_signals(EXIT_OK), zookeeper as server:
        note(f"ZooKeeper serves on {server.address}, process {server.pid}, log {server.log_path}. Ctrl-C stops it.")
        wait_for_signal([Child("ZooKeeper", server.pid, server.log_path, vital=True)])
        note("Stopping.")
    return EXIT_OK
