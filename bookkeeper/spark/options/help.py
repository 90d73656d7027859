"""What can be given to `.option(...)` of a format, as text for people: made from the tables of its words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

from bookkeeper.spark.options.tables import ALIASES, HIDDEN_NAMES, words

_WIDTH = 118


def options_help() -> str:
    """The options of the formats of this package; for `bookkeeper.cluster` it names `cluster_help`."""
    from bookkeeper.spark.audit.options import AuditOptions
    from bookkeeper.spark.ledgers.options import WHERE, LedgerReadOptions
    from bookkeeper.spark.sink.options import LedgerSinkOptions

    note = (
        "A stream begins at the latest unless startingOffsets says otherwise, as of Kafka: of a ledger that is closed "
        "it reads nothing then. Positions are entry ids; the one at which a read ends is not included."
    )
    return "\n\n".join(
        [
            option_help(WHERE, {"read": LedgerReadOptions, "write": LedgerSinkOptions}, ALIASES, note),
            option_help("bookkeeper.audit", {"read": AuditOptions}, ALIASES),
            "Options of format bookkeeper.cluster: table, and what bookkeeper.spark.cluster_help(table) lists.",
        ]
    )


def option_help(name: str, uses: Mapping[str, type], aliases: Mapping[str, str], note: str = "") -> str:
    """The options of a format. uses: "read", say -> its table; what is the same of a key in two of them is told once.

    aliases: other words for keys. note: what else there is to know.
    """
    lines = [f"Options of format {name}, for .option(name, value); names in any case."]
    told: set[str] = set()
    for use, table in uses.items():
        found = list(words(table))
        lines += ["", f"{use}:"]
        lines += [
            fill(each, _WIDTH, initial_indent="  ", subsequent_indent="      ") for each in found if each not in told
        ]
        if again := sorted(each.partition(":")[0] for each in found if each in told):
            lines.append(f"  {', '.join(again)}: as above")
        told.update(found)
    others = ", ".join(f"{alias} for {key}" for alias, key in aliases.items() if key not in HIDDEN_NAMES)
    secrets = ", ".join(f"{hidden} for {key}" for key, hidden in HIDDEN_NAMES.items())
    shared = "Besides, every key of the client; `bookkeeper config show --client` lists them. Other words for keys:"
    lines += ["", fill(f"{shared} {others}. Secrets, whose values Spark hides: {secrets}.", _WIDTH)]
    return "\n".join([*lines, "", fill(note, _WIDTH)] if note else lines)
