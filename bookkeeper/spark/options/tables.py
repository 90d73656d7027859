"""The options of a Spark data source: tables of keys, read from what a user gave to `.option(...)`.

A source declares its words as any settings table does (`config.keys.key`). Besides them every configuration key of the
client is an option: how to reach ZooKeeper, timeouts, TLS, credentials. Names are looked up without regard to case, as
Spark keeps them. Nothing comes from a file or the environment: what a task does must not depend on the machine it runs
on. Thread: any. Pure.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic

from bookkeeper.config import ClientSettings, keys_of
from bookkeeper.config.keys import Key
from bookkeeper.config.table import Fault, Given, Origin, Rules, S, Source, load_table, nearest
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.said_as import OF_OPTIONS, SAID_AS, Words

ADDRESS = "metadataServiceUri"

HIDDEN_NAMES = {"passwd": "password", "zkDigestAuth": "zkDigestAuthPassword"}
"""Secret key -> option with its value. In plans, pages and event logs Spark hides the values of options with names that
match `_HIDDEN`. It shows all others, so the keys' own names are refused.
"""

ALIASES = {"uri": ADDRESS, "path": ADDRESS, **{hidden: name for name, hidden in HIDDEN_NAMES.items()}}
"""Other names of keys. Spark passes the argument of `load(...)` and `save(...)` as `path`."""

_HIDDEN = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
"""Spark's default for spark.redaction.regex."""

READ_AHEAD, READ_AHEAD_ENTRIES = "readAheadEntriesMax", 16_000
"""What a task reads ahead where no option says otherwise: as much as four Arrow batches of small entries."""

NEEDED = {ADDRESS: "is missing: where the cluster is, e.g. zk://zk1:2181/ledgers"}

NOWHERE: Mapping[str, tuple[str, str]] = MappingProxyType({})
NO_HINTS: Mapping[str, str] = MappingProxyType({})

_OF_A_TABLE = {"provider", "owner"}
"""What Spark adds to the options of CREATE TABLE and saveAsTable."""

_NOT_READ = frozenset({"checkpointlocation", "queryname", SAID_AS.lower()})
"""What Spark hands to a sink of a stream besides the sink's own options; and in whose words errors speak."""


@dataclass(frozen=True, slots=True)
class SourceOptions(Generic[S]):
    """What was chosen: the words of the source, and the client's settings. words: for errors, of who asks."""

    own: S
    client: ClientSettings
    words: Words = OF_OPTIONS


def read_options(
    cls: type[S],
    options: Mapping[str, str],
    *,
    where: str,
    aliases: Mapping[str, str] = ALIASES,
    implied: Callable[[S], Mapping[str, str]] | None = None,
) -> SourceOptions[S]:
    """Read the options of the format `where`, whose words are the table `cls`.

    aliases: other words for its keys. implied: keys of the client that follow from the source's own words, where they
    are not given; a source that has it need not be given an address.
    Raises ConfigurationError for a table of Spark's catalog; else one that lists every fault: a word that neither the
    source nor the client knows, with the nearest that is known; a value that cannot be read; words that exclude each
    other; no address.
    """
    _refuse_tables(options, where)
    own, shared = keys_of(cls), keys_of(ClientSettings)
    known = {name.lower(): name for name in [*shared, *own, *aliases]}
    faults: list[Fault] = []
    origin = _Origins(where, Words.among(options))
    texts = list(_texts(options, known, aliases, origin, faults))
    faults += _shown_secrets(options, [own, shared], known, aliases, origin)
    if implied is None and not any(given.name == ADDRESS for given in texts):
        faults.append(Fault(origin(ADDRESS), NEEDED[ADDRESS]))
    if not any(given.name == READ_AHEAD for given in texts):
        texts.append(Given(READ_AHEAD, str(READ_AHEAD_ENTRIES), origin(READ_AHEAD)))
    loaded = None
    with contextlib.suppress(ConfigurationError):  # its faults are in the list, for one error with all
        loaded = load_table(cls, _EVERYTHING, [given for given in texts if given.name in own], faults, unset=origin)
    for_client = [given for given in texts if given.name in shared]
    if implied is not None and loaded is not None:
        given = {each.name for each in for_client}
        for name, text in implied(loaded.settings).items():
            if name not in given:
                for_client.append(Given(name, text, origin(name)))
    client = load_table(ClientSettings, _EVERYTHING, for_client, faults)
    assert loaded is not None
    return SourceOptions(loaded.settings, client.settings, origin.words)


