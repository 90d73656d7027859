"""Settings: Apache's key names, in Apache's file format, as frozen values with units.

    keys.py        what a key is: its name, how its text is read, default, unit, meaning
    shared.py      settings that bookie and client have in common (metadata service, frame limit)
    security.py    and what they have in common about TLS and authentication
    replication.py the part of a bookie's settings that re-replication has
    auditor.py     the part of a bookie's settings that the auditor has
    server.py      ServerSettings: one field per key, the table itself
    client.py      ClientSettings, likewise
    ignored.py     upstream keys that are accepted without effect, or refused, each with its reason
    properties.py  the .conf format: key=value, comments, continued lines
    table.py       any table: command line over environment over file over default; all faults in one message
    load.py        the tables of bookies and clients, with the keys that Apache has besides
    render.py      conf/bk_server.conf out of the tables

A key is declared once, in the field that holds its value. Invariants: an unknown key is never ignored silently; a key
whose meaning is a promise this release cannot keep is refused rather than ignored; every effective value knows where
it came from. Importing this package reads no file and no environment.
"""

from bookkeeper.config.client import ClientSettings, Placement
from bookkeeper.config.keys import Key, keys_of
from bookkeeper.config.load import Use, load_client, load_server, load_shared
from bookkeeper.config.server import ServerSettings
from bookkeeper.config.table import ConfText, Ignored, Loaded, Origin, Source

__all__ = [
    "ClientSettings",
    "ConfText",
    "Ignored",
    "Key",
    "Loaded",
    "Origin",
    "Placement",
    "ServerSettings",
    "Source",
    "Use",
    "keys_of",
    "load_client",
    "load_server",
    "load_shared",
]
