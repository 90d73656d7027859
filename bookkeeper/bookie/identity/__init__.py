"""Identity of a bookie: its id, its directories, its cookie, its registration.

claim                locks and cookies of all directories at a start
cookie_rules         comparison of settings, metadata store and directories; pure
id_change            a new bookie id in cookies
identity             bookie id, cookies in directories, stamps
moved_directories    a new cookie for directories that were moved or renamed
registration         registration in the metadata store: kept, changed to read-only, removed at the end
sessions             metadata sessions of this bookie's processes, in a file beside the journal
"""
