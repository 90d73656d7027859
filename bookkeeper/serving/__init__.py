"""Bounds of the connections of every server: bookie, hub, name node, and the HTTP servers of all.

admission     bounds on number, silence and memory of connections; which connection is closed at a bound
descriptors   connections and open files that fit the limit on open files
http_channel  HTTP connections within these bounds
peers         names of peers, and rate-limited log lines about peers
"""
