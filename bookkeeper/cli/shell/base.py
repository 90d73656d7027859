"""What a shell command is, and what several of them need.

As in Apache's shell, --conf is a bookie's conf file, which may have keys of clients too; -D may name a key of either.
Each command reads those it needs: one that looks at a bookie's files the bookie's keys, one that talks to bookies the
client's (TLS and credentials among them), one that talks to the metadata store alone only how to reach that.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bookkeeper.config import ClientSettings, Loaded, ServerSettings, Use, keys_of, load_server
from bookkeeper.console.connection import client_settings, parse_settings, store_settings
from bookkeeper.console.output import end_partial, note, print_json
from bookkeeper.console.reactor import with_store as with_store_of
from bookkeeper.console.reactor import with_store_and_clock as with_store_and_clock_of

if TYPE_CHECKING:
    from bookkeeper.client.faces.blocking import BlockingBookKeeper
    from bookkeeper.metadata.bad_records import BadRecords
    from bookkeeper.metadata.store import MetadataStore
    from bookkeeper.ports import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command of the shell."""

    example: str
    """How it is typed after `bookkeeper shell`; shown by --help."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """For commands without any."""
    del parser


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """The bookie settings of --conf and -D; where directories and identity come from. Raises ConfigurationError."""
    return loaded_server_settings(args).settings


def loaded_server_settings(args: argparse.Namespace) -> Loaded[ServerSettings]:
    """The same with the origin of each."""
    client_keys = keys_of(ClientSettings).keys() - keys_of(ServerSettings).keys()
    overrides = {key: value for key, value in parse_settings(args.defines).items() if key not in client_keys}
    if args.uri:
        overrides["metadataServiceUri"] = args.uri
    return load_server(args.conf, overrides, use=Use.INSPECT)


def shell_settings(args: argparse.Namespace, changes: Mapping[str, str] | None = None) -> ClientSettings:
    """The client settings of a shell command. changes: keys the command sets itself. Raises ConfigurationError."""
    defines = [*args.defines, *(f"{key}={value}" for key, value in (changes or {}).items())]
    return client_settings(argparse.Namespace(**{**vars(args), "defines": defines}))


def connect(args: argparse.Namespace, changes: Mapping[str, str] | None = None) -> BlockingBookKeeper:
    """A blocking client for a shell command; a context manager."""
    from bookkeeper.client.faces import blocking

    settings = shell_settings(args, changes)
    return blocking.connect(settings.metadata_service_uri, settings)


def with_store(args: argparse.Namespace, use: Callable[[MetadataStore], Awaitable[T]], *, make: bool = False) -> T:
    """Run `use(store)` on the metadata store of a shell command. Raises NotInitialised where there is no cluster.

    make: it is this command that makes the cluster, so there need not be one.
    """

    async def on_cluster(store: MetadataStore) -> T:
        if not make:
            await store.ledgers.prepare()
        return await use(store)

    return with_store_of(store_settings(args), on_cluster)


def with_store_and_clock(args: argparse.Namespace, use: Callable[[MetadataStore, Clock], Awaitable[T]]) -> T:
    """The same for what takes its time."""

    async def on_cluster(store: MetadataStore, clock: Clock) -> T:
        await store.ledgers.prepare()
        return await use(store, clock)

    return with_store_and_clock_of(store_settings(args), on_cluster)


def end_listing(args: argparse.Namespace, count: int, summary: str, bad_records: BadRecords) -> int:
    """End a listing and return the exit code.

    With count_only, print the number alone, as text or JSON; otherwise write `summary` to standard error.
    """
    if not args.count_only:
        note(summary)
    elif args.json:
        unreadable = [record.json() for record in bad_records.named]
        print_json({"count": count, **({"unreadable": unreadable} if unreadable else {})})
    else:
        print(count)
    return end_partial(bad_records)


def add_force(parser: argparse.ArgumentParser) -> None:
    """Apache's pair of flags: -nonInteractive never asks, -force answers yes."""
    parser.add_argument("-n", "-nonInteractive", "--nonInteractive", action="store_true", dest="non_interactive",
                        help="never ask; refuse unless -force")  # fmt: skip
    parser.add_argument("-f", "-force", "--force", action="store_true", dest="force", help="do not ask")
