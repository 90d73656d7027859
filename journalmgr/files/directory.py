"""What FileJournal does with its directory, one blocking call for each of its methods.

Invariants:
- nothing is changed by a process that does not hold `in_use.lock`, so there is one writer at a time (I-80);
- a segment's file has its final name only when it holds exactly the transactions of that name, durably (I-83);
- a name that something relies on was made durable before.

Thread: worker. Errors: JournalError, OSError, StorageError.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from twisted.logger import Logger

from bookkeeper.errors import DirectoryInUse, InvalidArgument, again
from bookkeeper.filesystem import (
    File,
    FileSystem,
    Lock,
    OpenMode,
    read_whole,
    replace_durable,
    wider_directories,
)
from journalmgr.edits.file import HEADER_SIZE_MAX, decode_header
from journalmgr.errors import (
    EditsCorrupt,
    HasData,
    JournalError,
    JournalUnavailable,
    NamespaceMismatch,
    NotFormatted,
    SegmentAbsent,
    SegmentConflict,
    SegmentExists,
    SegmentUnreadable,
    TxIdSeen,
    UnsupportedLayout,
)
from journalmgr.files import names
from journalmgr.files.segment_file import (
    UNSYNCED_SIZE_MAX,
    AppendingFile,
    Scan,
    check_torn,
    copy_durable,
    open_header,
    read_mark,
    rewrite,
    scan,
    torn_end,
)
from journalmgr.files.version import (
    SIZE_MAX,
    decode_seen_txid,
    decode_version,
    encode_seen_txid,
    encode_version,
)
from journalmgr.model import UNKNOWN_LAYOUT, NamespaceInfo, Segment, TxId

log = Logger()

LOCK_SIZE_MAX = 1024
TORN_FILES_MAX = 1000
ATTEMPTS_MAX = 10

REMEDY = "take this file from another copy of the journal; `journalmgr dump --resync` exports the rest"
"""What to do about a file that is damaged."""


class JournalDirectory:
    """See the module. holder: who this process is, for the lock file; Hadoop writes PID@HOST.

    namespace: what the journal must have been formatted for; None takes whatever is there.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        namespace: NamespaceInfo | None,
        *,
        holder: str,
        preallocation_size: int,
    ) -> None:
        self.path = path
        self._fs = fs
        self._current = os.path.join(path, names.CURRENT)
        self._namespace = namespace
        self._holder = holder
        self._preallocation_size = preallocation_size
        self._lock: Lock | None = None
        self._layouts: dict[str, int] = {}  # of finalised files, whose header does not change

    # --- the lock

    def _hold(self) -> bool:
        """Take the lock; True when it was taken just now. Raises JournalUnavailable naming who has it."""
        if self._lock is not None:
            return False
        path = os.path.join(self.path, names.LOCK)
        try:
            self._lock = self._fs.lock(path)
        except DirectoryInUse as error:
            raise JournalUnavailable(
                f"{self.path} is in use by {self._read_holder(path)}, which may write to it at any moment: "
                "stop that process first (its lock ends with it)"
            ) from error
        self._write_holder(path)
        if wider_directories(self._fs, [self.path]):
            log.warn(
                "Other users can reach files in {directory}: run chmod -R go= on it, or set "
                "journalmgr.files.private=false",
                directory=self.path,
            )
        return True

    def _read_holder(self, path: str) -> str:
        try:
            found = read_whole(self._fs, path, size_max=LOCK_SIZE_MAX)
        except FileNotFoundError:
            return "another process"
        return "process " + found.decode("utf-8", "replace").strip() if found.strip() else "another process"

    def _write_holder(self, path: str) -> None:
        data = self._holder.encode()
        try:
            file = self._fs.open(path, OpenMode.UPDATE)
        except FileNotFoundError:
            file = self._fs.open(path, OpenMode.CREATE_EXCLUSIVE)
        with contextlib.closing(file):
            file.pwrite(data, 0)
            file.truncate(len(data))

    def release(self) -> None:
        """Let others write. Harmless when repeated."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    @contextlib.contextmanager
    def _held_meanwhile(self) -> Iterator[None]:
        """Hold the lock for one operation; whoever held it before keeps it."""
        taken = self._hold()
        try:
            yield
        finally:
            if taken:
                self.release()

    # --- the namespace

    def _file(self, name: str) -> str:
        return os.path.join(self._current, name)

    def has_data(self) -> bool:
        """Whether there is anything but what an unfinished `format` leaves."""
        if not self._fs.is_dir(self._current):
            return False
        return any(name != names.SEEN_TXID and not name.endswith(".tmp") for name in self._fs.listdir(self._current))

    def namespace(self) -> NamespaceInfo:
        """What VERSION says. Raises NotFormatted."""
        path = self._file(names.VERSION)
        try:
            data = read_whole(self._fs, path, size_max=SIZE_MAX)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFormatted(f"{self.path} holds no journal ({path} is missing): format it first") from error
        return decode_version(data, path)

    def check(self) -> NamespaceInfo:
        """The namespace; raises NotFormatted, NamespaceMismatch (I-87)."""
        found = self.namespace()
        if self._namespace is not None and not found.is_same(self._namespace):
            raise NamespaceMismatch(
                f"{self.path} belongs to {found}; this server is of {self._namespace}: configure its own journal"
            )
        return found

    def format(self, namespace: NamespaceInfo, *, force: bool) -> None:
        """Remove what is there, if forced, and bind the directory to the namespace; VERSION goes first and comes last.

        Everything in `current` goes, checkpoints too: they are of the old namespace.
        """
        if not force and self.has_data():
            raise HasData(f"{self._current} holds {self._some_names()}; format destroys that: confirm it")
        self._fs.make_dirs(self._current)
        with self._held_meanwhile():
            found = self._fs.listdir(self._current)
            directories = [name for name in found if self._fs.is_dir(self._file(name))]
            if directories:
                raise HasData(f"{self._current} holds directories ({', '.join(directories)}): move them away first")
            if names.VERSION in found:
                found.remove(names.VERSION)
                self._fs.unlink(self._file(names.VERSION))
                self._fs.sync_dir(self._current)
            for name in found:
                self._fs.unlink(self._file(name))
            self._layouts.clear()
            self._fs.sync_dir(self._current)
            replace_durable(self._fs, self._file(names.SEEN_TXID), encode_seen_txid(0))
            replace_durable(self._fs, self._file(names.VERSION), encode_version(namespace))

    def _some_names(self) -> str:
        found = self._fs.listdir(self._current)
        return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")

    # --- segments

    def segments(self) -> list[Segment]:
        """By first txid; of twins the finalised one. UNKNOWN_LAYOUT: the header says none, and readers of it fail."""
        finalised, in_progress = self._named(self.check())
        known = {segment.first_txid for segment in finalised}
        return sorted([*finalised, *(segment for segment in in_progress if segment.first_txid not in known)])

    def _listed(self, namespace: NamespaceInfo) -> tuple[list[Segment], list[Segment]]:
        """(finalised, in progress), each by first txid. Raises SegmentUnreadable, UnsupportedLayout for any of them."""
        return self._list(lambda named: self._layout(named, namespace))

    def _named(self, namespace: NamespaceInfo) -> tuple[list[Segment], list[Segment]]:
        """The same by names alone, which say all but the layout: one damaged header does not hide the others."""

        def layout_of(named: Segment) -> int:
            try:
                return self._layout(named, namespace)
            except (SegmentUnreadable, UnsupportedLayout):
                return UNKNOWN_LAYOUT

        return self._list(layout_of)

    def _list(self, layout_of: Callable[[Segment], int]) -> tuple[list[Segment], list[Segment]]:
        finalised: list[Segment] = []
        in_progress: list[Segment] = []
        for name in self._fs.listdir(self._current):
            named = names.segment_of(name, 0)
            if named is None:
                continue
            try:
                layout = layout_of(named)
            except FileNotFoundError:
                continue  # renamed or purged meanwhile by the process that writes
            segment = replace(named, layout_version=layout)
            (in_progress if segment.in_progress else finalised).append(segment)
        return sorted(finalised, key=_order), sorted(in_progress, key=_order)

    def _layout(self, named: Segment, namespace: NamespaceInfo) -> int:
        name, in_progress = named.name, named.in_progress
        known = self._layouts.get(name)
        if known is not None:
            return known
        try:
            header = open_header(self._fs, self._file(name))
        except EditsCorrupt as error:
            if in_progress:
                return namespace.layout_version  # whoever reads or recovers it finds out
            raise _header_unreadable(self._file(name), error) from error
        if in_progress:
            return namespace.layout_version if header is None else header[0]
        if header is None:
            raise _header_unreadable(self._file(name), None)
        self._layouts[name] = header[0]
        return header[0]

    def _seen_txid(self) -> int:
        path = self._file(names.SEEN_TXID)
        try:
            return decode_seen_txid(read_whole(self._fs, path, size_max=SIZE_MAX), path)
        except FileNotFoundError:
            return 0

    def last_txid_seen(self) -> TxId:
        """See JournalManager. seen_txid says how far a journal got of which nothing is left, see `purge`."""
        namespace = self.check()
        for _ in range(ATTEMPTS_MAX):
            seen = self._seen_txid()
            finalised, in_progress = self._named(namespace)
            if self._seen_txid() == seen:
                break
        else:
            raise JournalUnavailable(f"{self._file(names.SEEN_TXID)} changes all the time; try again")
        begun = any(segment.first_txid <= seen for segment in in_progress)
        return TxId(max([0 if begun else seen, *(segment.last_txid or 0 for segment in finalised)]))

    # --- writing

    def start(self, first_txid: TxId, layout_version: int) -> AppendingFile:
        """A new segment's file. Keeps the lock."""
        namespace = self.check()
        self._hold()
        finalised, in_progress = self._listed(namespace)
        if in_progress:
            raise SegmentExists(
                f"{self.path}: segment {in_progress[0]} is in progress: finalise it, or recover what its writer left"
            )
        seen = max([self._seen_txid(), *(segment.last_txid or 0 for segment in finalised)])
        if first_txid <= seen:
            raise TxIdSeen(
                f"{self.path}: a segment cannot begin at txid {first_txid}: {seen} was used; the next is {seen + 1}"
            )
        self._remove_left_marks()
        opened = AppendingFile.create(
            self._fs,
            self._file(names.in_progress_name(first_txid)),
            self._file(names.mark_name(first_txid)),
            layout_version,
            preallocation_size=self._preallocation_size,
        )
        try:
            self._fs.sync_dir(self._current)
        except OSError:
            opened.close()
            raise
        return opened

    def append(self, opened: AppendingFile, first_txid: TxId, records: list[bytes]) -> None:
        """Write records, durable on return; with a segment's first ones, say that it begins there.

        Not before: Hadoop takes seen_txid for a promise that there is such a transaction.
        """
        is_first = opened.end == opened.header_size
        opened.append(records)
        if is_first:
            replace_durable(self._fs, self._file(names.SEEN_TXID), encode_seen_txid(first_txid))

    def _remove_left_marks(self) -> None:
        """Marks whose segment is gone: they would lie about the next one of that name."""
        found = self._fs.listdir(self._current)
        left = [name for name in found if (marked := names.marked_file(name)) is not None and marked not in found]
        for name in left:
            self._fs.unlink(self._file(name))
        if left:
            self._fs.sync_dir(self._current)

    # --- finalising

    def finalise(self, first_txid: TxId, last_txid: TxId, known_end: int | None) -> Segment:
        """Fix a segment's end. known_end: of its file, where the caller has written the segment himself."""
        namespace = self.check()
        with self._held_meanwhile():
            finalised, in_progress = self._listed(namespace)
            recorded = next((segment for segment in finalised if segment.first_txid == first_txid), None)
            if recorded is not None:
                if recorded.last_txid != last_txid:
                    raise SegmentConflict(
                        f"{self.path}: segment {recorded} cannot be finalised as {first_txid}..{last_txid}"
                    )
                return recorded
            segment = next((segment for segment in in_progress if segment.first_txid == first_txid), None)
            if segment is None:
                raise SegmentAbsent(f"{self.path}: no segment that begins at txid {first_txid} is in progress")
            if known_end is not None:
                file = self._fs.open(self._file(segment.name), OpenMode.UPDATE)
                with contextlib.closing(file):
                    return self._fix(segment, file, last_txid, known_end)
            settled = self._settle(segment, wanted=last_txid)
            assert settled is not None
            return settled

    def recover(self) -> list[Segment]:
        """Finalise or remove all that is in progress. Keeps the lock: nobody else writes from now on."""
        namespace = self.check()
        self._hold()
        finalised, in_progress = self._listed(namespace)
        known = {segment.first_txid: segment for segment in finalised}
        done: list[Segment] = []
        for segment in in_progress:
            twin = known.get(segment.first_txid)
            if twin is not None:
                self._put_twin_aside(segment, twin)
            elif (settled := self._settle(segment, wanted=None)) is not None:
                done.append(settled)
        self._remove_left_marks()
        return done

    def _settle(self, segment: Segment, *, wanted: TxId | None) -> Segment | None:
        """Finalise a segment by its content; None when it was empty, and is removed.

        wanted: the end that it must have; then nothing is changed where it has not.
        """
        path = self._file(segment.name)
        file = self._fs.open(path, OpenMode.UPDATE)
        with contextlib.closing(file):
            found = scan(file, segment.first_txid)
            mark = read_mark(self._fs, self._file(names.mark_name(segment.first_txid)))
            end = torn_end(file, found)
            check_torn(file, found, end, mark)
            if wanted is not None and found.last_txid != wanted:
                raise SegmentConflict(
                    f"{path} cannot be finalised as {segment.first_txid}..{wanted}: "
                    + (f"it ends at txid {found.last_txid}" if found.last_txid is not None else "it is empty")
                )
            if end > found.end:
                self._keep_torn(segment, file, found, end)
            if found.last_txid is not None:
                # Where no mark tells how much was synced, at most this much was not.
                unsure = max(found.header_size, found.end - UNSYNCED_SIZE_MAX if mark is None else mark)
                rewrite(file, unsure, found.end)
                return self._fix(segment, file, found.last_txid, found.end)
        self._fs.unlink(path)
        self._remove_mark(segment)
        self._fs.sync_dir(self._current)
        log.info("Removed {path}: it holds no transaction (I-84)", path=path)
        return None

    def _fix(self, segment: Segment, file: File, last_txid: TxId, end: int) -> Segment:
        """Cut off what is behind `end`, and give the file its final name."""
        file.truncate(end)
        file.sync()
        done = segment.finalised(last_txid, names.finalised_name(segment.first_txid, last_txid))
        self._fs.rename(self._file(segment.name), self._file(done.name))
        self._remove_mark(segment)
        self._fs.sync_dir(self._current)
        return done

    def _remove_mark(self, segment: Segment) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(self._file(names.mark_name(segment.first_txid)))

    def _keep_torn(self, segment: Segment, file: File, found: Scan, end: int) -> None:
        for attempt in range(TORN_FILES_MAX):
            target = self._file(names.torn_name(segment.first_txid, attempt))
            try:
                copy_durable(self._fs, file, found.end, end, target)
            except FileExistsError:
                continue  # of an earlier recovery; it is never overwritten
            self._fs.sync_dir(self._current)
            log.warn(
                "{path}: cut off {size} bytes of an unfinished write behind txid {last}; they are kept in {target}",
                path=self._file(segment.name),
                size=end - found.end,
                last=found.last_txid,
                target=target,
            )
            return
        raise JournalError(f"{self._current} holds {TORN_FILES_MAX} torn files of segment {segment}: look at them")

    def _put_twin_aside(self, segment: Segment, twin: Segment) -> None:
        """A file in progress beside the finalised one of the same segment, as a copy from elsewhere leaves it."""
        path = self._file(segment.name)
        file = self._fs.open(path, OpenMode.READ)
        with contextlib.closing(file):
            found = scan(file, segment.first_txid)
        if found.last_txid is not None and twin.last_txid is not None and found.last_txid > twin.last_txid:
            raise SegmentConflict(
                f"{path} reaches to txid {found.last_txid}, and {twin.name} only to {twin.last_txid}: "
                "find out which is right, and move the other away"
            )
        self._fs.rename(path, path + ".stale")
        self._remove_mark(segment)
        self._fs.sync_dir(self._current)
        log.warn("{path} was put aside as .stale: {twin} is finalised", path=path, twin=twin.name)

    # --- trimming

    def purge(self, min_txid_to_keep: TxId) -> list[Segment]:
        """Delete finalised segments that end below, oldest first; what fails is told when all were tried.

        Where nothing is left, seen_txid remembers which txids were used (I-81); Hadoop takes it for what a checkpoint
        has to cover then, which is what a purge says.
        """
        namespace = self.check()
        with self._held_meanwhile():
            gone: list[Segment] = []
            errors: list[str] = []
            finalised = self._listed(namespace)[0]
            last = max((segment.last_txid or 0 for segment in finalised), default=0)
            if self._seen_txid() < last < min_txid_to_keep:
                replace_durable(self._fs, self._file(names.SEEN_TXID), encode_seen_txid(last))
            for segment in finalised:
                if segment.last_txid is None or segment.last_txid >= min_txid_to_keep:
                    continue
                try:
                    self._fs.unlink(self._file(segment.name))
                except OSError as error:
                    errors.append(f"{segment.name}: {error}")
                    continue
                self._layouts.pop(segment.name, None)
                gone.append(segment)
            if gone:
                self._fs.sync_dir(self._current)
            if errors:
                raise JournalUnavailable(
                    f"{self.path}: {len(gone)} segments below txid {min_txid_to_keep} were deleted, "
                    f"{len(errors)} could not be: {'; '.join(errors[:5])}"
                )
            return gone

    def discard(self, first_txid: TxId) -> list[Segment]:
        """Delete all segments from a boundary on, the last one first, so that no gap ever shows."""
        namespace = self.check()
        with self._held_meanwhile():
            finalised, in_progress = self._listed(namespace)
            within = next(
                (one for one in finalised if one.first_txid < first_txid and first_txid <= (one.last_txid or 0)), None
            )
            within = within or next((one for one in in_progress if one.first_txid < first_txid), None)
            if within is not None:
                raise InvalidArgument(
                    f"{self.path}: cannot discard from txid {first_txid}, which may lie within segment {within}"
                )
            if self._seen_txid() >= first_txid:
                replace_durable(self._fs, self._file(names.SEEN_TXID), encode_seen_txid(first_txid - 1))
            gone: list[Segment] = []
            for segment in sorted([*finalised, *in_progress], key=_order, reverse=True):
                if segment.first_txid < first_txid:
                    continue
                self._fs.unlink(self._file(segment.name))
                self._layouts.pop(segment.name, None)
                if segment.in_progress:
                    self._remove_mark(segment)
                self._fs.sync_dir(self._current)
                gone.append(segment)
            return gone[::-1]

    # --- reading

    def open_segment(self, segment: Segment) -> File:
        """The file of a segment that was listed, also where it has been finalised since. Raises SegmentUnreadable."""
        try:
            return self._fs.open(self._file(segment.name), OpenMode.READ)
        except FileNotFoundError as error:
            if segment.in_progress:
                for name in self._fs.listdir(self._current):
                    found = names.segment_of(name, 0)
                    if found is not None and found.first_txid == segment.first_txid:
                        return self._fs.open(self._file(name), OpenMode.READ)
            raise SegmentUnreadable(
                f"{self._file(segment.name)} is gone: it was purged while it was being read"
            ) from error

    def confirmed(self, segment: Segment) -> Scan:
        """What of a segment in progress is durable; of one that another program writes, which leaves no mark: what is
        whole.
        """
        file = self.open_segment(segment)
        with contextlib.closing(file):
            mark = self.mark(segment)
            found = scan(file, segment.first_txid, limit=mark)
            if mark is not None and found.fault is not None:
                raise again(found.fault)
            return found

    def check_header(self, segment: Segment, file: File) -> tuple[int, int]:
        """(layout version, size of the header) of a segment's open file.

        Raises SegmentUnreadable where a finalised one has none, EditsCorrupt for one in progress, UnsupportedLayout.
        """
        try:
            return decode_header(file.pread(HEADER_SIZE_MAX, 0), file.path)
        except EditsCorrupt as error:
            if segment.in_progress:
                raise
            raise _header_unreadable(file.path, error) from error

    def mark(self, segment: Segment) -> int | None:
        """How far a segment in progress is durable; None where its writer leaves no mark."""
        return read_mark(self._fs, self._file(names.mark_name(segment.first_txid)))


def _header_unreadable(path: str, error: EditsCorrupt | None) -> SegmentUnreadable:
    """The error of a finalised segment's file whose header is damaged; None: has none at all."""
    why = f"{path} has no header, and its name says that it is finalised" if error is None else str(error)
    return SegmentUnreadable(f"{why}; {REMEDY}")


def _order(segment: Segment) -> tuple[int, int]:
    return segment.first_txid, segment.last_txid or 0
