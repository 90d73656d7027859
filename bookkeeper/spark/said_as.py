"""In whose words an error says what to do: of who writes the options of a format, or of who typed a command. Pure.

    Words()                    option failOnDataLoss=false
    Words.of_command({...})    --allow-loss, or -D failOnDataLoss=false, or nothing: the command has no such remedy

A command gives its words along with the options, as one more of them (SAID_AS): so they reach every process that Spark
makes. `options.read_options` takes them out again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.errors import ConfigurationError
from bookkeeper.texts import parse_json

SAID_AS = "saidAs"
"""The option; its value is `Words.text`."""

LOSS_BORNE = "failOnDataLoss=false"
AS_ADMINISTRATOR = "asAdministrator=true"


@dataclass(frozen=True, slots=True)
class Words:
    """said: by what is meant, `option` or `option=value` in lower case, what is written for it; None: nothing can be.

    What is not in it is an option, or of a command -D.
    """

    said: tuple[tuple[str, str | None], ...] = ()
    of_a_command: bool = False

    @classmethod
    def of_command(cls, said: Mapping[str, str | None]) -> Words:
        """Those of a command."""
        return cls(tuple((meant.lower(), word) for meant, word in said.items()), of_a_command=True)

    @classmethod
    def parse(cls, text: str) -> Words:
        """From the option. Raises ConfigurationError."""
        try:
            found = parse_json(text)
            return cls(tuple(found["said"].items()), bool(found["of_a_command"]))
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"option {SAID_AS}: want what a command of this package gives; leave it out"
            ) from error

    @classmethod
    def among(cls, options: Mapping[str, str]) -> Words:
        """Those that come with options; OF_OPTIONS where none do. Raises ConfigurationError."""
        found = next((text for word, text in options.items() if word.lower() == SAID_AS.lower()), None)
        return cls() if found is None else cls.parse(found)

    @property
    def text(self) -> str:
        """As the option has it."""
        return json.dumps({"said": dict(self.said), "of_a_command": self.of_a_command})

    def without(self, meant: str) -> Words:
        """The same where that cannot be said."""
        return Words(tuple({**dict(self.said), meant.lower(): None}.items()), self.of_a_command)

    def word(self, meant: str, where: str = "") -> str | None:
        """What is written for `option` or `option=value`; None: it cannot be said. where: the format, to be named."""
        said, (name, _, value) = dict(self.said), meant.partition("=")
        if meant.lower() in said:
            return said[meant.lower()]
        if name.lower() in said:
            flag = said[name.lower()]
            return f"{flag} {value}" if flag and value else flag
        if self.of_a_command:
            return f"-D {meant}"
        return f"option {meant} of format {where}" if where else f"option {meant}"

    def argument(self, name: str) -> str:
        """What is written for an argument of a pipeline: itself by who calls it, a flag by who types the command."""
        return f"--{name.replace('_', '-')}" if self.of_a_command else name

    def remedy(self, sentence: str, *meant: str) -> str:
        """To follow what is wrong: `. With --allow-loss it is ...`, for a sentence with a {} for each that is meant.

        Nothing where one of them cannot be said.
        """
        words = [self.word(each) for each in meant]
        return "" if None in words else f". {sentence.format(*words)}"


OF_OPTIONS = Words()
"""Of who writes the options of a format."""
