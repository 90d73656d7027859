"""Lines of the file that `bookiePasswordFile` names: who may connect to a bookie, and with which password.

The password is asked for twice, or read from standard input if that is no terminal. Only a salted, slow hash of it is
printed. Set `umask 077` first: such files are for their owner alone.

examples:
  bookkeeper auth line alice >> users                           asks for the password

  echo "bob:$(openssl rand -hex 16)" > bob                      bob's clientPasswordFile
  cut -d : -f 2- bob | bookkeeper auth line bob >> users        ... and his line of the bookie's
"""

from __future__ import annotations

import argparse
import getpass
import sys

from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed
from bookkeeper.console.subcommands import LazyParser, add_verbose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper auth`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=LazyParser)
    line = actions.add_parser("line", help="print the line of one user", description="Print the line of one user.")
    line.add_argument("user", metavar="USER", help="name, without white space and ':'")
    add_verbose(line)


def run(args: argparse.Namespace) -> int:
    """Print the line."""
    from bookkeeper.auth.passwords import check_user, hash_password

    try:
        user = check_user(args.user)
        print(f"{user}:{hash_password(_password().encode())}")
    except ValueError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    return EXIT_OK


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise CommandFailed("the two are not the same")
    return password
