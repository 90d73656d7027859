"""What can be given to `.option(...)` of the format hedwig, as text for people. Pure."""

from __future__ import annotations

from bookkeeper.spark.options.help import option_help
from hedwig.spark.region_options import REGION_ALIASES, WHERE
from hedwig.spark.topic_options import TopicReadOptions, TopicWriteOptions

_NOTE = (
    "A stream begins at the latest unless startingOffsets says otherwise, as of Kafka. Positions are ids of messages; "
    "the one at which a read ends is not included. Reading asks bookies: they return the newest message "
    "once they know that it is acknowledged, with the next message or within the hub's explicitLacInterval. A query "
    "that ends (batch, availableNow) asks the topic's hub if the bookies do not know. If the hub does not answer, it "
    "warns of the messages that it leaves out. Spark's deprecated trigger once does not announce that a query ends, so "
    "no hub is asked and nothing is reported: use availableNow. Writing goes to hubs: those of option hubs "
    "(host:port,...), else those that the region of option uri has."
)


def options_help() -> str:
    """The options of the format hedwig."""
    return option_help(WHERE, {"read": TopicReadOptions, "write": TopicWriteOptions}, REGION_ALIASES, _NOTE)
