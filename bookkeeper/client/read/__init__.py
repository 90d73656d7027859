"""Reading ledgers: handles, ranges, batches, streams, tails.

batch           many entries in one answer (v2, since 4.17)
entries         entries as a reader returns them; pure
lac             the LAC, asked of the bookies
list_entries    entries of a ledger that one bookie holds
long_poll       the wait for the next confirmed entry of an open ledger
range           a range of entries, from the bookies of their write sets
read_handle     a read handle: ranges, streams, LAC, tails
single          one entry, from the first bookie that delivers it
speculation     the speculative delay of single reads
stream          streams of entries in batches, with read-ahead, and tails
unconfirmed     entries behind the LAC that a reader knows
view            metadata of a ledger, and how far it may be read (I-42, I-46)
"""
