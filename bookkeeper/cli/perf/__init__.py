"""`bookkeeper perf`: figures of a running cluster, always beside what the machine itself can do.

calibrate.py   echo frames/s, fdatasync times, append rate: taken in the same run, sharing no code with the codec
latency.py     weighted latency histogram
worker.py      one client process: writes or reads with a fixed number of outstanding entries
run.py         client processes that measure together, summed up
counters.py    CPU time and counters of bookie processes
report.py      the table and the JSON
command.py     arguments, and `bench` with a cluster of its own
"""
