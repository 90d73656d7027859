"""Protection of ledgers that a metadata store forgot because it went back in time.

file      a bookie's memory of the metadata store, one file in each ledger directory
format    the bytes of that file; pure
guard     the protection in each round of garbage collection
rules     what may be collected if the store may have gone back in time; pure
"""
