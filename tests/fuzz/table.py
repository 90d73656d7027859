"""Every decoder that takes bytes from outside this process: one table.

    frames          peers: requests and answers of bookies and hubs, messages, entries
    znodes          the metadata store: records of other processes and programs
    bookie_files    a bookie's directories, which a crash, a disk or a user may have changed
    journal_files   edits, images and directories of name nodes
    texts           HTTP, settings, filter expressions, exports

A module's `decode*` and `parse*` functions are in `covers` here, or in EXEMPT of tests/unit/test_fuzz.py.
"""

from __future__ import annotations

from tests.fuzz import bookie_files, frames, journal_files, texts, znodes
from tests.fuzz.decoder import Decoder

TABLE: tuple[Decoder, ...] = (*frames.TABLE, *znodes.TABLE, *bookie_files.TABLE, *journal_files.TABLE, *texts.TABLE)
