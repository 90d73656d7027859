"""What `hedwig perf` measures, and its failover drill.

plan        which measurements there are. Pure
loads       publish, deliver, drain, acquire: what a client does in one of them
meter       what counts of it
process     client processes, and what is said to them and by them
worker      a client process that measures
run         a cluster, its client processes, and what the hub and the bookies spent

drill           hubs and bookies are killed under load
drill_client    a client process that publishes or subscribes, and notes what happens
drill_records   what it notes. Pure
drill_check     which promises were broken, by that. Pure
"""
