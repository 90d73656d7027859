"""Files and directories of a name node: looked at and changed through its servers' HTTP interface.

The active server is found among those given, also while another one takes over; a change that has to be sent again
happens once all the same. Content is at most some 16 KB for each file: this name node keeps it itself.

Words are those of `hdfs dfs`: a path that does not begin with a slash is below /user/NAME, the directory of who asks;
* ? [a-z] {one,other} in a path of what is there are patterns (in quotes of the shell; \\ before one takes it as it is);
and an action may be written with a hyphen before it, as -ls.

examples:
  export JM_SERVER=127.0.0.1:9870,127.0.0.1:9871
  journalmgr fs mkdir -p /logs/today
  echo hello | journalmgr fs put - /logs/today/greeting
  journalmgr fs ls -R /logs
  journalmgr fs mv /logs/today /logs/yesterday
  journalmgr fs status                               which server is active
"""

from __future__ import annotations

import argparse
import importlib
import os
import pwd
import re

from bookkeeper.console.output import EXIT_USAGE, CommandFailed
from bookkeeper.console.subcommands import add_json_again, add_verbose, at_least

SERVER_DEFAULT = "127.0.0.1:9870"
SERVER_VARIABLE = "JM_SERVER"
USER_VARIABLE = "HADOOP_USER_NAME"
WAIT_DEFAULT_S = 30

_HYPHENED = re.compile(r"-[A-Za-z]\w+")
"""An action as `hdfs dfs` writes it. The options of `fs` have one letter, or two hyphens."""

VERBOSE = "show where an error came from"

ALIASES = {"copyFromLocal": "put", "copyToLocal": "get"}
"""Other names of actions."""

ENCODINGS = ("text", "hex", "base64")
"""In which `getfattr` shows values; those of `hdfs dfs -getfattr -e`."""

REFUSED = {
    **{name: name.upper() for name in ("createSnapshot", "deleteSnapshot", "renameSnapshot", "truncate")},
    **{name: name.upper() for name in ("allowSnapshot", "disallowSnapshot")},
    "checksum": "GETFILECHECKSUM",
    "expunge": "GETTRASHROOT",
}
"""Actions of `hdfs dfs` and `hdfs dfsadmin` that `fs` lacks -> key of UNSUPPORTED, which has the alternatives."""

EXAMPLES = {
    "mkdir": """\
  journalmgr fs mkdir /logs
  journalmgr fs mkdir -p /a/b/c                      with all above it; no matter if it exists
""",
    "put": """\
  journalmgr fs put today.conf /conf/today           a file
  date | journalmgr fs put -f - /stamp               standard input; replaces what is there
  date | journalmgr fs put -a - /stamp               appended to what is there
  journalmgr fs put a.conf b.conf /conf              into a directory
""",
    "get": """\
  journalmgr fs get /conf/today today.conf           a file
  journalmgr fs get '/conf/*' .                      into a directory of this machine
""",
    "cat": "  journalmgr fs cat /conf/today /stamp\n",
    "ls": """\
  journalmgr fs ls                                   the directory of the user
  journalmgr fs ls -h '/logs/2024-*'                 by name; sizes as 1.5 K
  journalmgr fs ls -R /logs --json                   the whole tree, as one JSON document
  journalmgr fs ls -d /logs                          the directory itself
""",
    "mv": """\
  journalmgr fs mv /a /b                             into /b, if that is a directory
  journalmgr fs mv -f /new /current                  replaces a file of that name
""",
    "rm": """\
  journalmgr fs rm /logs/old
  journalmgr fs rm -r /logs --dry-run                what would go
  journalmgr fs rm -r -f /logs                       without a question, which only a terminal is asked
""",
    "rmdir": "  journalmgr fs rmdir /logs/empty\n",
    "test": "  journalmgr fs test -d /logs && echo yes\n",
    "touchz": "  journalmgr fs touchz /done\n",
    "stat": "  journalmgr fs stat /logs --json\n",
    "chmod": "  journalmgr fs chmod 750 /logs\n",
    "chown": """\
  journalmgr fs chown ann /logs
  journalmgr fs chown ann:staff /logs
  journalmgr fs chown :staff /logs                   the group alone
""",
    "touch": """\
  journalmgr fs touch /done                          made if it is missing; else its times are now
  journalmgr fs touch -p /a/b/done                   with all directories above
""",
    "ln": "  journalmgr fs ln -s /logs/today /current\n",
    "setrep": "  journalmgr fs setrep 2 /conf/today\n",
    "setfattr": """\
  journalmgr fs setfattr -n user.origin -v import /conf/today
  journalmgr fs setfattr -n user.code -v '"0x00ff"' /conf/today      text, whatever it looks like
  journalmgr fs setfattr -n user.key -v 0x00ff /conf/today           two bytes
  journalmgr fs setfattr -n user.key -v 0sAP8= /conf/today           the same two
  journalmgr fs setfattr -x user.origin /conf/today                  takes it away
""",
    "getfattr": """\
  journalmgr fs getfattr -n user.origin /conf/today
  journalmgr fs getfattr -d /conf/today              all of them
  journalmgr fs getfattr -R -d -e hex /conf          of all below too, in hexadecimal digits
""",
    "setfacl": """\
  journalmgr fs setfacl -m user:carla:rw-,default:user:carla:r-x /logs
  journalmgr fs setfacl -x user:carla /logs
  journalmgr fs setfacl --set user::rwx,group::r-x,other::--- /logs
  journalmgr fs setfacl -b /logs                     only the mode is left
""",
    "getfacl": "  journalmgr fs getfacl /logs\n",
    "quota": """\
  journalmgr fs quota /logs                          limits, and what is used
  journalmgr fs quota --names 1000 --space 1000000 /logs
  journalmgr fs quota --names none /logs             takes the limit away
""",
    "du": "  journalmgr fs du /logs                             bytes of each entry\n",
    "count": "  journalmgr fs count /logs                          directories, files, bytes\n",
    "status": "  journalmgr fs status --json\n",
    "fingerprint": "  journalmgr fs fingerprint                          do all servers have the same state?\n",
}
"""What the help of an action shows at its end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands of `journalmgr fs`."""
    _add_servers(parser, again=False)
    add_verbose(parser)
    parser.add_argument("--json", "-J", action="store_true", help="JSON instead of text; after the action too")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _names(actions)
    _content(actions)
    _attributes(actions)
    _trees(actions)
    _action(actions, "status", "role and txids of each server; exit code 1 where none is active")
    _action(actions, "fingerprint", "state of each server as one number; exit code 1 where two differ at the same txid")


