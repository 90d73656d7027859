"""What a story is: a workload whose every operation of the disk is a crash point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.crashpoints.life import Life
from tests.crashpoints.machine import Layout

TELL = Callable[[Life], None]


@dataclass(frozen=True)
class Story:
    """name: as in ids of crash points. subject: what is in danger, with the invariants.

    starts_full: after each crash the bookie is first started on a disk without room. rebuilds: index files that were
    lost are made anew before it has to hold what is in them.
    """

    name: str
    subject: str
    tell: TELL
    layout: Layout = field(default_factory=Layout)
    starts_full: bool = False
    rebuilds: bool = False
