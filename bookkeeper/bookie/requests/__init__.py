"""Requests of a bookie: what each kind means, and in which order things become visible, durable and answered.

adds            adds: check of the fence and the password, memtable and journal in one turn, answer after the sync
batch_read      reads of consecutive entries in one answer
duplicates      comparison of a repeated add with the stored entry (I-69); pure
entry_reads     entries from memory, or from disk on the read worker
fence           password and fence of each ledger
intake          accounting shared by all requests: begun, decided, journalled, answered once
interfaces      what a bookie needs of its storage and its journals
known_lac       the highest LAC that a bookie knows of each ledger; pure
lac             explicit LACs: journalled before they are served; reads of the LAC
ledger          requests about a whole ledger: force, list of entries
ledger_gates    requests that wait until data of their ledger was read from disk
long_poll       reads that wait for a LAC
lru_map         a dictionary with a bounded number of keys; pure
reads           reads of single entries and batches, with and without a fence
"""
