"""The replication worker: repairs marked ledgers.

damaged_copies    copies that a bookie reported as damaged
failed_repairs    ledgers that could not be repaired: reason, next attempt; pure
ledger_repair     repair of one ledger: check, copy, recover
locked_ledgers    ledgers that this worker has locked
read_ahead        listings fetched ahead
repair_log        log lines about finished repairs; pure
settings          bounds, rates and times of a worker
worker            the worker: marked ledgers, many at a time
"""