def read_tables(
    tables: Sequence[type],
    options: Mapping[str, str],
    *,
    where: str,
    needed: Mapping[str, str],
    aliases: Mapping[str, str] = ALIASES,
    elsewhere: Mapping[str, tuple[str, str]] = NOWHERE,
) -> list[Any]:
    """Read the options of a format whose words are in several tables: the settings of each, in their order.

    A key that two of them have is read for both. needed: key -> what is said where it is not given. elsewhere: word of
    another use of the format, in lower case -> what is said where it is given, with a {} for the key that is meant, and
    that key. Raises ConfigurationError, which lists every fault.
    """
    _refuse_tables(options, where)
    keys = [keys_of(each) for each in tables]
    known = {name.lower(): name for name in [*(name for each in keys for name in each), *aliases]}
    faults: list[Fault] = []
    origin = _Origins(where, Words.among(options))
    hints = {word: said.format(origin.words.word(meant) or meant) for word, (said, meant) in elsewhere.items()}
    texts = list(_texts(options, known, aliases, origin, faults, hints))
    faults += _shown_secrets(options, keys, known, aliases, origin)
    given_names = {given.name for given in texts}
    if READ_AHEAD not in given_names:
        texts.append(Given(READ_AHEAD, str(READ_AHEAD_ENTRIES), origin(READ_AHEAD)))
    faults += [Fault(origin(name), why) for name, why in needed.items() if name not in given_names]
    found: list[Any] = []
    for table, names in zip(tables, keys, strict=True):
        with contextlib.suppress(ConfigurationError) if table is not tables[-1] else contextlib.nullcontext():
            # Faults stay in the list: the last table raises one error with all.
            some = [given for given in texts if given.name in names]
            found.append(load_table(table, _EVERYTHING, some, faults, unset=origin))
    return [each.settings for each in found]


def _refuse_tables(options: Mapping[str, str], where: str) -> None:
    """CREATE TABLE hands over the options once, and none at all when the table is read."""
    if {word.lower() for word in options} >= _OF_A_TABLE:
        raise ConfigurationError(
            f"format {where}: Spark keeps no options of a table that it would read them with. Make a view: "
            f"CREATE TEMPORARY VIEW name USING `{where}` OPTIONS (...)"
        )


def words(cls: type) -> Iterable[str]:
    """The words of a source, one line each with unit, default and meaning; for its help."""
    for row in keys_of(cls).values():
        default = f"default {row.default}" if row.default else "not set"
        yield f"{HIDDEN_NAMES.get(row.name, row.name)}: {row.meaning} ({row.kind.unit}; {default})"


def _texts(
    options: Mapping[str, str],
    known: Mapping[str, str],
    aliases: Mapping[str, str],
    origin: Callable[[str], Origin],
    faults: list[Fault],
    hints: Mapping[str, str] = NO_HINTS,
) -> Iterator[Given]:
    for word, text in options.items():
        name = known.get(word.lower())
        if name is not None:
            yield Given(aliases.get(name, name), text.strip(), origin(word))
        elif word.lower() not in _NOT_READ:
            hint = hints.get(word.lower())
            why = nearest(word, known.values()) if hint is None else f"; {hint}"
            faults.append(Fault(origin(word), f"is unknown{why}"))


def _shown_secrets(
    options: Mapping[str, str],
    tables: Sequence[Mapping[str, Key]],
    known: Mapping[str, str],
    aliases: Mapping[str, str],
    origin: Callable[[str], Origin],
) -> Iterator[Fault]:
    """Yield a fault for each secret in an option that Spark shows."""
    for word, text in options.items():
        name = known.get(word.lower(), "")
        key = aliases.get(name, name)
        if text.strip() and not _HIDDEN.search(word) and any(key in table and table[key].secret for table in tables):
            why = "would be shown in Spark's plans, pages and event log"
            yield Fault(origin(word), f"{why}: name the option {HIDDEN_NAMES[key]}, whose value Spark hides")


def hidden_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with secret keys renamed so that Spark hides their values. For commands, which accept keys."""
    return {HIDDEN_NAMES.get(name, name): text for name, text in options.items()}


@dataclass(frozen=True, slots=True)
class _Origins:
    """Where an option came from, as who asks wrote it."""

    where: str
    words: Words

    def __call__(self, word: str) -> Origin:
        return Origin(Source.COMMAND_LINE, self.words.word(word, self.where) or word)


def _no_judgement(given: Given) -> str | None:
    del given
    return None


_EVERYTHING = Rules(_no_judgement)
"""The texts were looked up before: each has an effect."""
