"""Options of the format editlog that a user of the pipeline gives, and those that the pipeline sets itself."""

from __future__ import annotations

from collections.abc import Mapping

from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.said_as import Words
from journalmgr.spark.edit_options import ALIASES, JOURNAL

OWN_WORDS = {
    **dict.fromkeys(("startingTxid", "startingOffsets"), "leave it out, or give {base}"),
    **dict.fromkeys(("endingTxid", "endingOffsets"), "give {at_txid}"),
    "decode": "records are always read raw",
    "failOnDataLoss": "an edit that is left out makes another namespace; find out what is lost (`journalmgr verify`)",
}
"""Words of the format that the pipeline sets itself, and what to do instead; {x}: its argument x."""


def given_options(uri: str, options: Mapping[str, object]) -> dict[str, str]:
    """Options of the format for a journal. Raises ConfigurationError for those that the pipeline sets itself."""
    given = {word: str(value) for word, value in options.items()}
    words = Words.among(given)
    own = {word.lower(): (word, instead) for word, instead in OWN_WORDS.items()}
    aliases = {word.lower(): meant.lower() for word, meant in ALIASES.items()}
    for word in given:
        meant = aliases.get(word.lower(), word.lower())
        if meant in own:
            name, instead = own[meant]
            instead = instead.format(base=words.argument("base"), at_txid=words.argument("at_txid"))
            raise ConfigurationError(f"{words.word(word)}: the pipeline sets {name} itself; {instead}")
        if meant == JOURNAL:
            raise ConfigurationError(f"{words.word(word)}: the journal is named by the argument uri; leave it out")
    return {**given, JOURNAL: uri}
