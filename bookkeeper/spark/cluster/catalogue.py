"""Which tables there are, and what they are: this package's, and those that others add by entry point (see `table`).

Where a package lies as plain files without its metadata (`--py-files` of a directory or a bare zip), its entry points
cannot be found: ship wheels. Thread: any.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from bookkeeper.config.table import nearest
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.cluster.bookies import BOOKIES, COOKIES
from bookkeeper.spark.cluster.entry_logs import ENTRY_LOGS
from bookkeeper.spark.cluster.extents import EXTENTS
from bookkeeper.spark.cluster.held_ledgers import HELD_LEDGERS
from bookkeeper.spark.cluster.ledgers import FRAGMENTS, LEDGERS
from bookkeeper.spark.cluster.recovery import DAMAGED, PROCESSES, STATE, UNDERREPLICATED
from bookkeeper.spark.cluster.table import ClusterTable
from bookkeeper.spark.cluster.unreadable import UNREADABLE
from bookkeeper.spark.options.tables import words

WHERE = "bookkeeper.cluster"

GROUP = "bookkeeper.spark.tables"

OWN: tuple[ClusterTable, ...] = (
    BOOKIES,
    COOKIES,
    LEDGERS,
    FRAGMENTS,
    EXTENTS,
    ENTRY_LOGS,
    HELD_LEDGERS,
    UNDERREPLICATED,
    DAMAGED,
    PROCESSES,
    STATE,
    UNREADABLE,
)


def tables() -> list[ClusterTable]:
    """All of them, this package's first."""
    return [*OWN, *(_loaded(each) for each in _added())]


def table_called(name: str | None) -> ClusterTable:
    """The table of the option `table`. Raises ConfigurationError, which names the nearest."""
    wanted = (name or "").strip().lower()
    for table in OWN:
        if table.name == wanted:
            return table
    added = _added()
    for each in added:
        if each.name == wanted:
            return _loaded(each)
    names = [*(table.name for table in OWN), *(each.name for each in added)]
    if not wanted:
        raise ConfigurationError(f"option table of format {WHERE} is missing: which to read, of {', '.join(names)}")
    near = nearest(wanted, names)
    raise ConfigurationError(
        f"option table of format {WHERE}: there is no table {name!r}{near}{'' if near else ';'} "
        f"{'There' if near else 'there'} are {', '.join(names)}"
    )


def _added() -> list[EntryPoint]:
    own = {table.name for table in OWN}
    found = {each.name: each for each in _points() if each.name not in own}
    return [found[name] for name in sorted(found)]


def _points() -> Iterable[EntryPoint]:
    return entry_points(group=GROUP)


def _loaded(point: EntryPoint) -> ClusterTable:
    try:
        table = point.load()
    except ImportError as error:
        raise ConfigurationError(f"table {point.name} ({point.value}) cannot be had: {error}") from error
    if not isinstance(table, ClusterTable) or table.name != point.name:
        raise ConfigurationError(f"entry point {point.name} of {GROUP} ({point.value}) is no table of that name")
    return table


def cluster_help(table: str | None = None) -> str:
    """What the tables are, or one of them: its columns with type and unit, and its options."""
    if table is None:
        lines = [f"Tables of format {WHERE} (option table; cluster_help(name) tells more):"]
        found = tables()
        width = max(len(each.name) for each in found)
        lines += [f"  {each.name:{width}}  {each.meaning}" for each in found]
        return "\n".join(lines)
    one = table_called(table)
    width = max(len(each.name) for each in one.columns)
    kinds = max(len(each.of.value) for each in one.columns)
    lines = [f"{one.name}: {one.meaning}", "columns:"]
    lines += [f"  {each.name:{width}}  {each.of.value:{kinds}}  {each.meaning}" for each in one.columns]
    lines += ["options, besides those of the client (metadataServiceUri or uri, timeouts, TLS ...):"]
    lines += [f"  {each}" for each in words(one.options)]
    return "\n".join(lines)
