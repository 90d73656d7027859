"""Bookies as a client sees them: which exist, how to reach them, which to choose.

access_errors       errors of TLS, credentials, passwords and protocol, with their remedy
connection          requests to one bookie in one protocol version, over the life of its connections
directory           bookies: available or not, address, connection
disk_space          free disk space of bookies
link                one TCP connection to a bookie: TLS, credentials, bytes, messages
nearness            distance of bookies, for the order of reads; pure
own_machine         whether a host is this machine
pending_requests    requests that wait for an answer of one bookie
placement           choice of bookies over racks; pure
reachability        back-off after failed connections, and the protocol version of a bookie
tls                 TLS and credentials of a client
unsupported         bookies that are too old for an operation
weights             choice of bookies by free disk space; pure
"""
