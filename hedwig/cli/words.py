"""Words of a command line whose operands may stand anywhere: `hedwig pub photos -H kind=image cat.jpg dog.jpg`.

argparse gives all operands that may be missing the words of the first run of them, and refuses those behind an option.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

AddArguments = Callable[[argparse.ArgumentParser], None]


def operands_last(words: Sequence[str], add_arguments: AddArguments) -> list[str]:
    """The same words: options with their values first, then the operands, both in their order."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    # argparse keeps no public list of them.
    actions = parser._option_string_actions  # noqa: SLF001
    options: list[str] = []
    operands: list[str] = []
    waiting = list(words)
    ended = False
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            operands += waiting
            ended = True
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            continue
        options.append(word)
        if _wants_value(word, actions) and waiting:
            options.append(waiting.pop(0))
    return [*options, *(["--"] if ended else []), *operands]


def _wants_value(word: str, actions: dict[str, argparse.Action]) -> bool:
    """Whether the next word is this option's value."""
    if word in actions:
        return actions[word].nargs != 0
    if word.startswith("--"):
        found = [] if "=" in word else [name for name in actions if name.startswith(word)]
        return bool(found) and actions[found[0]].nargs != 0
    # -ab: a value behind the letter, or several letters, the last of which may want one.
    for position in range(1, len(word)):
        action = actions.get(f"-{word[position]}")
        if action is None or action.nargs != 0:
            return action is not None and position == len(word) - 1
    return False
