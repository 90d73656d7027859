"""Copies of entries: checked, gathered, copied, moved.

access            digest and password of a ledger without its owner; pure
copy              entries read, packaged again and written to the bookies that lack them
flow              bound and rate of all copying of a process
fragment_check    reads from each member of a fragment, without fencing
fragments         fragments as re-replication sees them; pure
gather            good copies of entries from the bookies that have them; pure
ledger_adds       recovery adds of one ledger, and their answers
move              copies restored at places of a fragment: copies first, metadata second (I-75)
tally             counts of what was copied
target_check      whether a bookie may take copies of a ledger
verdicts          state of the copies at each place of a fragment; pure
"""
