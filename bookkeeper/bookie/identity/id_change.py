"""A bookie that goes on under another id: the cookie in its directories and in the store, old id to new.

    directories, durably -> the new id's cookie in the store -> the old id's cookie deleted

Each step may be repeated, so that a renaming that was cut short is finished by doing it again; between the steps the
bookie starts under neither id. The ledgers still name the old id afterwards: `updateledgers` changes them.
"""

from __future__ import annotations

import os
from dataclasses import replace

from bookkeeper.bookie.identity.cookie_rules import VERSION_FILE, DirectoryState, directories_of, owner
from bookkeeper.bookie.identity.identity import inspect_directories, stamp
from bookkeeper.errors import CookieMismatch, VersionConflict
from bookkeeper.filesystem import FileSystem
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.metadata.store import Cookies
from bookkeeper.model import BookieId


async def rename(fs: FileSystem, cookies: Cookies, old_id: BookieId, new_id: BookieId) -> bool:
    """Give the bookie its new id; False when it has that already. The directories must be locked by the caller.

    Raises CookieMismatch when the store knows neither id, when it knows both as different bookies, or when a directory
    that the cookie names has another cookie or none; MetadataError, OSError.
    """
    stored, present = await cookies.read(old_id), await cookies.read(new_id)
    if stored is None:
        if present is None:
            raise CookieMismatch(f"the metadata store has no cookie of {old_id}, and none of {new_id}")
        return False
    old = parse_cookie(stored.value, f"cookie of {old_id}")
    new = replace(old, bookie_id=new_id)
    if present is not None and parse_cookie(present.value, f"cookie of {new_id}") != new:
        raise CookieMismatch(f"{new_id} is another bookie of this cluster: its cookie names other directories")
    found = inspect_directories(fs, directories_of(old))
    for state in found:
        _check(state, old, new)
    stamp(fs, new, found)
    if present is None:
        try:
            await cookies.write(new_id, new.format(), None)
        except VersionConflict as error:
            raise CookieMismatch(f"{new_id} got a cookie meanwhile: {error}") from error
    await cookies.delete(old_id, stored.version)
    return True


def _check(state: DirectoryState, old: Cookie, new: Cookie) -> None:
    if state.cookie in (old, new):
        return
    path = os.path.join(state.path, "current", VERSION_FILE)
    what = "there is no cookie" if state.cookie is None else f"the cookie is that of {owner(state.cookie)}"
    raise CookieMismatch(f"{path}: {what}, not that of {owner(old)}, which the metadata store has; nothing was changed")
