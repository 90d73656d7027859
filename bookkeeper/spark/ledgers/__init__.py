"""The Spark format `bookkeeper`: entries of ledgers as rows.

extents           how far each ledger is to be read, when a query is planned
offsets           how far a stream has come, and one micro-batch takes it; pure
options           options of the format for reading; pure
partition         what one task reads
plan              partitions of a query; pure
sight             how far ledgers can be read now, for streams
slices            slices of ledgers read in a task
source            the data source, in batches
stream            the data source as a stream
stream_offsets    offsets of a micro-batch that is planned again; pure
unconfirmed       warnings about entries of open ledgers that a query leaves out
"""
