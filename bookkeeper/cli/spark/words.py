"""Words that the pipelines share."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bookkeeper.console.connection import add_connection_arguments, given_texts

EXIT_UNKNOWN, EXIT_WRONG = 3, 4
"""Nothing is wrong as far as could be asked; something is wrong."""


def add_common(parser: argparse.ArgumentParser) -> None:
    """Where Spark runs, what is printed, and the cluster."""
    add_spark_arguments(parser)
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    add_connection_arguments(parser)


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Where Spark runs; see `spark_session`."""
    parser.add_argument("--master", metavar="URL", help="of Spark (default: that of spark-submit, else local[*])")
    parser.add_argument("--py-files", type=names, default=(), metavar="FILES",
                       help="for machines without this package: a wheel of it, commas between several")  # fmt: skip


def task_options(args: argparse.Namespace) -> dict[str, str]:
    """Every key of the client that the command line, the environment or a file sets, but the address, as options.

    Tasks have neither that file nor that environment, so their options contain all that they need. The racks of a
    networkTopologyFile are passed as networkTopology. Secrets have names for which Spark hides the values.
    Raises ConfigurationError.
    """
    from bookkeeper.spark.options.tables import hidden_names

    texts = dict(given_texts(args))
    for address in ("metadataServiceUri", "zkServers", "zkLedgersRootPath"):
        texts.pop(address, None)
    if file := texts.pop("networkTopologyFile", ""):
        from bookkeeper.client.connecting import read_topology

        texts["networkTopology"] = ", ".join(f"{each} {rack}" for each, rack in read_topology(file).items())
    return hidden_names(texts)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    found = tuple(each for part in text.split(",") if (each := part.strip()))
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nobody")
    return found


def ledgers(text: str) -> str:
    """`all`, or ids and ranges."""
    from bookkeeper.spark.ledgers.options import parse_ledgers

    return _checked(text, parse_ledgers)


def name_of_write(text: str) -> str:
    """The name of a job or import."""
    from bookkeeper.spark.sink.options import name_of_write as kind

    return _checked(text, kind().parse)


def commit_path(text: str) -> str:
    """The znode of the commits of writes."""
    from bookkeeper.spark.sink.options import commit_path as kind

    return _checked(text, kind().parse)


def _checked(text: str, parse: Callable[[str], object]) -> str:
    """The same text, as an option of a pipeline; told here what cannot be, before Spark is started."""
    try:
        parse(text)
    except ValueError as error:
        why = str(error)
        raise argparse.ArgumentTypeError(why if repr(text) in why else f"{text!r}: {why}") from None
    return text
