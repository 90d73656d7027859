"""Why is that so? What is the matter, who is at work on it, what happens next, and what to do.

  ledger N     who holds its entries, by what each bookie says; marks, locks and auditor of auto-recovery
  disk         a bookie's directories: how full, whose files, what follows
  readonly     why a bookie takes no entries, since when, and when it will again
  space        why the space of deleted ledgers does not come back
  topic NAME   until when messages of a topic are kept and why, what is gone

`disk`, `readonly` and `space` are for a bookie's own host: they read its conf file (--conf), its directories, the
status file that it keeps in <journal directory>/current, and the metadata store; also while HTTP is off, and after it
died.

examples:
  bookkeeper why ledger 7
  bookkeeper why ledger 7 --uri zk+hierarchical://zk1:2181/ledgers --json
  bookkeeper why ledger 7 --ask recovery-host:8001     by another address than it says in the metadata store
  bookkeeper why readonly --conf conf/bk_server.conf
  bookkeeper why disk --conf conf/bk_server.conf
  bookkeeper why space --conf conf/bk_server.conf
  bookkeeper why topic news --conf conf/hw_server.conf

--json has "healthy": true nothing needs to be done; false something is wrong; null that could not be found out (a
bookie did not tell what it holds, say), which is no yes: "do" then names what brings the answer

exit codes: 0 there is an answer, whatever "healthy" is; 1 there is none, as without a metadata store; 2 usage
"""

from __future__ import annotations

import argparse
from functools import partial

from bookkeeper.cli.why import plugins
from bookkeeper.cli.why.explanation import Explanation
from bookkeeper.console.connection import add_connection_arguments
from bookkeeper.console.output import EXIT_OK, print_json, print_line
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, LazyParser, add_json_again, add_o, add_verbose, at_least

SUBJECTS = {
    "ledger": ("who holds a ledger's entries, who repairs it", "why ledger 7"),
    "disk": ("how full a bookie's disks are, and what follows", "why disk --conf conf/bk_server.conf"),
    "readonly": ("why a bookie takes no entries", "why readonly --conf conf/bk_server.conf"),
    "space": ("why space does not come back", "why space --conf conf/bk_server.conf"),
}

OBSERVE_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subjects."""
    add_connection_arguments(parser)
    add_o(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    subjects = parser.add_subparsers(dest="about", metavar="SUBJECT", required=True, parser_class=LazyParser)
    for name, (summary, _) in SUBJECTS.items():
        subjects.add_parser(name, help=summary, description=summary, fill=partial(_fill, name), outer=parser)
    for name, module in plugins.subjects().items():
        if name not in SUBJECTS:
            summary = plugins.summary(module)
            subjects.add_parser(
                name, help=summary, description=summary, fill=partial(_fill_other, module), outer=parser
            )


def _fill_other(module: str, parser: argparse.ArgumentParser) -> None:
    subject = plugins.subject(module)
    parser.epilog = f"example:\n  bookkeeper {subject.EXAMPLE}"
    _again(parser, subject.CONF)
    subject.add_arguments(parser)
    add_json_again(parser, text="one JSON document instead of text")
    add_verbose(parser)


def _fill(name: str, parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"example:\n  bookkeeper {SUBJECTS[name][1]}"
    _again(parser, "the bookie's conf file")
    if name == "ledger":
        parser.add_argument("ledger_id", type=at_least(0), metavar="LEDGER")
        parser.add_argument(
            "--observe",
            type=float,
            default=OBSERVE_S,
            metavar="SECONDS",
            help="how long to watch an open ledger for progress (default: %(default)g)",
        )
        parser.add_argument(
            "--ask",
            type=_address,
            action="append",
            default=[],
            metavar="HOST:PORT",
            help="HTTP server of a process with auto-recovery, besides those that the metadata store knows, repeatable",
        )
    add_json_again(parser, text="one JSON document instead of text")
    add_verbose(parser)


def _address(text: str) -> tuple[str, int]:
    from bookkeeper.system.hosts import check_no_number

    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    try:
        return check_no_number(host).removeprefix("[").removesuffix("]"), int(port)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _again(parser: argparse.ArgumentParser, conf: str) -> None:
    """The options of the cluster after the subject too; what was said before it stands."""
    from pathlib import Path

    parser.add_argument("--uri", default=argparse.SUPPRESS, help="metadata service URI")
    parser.add_argument("--conf", type=Path, metavar="FILE", default=argparse.SUPPRESS, help=conf)
    parser.add_argument(
        "-D",
        "-o",
        dest="more_defines",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"one setting, repeatable; {SEEN_BY_OTHERS}",
    )


def run(args: argparse.Namespace) -> int:
    """Find out, and say it."""
    args.defines = [*args.defines, *args.more_defines]
    explanation = _explain(args)
    if args.json:
        print_json(explanation.json())
    else:
        for line in explanation.lines():
            print_line(line)
    return EXIT_OK


def _explain(args: argparse.Namespace) -> Explanation:
    if args.about == "ledger":
        from bookkeeper.cli.why.ledger import explain_ledger
        from bookkeeper.cli.why.ledger_facts import find_out as find_out_ledger

        return explain_ledger(find_out_ledger(args))
    if args.about not in SUBJECTS:
        return plugins.subject(plugins.subjects()[args.about]).explain(args)
    from bookkeeper.cli.why.host import explain_disk, explain_readonly
    from bookkeeper.cli.why.host_facts import find_out
    from bookkeeper.cli.why.space import explain_space

    explain = {"disk": explain_disk, "readonly": explain_readonly, "space": explain_space}[args.about]
    return explain(find_out(args))
