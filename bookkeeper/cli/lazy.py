"""Sub-commands whose options are looked up only when their name was typed; the option that all of them have."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any


class LazyParser(argparse.ArgumentParser):
    """A parser that calls `fill(self)` once, before it parses: with some thirty commands only one module is loaded.

    Texts keep their line ends, so that examples stay examples.
    """

    def __init__(
        self, *args: Any, fill: Callable[[argparse.ArgumentParser], None] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})
        self._fill = fill

    def parse_known_args(  # type: ignore[override] # the overloads of the stub say no more than this
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Fill in the options, then parse."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)
        return super().parse_known_args(args, namespace)


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """-v. The main program looks for it among the words itself, so it may stand anywhere."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="show where an error came from"
    )
