"""What `hedwig perf` measures.

plan        which measurements there are. Pure
loads       publish, deliver, drain, acquire: what a client does in one of them
meter       what counts of it
worker      a client process, told by JSON lines what to do
run         a cluster, its client processes, and what the hub and the bookies spent
"""
