"""Genuine Apache BookKeeper beside ours: three releases, fetched with Maven at first need, as clients and bookies.

    releases.py   what each release can do and how its programs are started
    fetched.py    its jars in `.cache/apache-<version>`, our Java drivers compiled against them
    client.py     its client in one Java process, driven by commands (tests/interop/java)
    bookie.py     its bookie as a process
    content.py    entries that both sides make from a seed

Nothing of Apache's is committed. A JDK (javac) of version 17 or newer and mvn are needed; where one of them or Maven's
repository is missing, the test is skipped with one line that says which.
"""

from tests.support.apache.bookie import ApacheBookie, running_bookies
from tests.support.apache.client import ApacheClient, ApacheError
from tests.support.apache.fetched import Apache, find_apache
from tests.support.apache.releases import CLASSIC, DEFAULT, MIDDLE, RELEASES, Release

__all__ = [
    "CLASSIC",
    "DEFAULT",
    "MIDDLE",
    "RELEASES",
    "Apache",
    "ApacheBookie",
    "ApacheClient",
    "ApacheError",
    "Release",
    "find_apache",
    "running_bookies",
]
