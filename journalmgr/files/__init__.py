"""The journal as edits files in a directory, as Hadoop's name nodes keep it on local disks.

    directory       work on the directory; blocking, on the worker
    journal         FileJournal, the JournalManager
    names           names of files and the header; pure
    opening         URI -> FileJournal
    reader          FileSegmentReader, FileTail
    segment_file    one edits file: appended to, scanned; blocking, on the worker
    version         VERSION and seen_txid; pure
    writer          FileSegmentWriter: buffers, one job for each flush

    DIRECTORY/in_use.lock                            held by the process that writes; says which one it is
    DIRECTORY/current/VERSION                        the namespace, as Java properties
                      seen_txid                      the txid that the last segment with data began with, decimal
                      edits_%019d-%019d              a finalised segment
                      edits_inprogress_%019d         the one that is being written
                      edits_inprogress_%019d.synced  how far that one is durable (ours; Hadoop ignores it)
                      edits_inprogress_%019d.torn... what recovery cut off behind the last whole record

What a crash leaves behind, and why nothing acknowledged is lost:
- a flush is one write and one sync; only then is it acknowledged, and `.synced` rewritten (and synced once a mebibyte
  only: an older one says less than the truth). So bytes below the mark are durable, and what is wrong with them is
  corruption;
- bytes behind the mark may be there in part: recovery keeps whole records up to the first that is not, puts the rest
  aside and cuts it off. At most UNSYNCED_SIZE_MAX bytes were ever unsynced, so a whole record further behind a damaged
  one was synced, and the damage is corruption: recovery refuses, and nothing is cut off;
- names change by rename, and the directory is synced before anything relies on it.
"""
