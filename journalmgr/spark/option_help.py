"""What can be given to `.option(...)` of the format editlog, as text for people. Pure."""

from __future__ import annotations

from bookkeeper.spark.options.help import option_help
from journalmgr.spark.edit_options import ALIASES, WHERE, EditReadOptions


def options_help() -> str:
    """The options of the format editlog."""
    note = "A stream begins at the latest transaction unless startingOffsets says otherwise, as of Kafka."
    return option_help(WHERE, {"read": EditReadOptions}, ALIASES, note)