def arrange(words: list[str]) -> list[str]:
    """Return the words of the command without the hyphen that `hdfs dfs` writes before an action.

    Raises CommandFailed, with an alternative, for an action of Hadoop that `fs` lacks.
    """
    for position, word in enumerate(words):
        if position and words[position - 1] in ("--server", "--user", "--wait"):
            continue  # a value
        action = word[1:] if _HYPHENED.fullmatch(word) else word
        if action in REFUSED:
            from journalmgr.namenode.http.operations import UNSUPPORTED

            raise CommandFailed(f"fs {action}: {UNSUPPORTED[REFUSED[action]]}", EXIT_USAGE)
        if not action.startswith("-"):
            return [*words[:position], action, *words[position + 1 :]]
    return words


def _names(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    mkdir = _action(actions, "mkdir", "make directories")
    mkdir.add_argument("-p", dest="parents", action="store_true", help="with all above; one that exists will do")
    mkdir.add_argument("--mode", type=_mode, metavar="OCTAL", default=0o755, help="its mode (default: 755)")
    _paths(mkdir)
    ls = _action(actions, "ls", "list directories", h_is_taken=True)
    _human(ls)
    ls.add_argument("-R", dest="recursive", action="store_true", help="with all below")
    ls.add_argument("-d", dest="itself", action="store_true", help="the directory itself, not what is in it")
    _paths(ls, default=".")
    mv = _action(actions, "mv", "give another name")
    mv.add_argument(
        "-f", dest="force", action="store_true", help="replace what has that name: a file, or an empty directory"
    )
    _paths(mv)
    mv.add_argument("destination", metavar="DESTINATION")
    rm = _action(actions, "rm", "delete")
    rm.add_argument("-r", "-R", dest="recursive", action="store_true", help="with all below")
    rm.add_argument("-f", "--force", action="store_true", help="do not ask, and say nothing of what is not there")
    rm.add_argument("--dry-run", action="store_true", help="say what would be deleted")
    rm.add_argument("-skipTrash", action="store_true", help="changes nothing: there is no trash here")
    _paths(rm)
    rmdir = _action(actions, "rmdir", "delete empty directories")
    rmdir.add_argument(
        "--ignore-fail-on-non-empty", dest="lenient", action="store_true", help="leave one that is not empty in peace"
    )
    _paths(rmdir)
    ln = _action(actions, "ln", "make a symbolic link")
    ln.add_argument("-s", dest="symbolic", action="store_true", required=True, help="there is no other kind")
    ln.add_argument("target", metavar="TARGET")
    ln.add_argument("path", metavar="LINK")


def _content(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    put = _action(actions, "put", "write a file")
    how = put.add_mutually_exclusive_group()
    how.add_argument("-f", "--force", action="store_true", help="replace what is there")
    how.add_argument("-a", "--append", action="store_true", help="append to what is there")
    put.add_argument("sources", nargs="+", metavar="FILE", help="- for standard input")
    put.add_argument("path", metavar="PATH", help="a file, or the directory for those of the same names")
    get = _action(actions, "get", "copy files to this machine")
    get.add_argument("-f", "--force", action="store_true", help="replace what is there")
    _paths(get)
    get.add_argument("local", metavar="LOCAL", help="a file, or the directory for those of the same names")
    _paths(_action(actions, "cat", "print files"))
    touch = _action(actions, "touch", "make an empty file, or set the times of what is there to now")
    touch.add_argument("-p", dest="parents", action="store_true", help="with all directories above")
    _paths(touch)
    _paths(_action(actions, "touchz", "make an empty file; one that is there must be empty"))


def _attributes(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _paths(_action(actions, "stat", "everything about an inode"))
    test = _action(actions, "test", "say with the exit code, 0 or 1, what there is")
    which = test.add_mutually_exclusive_group(required=True)
    which.add_argument("-e", dest="test", action="store_const", const="e", help="anything")
    which.add_argument("-d", dest="test", action="store_const", const="d", help="a directory")
    which.add_argument("-f", dest="test", action="store_const", const="f", help="a file")
    which.add_argument("-s", dest="test", action="store_const", const="s", help="a file that is not empty")
    which.add_argument("-z", dest="test", action="store_const", const="z", help="a file that is empty")
    test.add_argument("path", metavar="PATH")
    chmod = _action(actions, "chmod", "set the mode")
    chmod.add_argument("mode", type=_mode, metavar="OCTAL")
    _paths(chmod)
    chown = _action(actions, "chown", "set the owner, the group, or both")
    chown.add_argument("owner", metavar="[OWNER][:GROUP]")
    _paths(chown)
    setrep = _action(actions, "setrep", "set the number of copies")
    setrep.add_argument("replication", type=at_least(1), metavar="COPIES")
    _paths(setrep)
    setfattr = _action(actions, "setfattr", "set or remove an extended attribute", v_is_taken=True)
    which = setfattr.add_mutually_exclusive_group(required=True)
    which.add_argument("-n", dest="name", metavar="NAME", help="with its namespace: user.NAME, trusted.NAME ...")
    which.add_argument("-x", dest="removed", metavar="NAME", help="remove this one")
    setfattr.add_argument(
        "-v",
        "--value",
        metavar="VALUE",
        help='text, "text" in quotes of its own, 0x and hexadecimal digits, or 0s and base64 (default: none)',
    )
    _paths(setfattr)
    getfattr = _action(actions, "getfattr", "show extended attributes")
    which = getfattr.add_mutually_exclusive_group(required=True)
    which.add_argument("-n", dest="name", metavar="NAME")
    which.add_argument("-d", dest="dump", action="store_true", help="all of them")
    getfattr.add_argument("-R", dest="recursive", action="store_true", help="of all below too")
    getfattr.add_argument(
        "-e",
        dest="encoding",
        type=str.lower,
        choices=ENCODINGS,
        help="of all values (default: text where it is some, else hex)",
    )
    _paths(getfattr)
    setfacl = _action(actions, "setfacl", "change an access control list")
    which = setfacl.add_mutually_exclusive_group(required=True)
    which.add_argument("-m", dest="modified", metavar="ENTRIES", help="replace or add these")
    which.add_argument("-x", dest="removed", metavar="ENTRIES", help="remove these; without permissions")
    which.add_argument("--set", dest="whole", metavar="ENTRIES", help="the whole list")
    which.add_argument("-b", dest="bare", action="store_true", help="only the mode is left")
    which.add_argument("-k", dest="no_default", action="store_true", help="remove the default list")
    _paths(setfacl)
    _paths(_action(actions, "getfacl", "show access control lists"))


def _trees(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    quota = _action(actions, "quota", "show or set the limits of a directory tree")
    quota.add_argument("--names", type=_limit, metavar="N", help="inodes; none: no limit")
    quota.add_argument("--space", type=_limit, metavar="BYTES", help="of all copies; none: no limit")
    _paths(quota)
    for name, summary in (
        ("du", "bytes of each entry of a directory"),
        ("count", "directories, files and bytes of a tree"),
    ):
        parser = _action(actions, name, summary, h_is_taken=True)
        _human(parser)
        _paths(parser)


def _human(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-h", dest="human", action="store_true", help="sizes in units, as 1.5 K; JSON has bytes")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    *,
    v_is_taken: bool = False,
    h_is_taken: bool = False,
) -> argparse.ArgumentParser:
    """v_is_taken: -v means something else there, and only --verbose is left; h_is_taken: so does -h."""
    parser = actions.add_parser(
        name,
        aliases=[alias for alias, meant in ALIASES.items() if meant == name],
        help=summary,
        description=summary,
        epilog=f"examples:\n{EXAMPLES[name]}",
        add_help=not h_is_taken,
    )
    if h_is_taken:
        parser.add_argument("--help", action="help", help="show this help message and exit")
    _add_servers(parser, again=True)
    if v_is_taken:
        parser.add_argument("--verbose", action="store_true", default=argparse.SUPPRESS, help=VERBOSE)
    else:
        add_verbose(parser)
    add_json_again(parser, "-J")
    return parser


def _add_servers(parser: argparse.ArgumentParser, *, again: bool) -> None:
    group = parser.add_argument_group("servers")
    group.add_argument(
        "--server",
        metavar="HOST:PORT[,HOST:PORT]",
        default=argparse.SUPPRESS if again else None,
        help=f"(default: {SERVER_VARIABLE} from the environment, else {SERVER_DEFAULT})",
    )
    group.add_argument(
        "--user",
        default=argparse.SUPPRESS if again else None,
        help=f"who asks (default: {USER_VARIABLE} from the environment, else the name of the login)",
    )
    group.add_argument(
        "--wait",
        type=at_least(0),
        metavar="SECONDS",
        default=argparse.SUPPRESS if again else WAIT_DEFAULT_S,
        help=f"how long to look for an active server; each is asked once at least (default: {WAIT_DEFAULT_S})",
    )


def _paths(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    if default is None:
        parser.add_argument("paths", nargs="+", metavar="PATH")
    else:
        parser.add_argument("paths", nargs="*", metavar="PATH", default=[default], help=f"(default: {default})")


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o1777:
        raise argparse.ArgumentTypeError(f"{text!r} is no mode: an octal number from 0 to 1777")
    return mode


def _limit(text: str) -> int:
    return -1 if text == "none" else at_least(0)(text)


def servers_of(args: argparse.Namespace) -> list[str]:
    """The addresses of a command line. Raises CommandFailed."""
    text = args.server or os.environ.get(SERVER_VARIABLE) or SERVER_DEFAULT
    servers = [server.strip() for server in text.split(",") if server.strip()]
    if not servers:
        raise CommandFailed(f"{text!r} names no server: write HOST:PORT[,HOST:PORT]", EXIT_USAGE)
    return servers


def user_of(args: argparse.Namespace) -> str:
    """Who asks, as Hadoop's clients have it. Raises CommandFailed for a process whose user has no name.

    Differs from the server, which takes whoever does not say for dr.who.
    """
    named = args.user or os.environ.get(USER_VARIABLE)
    if named:
        return server_text(named)
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise CommandFailed(
            f"the user of this process, {os.geteuid()}, has no name: say --user NAME, or set {USER_VARIABLE}",
            EXIT_USAGE,
        ) from None


LOCAL_WORDS = frozenset({"sources", "local"})
"""Arguments that name files of this machine. Their bytes are used as typed, in any encoding."""


def server_text(word: str) -> str:
    """Return a word of the command line as text for a server. Its bytes must be UTF-8 in every locale.

    Raises CommandFailed.
    """
    typed = os.fsencode(word)
    try:
        return typed.decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{typed!r} is not UTF-8; names must be UTF-8 text", EXIT_USAGE) from error


def decode_words(args: argparse.Namespace) -> None:
    """Decode all arguments except `LOCAL_WORDS` as text for a server. Raises CommandFailed."""
    for name, value in vars(args).items():
        if name in LOCAL_WORDS:
            continue
        if isinstance(value, str):
            setattr(args, name, server_text(value))
        elif isinstance(value, list):
            setattr(args, name, [server_text(each) if isinstance(each, str) else each for each in value])


def absolute(path: str, user: str) -> str:
    """A path as it was typed, from the root on: as Hadoop's clients do, below /user/NAME. Raises CommandFailed."""
    if path.startswith("/"):
        return path
    if not path:
        raise CommandFailed("a path is empty: write /PATH, or . for the directory of the user", EXIT_USAGE)
    if "://" in path:
        raise CommandFailed(f"{path}: write the path alone, as /PATH; --server says whose it is", EXIT_USAGE)
    below = [name for name in path.split("/") if name not in ("", ".")]
    return "/".join(["/user", user, *below])


def run(args: argparse.Namespace) -> int:
    """Carry the action out."""
    return int(importlib.import_module("journalmgr.cli.fs_actions").run(args))
