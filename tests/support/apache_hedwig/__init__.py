"""Genuine Apache Hedwig beside ours, fetched with Maven at first need: its client, its hub, and our hub as a process.

    fetched.py    jars in `.cache/hedwig-<module>-<release>`, our Java driver compiled against them
    client.py     its client in one Java process, driven by commands (tests/interop/java/hedwig)
    hubs.py       hubs of both kinds as processes

Maven Central has the client of 4.2.2 and 4.3.2, and the hub of 4.2.0 and 4.3.2. Nothing of Apache's is committed.
"""

from tests.support.apache_hedwig.client import HedwigClient, HedwigError
from tests.support.apache_hedwig.fetched import CLIENT_VERSIONS, HUB_VERSIONS, HedwigJars, find_hedwig
from tests.support.apache_hedwig.hubs import OURS, HubProcess, hub_of

__all__ = [
    "CLIENT_VERSIONS",
    "HUB_VERSIONS",
    "OURS",
    "HedwigClient",
    "HedwigError",
    "HedwigJars",
    "HubProcess",
    "find_hedwig",
    "hub_of",
]
