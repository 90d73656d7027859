"""`bookkeeper perf`: figures of a running cluster, always beside what the machine itself can do.

calibrate.py   echo frames/s, fdatasync times, append rate: taken in the same run, sharing no code with the codec
latency.py     weighted latency histogram
measurement.py what one client process counts
in_flight.py   a fixed number of entries in flight over all ledgers of one process
worker.py      one client process: its task, its ledgers, its result
run.py         client processes that measure together, summed up
counters.py    CPU time and counters of bookie processes
report.py      the table and the JSON
collect.py     deletion, collection and compaction under load; collect_report.py, collection.py (the bookies of it)
soak.py        a fixed rate for hours; soak_record.py (the CSV file and its trends), soak_plot.py (the PNG)
rereplicate.py the loss of a bookie with many ledgers; damage.py (the ledgers, the check), healing.py (the wait for the
               repair; repair_sight.py decides)
churn.py       a load that creates, fills, checks and deletes ledgers; churn_process.py, churn_writes.py, churn_plan.py,
               churn_ledgers.py
arguments.py   options that several have
command.py     arguments, and `bench` with a cluster of its own
"""
