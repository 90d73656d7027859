"""What `hedwig perf` measures, and its failover drill.

drill            hubs and bookies are killed under load
drill_check      promises that were broken, by the notes of the clients; pure
drill_client     a client process that publishes or subscribes, and notes what happens
drill_records    these notes; pure
holder           a client process with very many subscriptions
loads            publish, deliver, drain, acquire: what a client does in a measurement
meter            what counts of a load
plan             the measurements; pure
process          client processes, and messages to and from them
run              a cluster, its client processes, and what the hub and the bookies spent
scale            very many topics with a subscription each
worker           a client process that measures
"""
