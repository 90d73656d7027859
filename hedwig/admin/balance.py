"""Which hubs have too many topics, and how many each should give up. Pure.

As Apache's hubs of 4.3 decide it for themselves: one that is above the average by more than the tolerance gives up what
is above the average. Source: hedwig/PROTOCOL.md 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from hedwig.model import HubAddress

TOLERANCE_PERCENT = 10.0


def surplus(loads: Mapping[HubAddress, int], tolerance_percent: float = TOLERANCE_PERCENT) -> dict[HubAddress, int]:
    """Topics that each hub should give up, the greatest number first; only hubs that should give up some."""
    if not loads:
        return {}
    total, hubs = sum(loads.values()), len(loads)
    permissible = max(1, ceil(total * (100 + tolerance_percent) / (100 * hubs)))
    target = max(1, ceil(total / hubs))
    above = {hub: load - target for hub, load in loads.items() if load > permissible}
    return dict(sorted(above.items(), key=lambda each: (-each[1], str(each[0]))))
