"""Sub-commands whose options are looked up only when their name was typed; the option that all of them have.

What is wrong with a command line is said where it is wrong: an unknown option prints the usage of the sub-command it
was given to, and the option, or the command, that was probably meant.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any, NoReturn

from bookkeeper.console.output import EXIT_USAGE, CommandFailed

_PRIVATE_NAME = re.compile(r"invalid _\w+ value")
_WORDS = {"int": "not a whole number", "float": "not a number"}


SEEN_BY_OTHERS = "visible to other users in the list of processes; keep secrets in a file"
"""Part of the help text of an option that may contain a secret."""


class LazyParser(argparse.ArgumentParser):
    """A parser that calls `fill(self)` once, before it parses: with some thirty commands only one module is loaded.

    Texts keep their line ends, so that examples stay examples. outer: the parser of the command before this one, if its
    options could be meant.
    """

    def __init__(
        self,
        *args: Any,
        fill: Callable[[argparse.ArgumentParser], None] | None = None,
        outer: argparse.ArgumentParser | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})
        self.color = False  # of Python 3.14; a command's streams would escape the control characters
        self._fill = fill
        self._outer = outer

    def parse_known_args(  # type: ignore[override] # the overloads of the stub say no more than this
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Fill in the options, then parse. Words that nobody knows end here: an outer parser would show its usage."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with 2. Names of Python in it become words."""
        for name, words in _WORDS.items():
            message = message.replace(f"invalid {name} value: ", f"{words}: ")
        super().error(_PRIVATE_NAME.sub("invalid value", message))

    def _get_option_tuples(self, option_string: str) -> Any:
        """Return the options that a word may abbreviate, without refused options.

        argparse also calls this for words behind a command. There `-l` would be ambiguous among refused options.
        """
        return [each for each in super()._get_option_tuples(option_string) if not isinstance(each[0], Refusing)]

    def _unknown(self, words: Sequence[str]) -> str:
        message = f"unrecognized arguments: {' '.join(words)}"
        option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if option is None:
            return message
        if self._outer is not None and option in _options(self._outer):
            return f"{message}; {option} stands before the command: {self._outer.prog} {option} ..."
        near = next(
            (each for each in get_close_matches(option, _options(self), cutoff=_NEAR) if _may_mean(option, each)), None
        )
        return message + (f"; did you mean {near}?" if near else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does; of a mistyped command the one that was probably meant, instead of all there are."""
        if action.nargs == argparse.PARSER and action.choices is not None and value not in action.choices:
            near = get_close_matches(str(value), list(action.choices), n=1, cutoff=_NEAR)
            if near:
                raise argparse.ArgumentError(action, f"invalid choice: {value!r}; did you mean {near[0]}?")
        super()._check_value(action, value)


def take_single_dashes(parser: argparse.ArgumentParser) -> None:
    """Accept every long option of a parser with one dash as well, as Apache's programs do. --help shows two dashes."""
    known = parser._option_string_actions  # noqa: SLF001 - argparse has no other way to add names to an option
    for option in list(known):
        if option.startswith("--"):
            known.setdefault(option[1:], known[option])


class Refusing(argparse.Action):
    """An Apache option that ends the command with a reason. const: the reason. nargs: as in Apache's program."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, values: object, option: str | None = None) -> None:
        raise CommandFailed(f"{option}: {self.const}", EXIT_USAGE)


_NEAR = 0.75
"""How alike two words are that one may be a slip of; below it there are many accidents."""

_NEAR_DESTROYING = 0.9


def _may_mean(typed: str, option: str) -> bool:
    """False for an option that destroys, unless it was all but typed: a suggestion is easily followed."""
    destroys = any(word in option.lower() for word in ("delete", "force", "lose", "remove"))
    return not destroys or SequenceMatcher(None, typed, option).ratio() >= _NEAR_DESTROYING


def _options(parser: argparse.ArgumentParser) -> list[str]:
    # argparse keeps no public list of them; format_help() has them only as text.
    return list(parser._option_string_actions)  # noqa: SLF001


def at_least(minimum: int) -> Callable[[str], int]:
    """The `type` of an option that is a whole number from `minimum` on."""
    wanted = f"a whole number from {minimum} on"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}") from None
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{number} is not {wanted}")
        return number

    return parse


def check_range(first: int, last: int | None, words: str) -> None:
    """Raise CommandFailed for a last entry before the first one. words: the options that said so."""
    if last is not None and last < first:
        raise CommandFailed(f"{words}: the last entry, {last}, is before the first, {first}", EXIT_USAGE)


def add_o(parser: argparse.ArgumentParser) -> None:
    """-o for settings, as the services have it, beside the -D of the commands; where it means nothing else."""
    parser.add_argument(
        "-o", dest="defines", action="append", metavar="KEY=VALUE", help="the same as -D, repeatable", default=[]
    )


def add_json_again(parser: argparse.ArgumentParser, *others: str, text: str = "JSON instead of text") -> None:
    """--json after the sub-command too; what was said before it stands."""
    parser.add_argument("--json", *others, action="store_true", default=argparse.SUPPRESS, help=text)


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """-v. The main program looks for it among the words itself, so it may stand anywhere."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="show where an error came from"
    )
