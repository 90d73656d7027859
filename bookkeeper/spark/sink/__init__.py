"""Writing rows to ledgers: one ledger for each task, committed together, exactly once.

commit_format    znodes of commits; pure
commits          commits of a query or job in the metadata store
history          jobs, queries and the ledgers of each batch
options          options of the format for writing; pure
purpose          what a ledger of a task records of itself; pure
retention        deletion of the oldest batches of a query
sink             the sink: tasks, commit, abort
sweep            deletion of ledgers that no commit names
task_ledger      the ledger of one task attempt
"""
