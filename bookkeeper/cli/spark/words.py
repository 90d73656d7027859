"""Words that the pipelines share."""

from __future__ import annotations

import argparse

from bookkeeper.cli.connection import add_connection_arguments, given_texts

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

    Tasks have neither that file nor that environment: what they go by is in their options. The racks of a
    networkTopologyFile are told as networkTopology; the password under the name that Spark hides.
    Raises ConfigurationError.
    """
    texts = dict(given_texts(args))
    for address in ("metadataServiceUri", "zkServers", "zkLedgersRootPath"):
        texts.pop(address, None)
    if file := texts.pop("networkTopologyFile", ""):
        from bookkeeper.client.connecting import read_topology

        texts["networkTopology"] = ", ".join(f"{each} {rack}" for each, rack in read_topology(file).items())
    if (password := texts.pop("passwd", None)) is not None:
        texts["password"] = password
    return texts


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    found = tuple(each for part in text.split(",") if (each := part.strip()))
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nobody")
    return found
