"""Bounds of the connections of every server: bookie, hub, HTTP of all of them, name node.

admission     how many connections, how long they may be silent, what they may hold; which one is closed
descriptors   how many connections the limit on open files leaves room for
http_channel  HTTP connections under these bounds
peers         names of peers, and log lines about them, at a bounded rate
"""
