"""Connections of a bookie: bytes, handshakes, limits, and the way from a decoded request to its answer.

dispatch           one call of the bookie for each decoded request, and its answer as bytes
endpoint           one connection: received bytes, waiting requests, unsent answers
handshake          TLS and authentication of one connection before its first request
handshake_rules    decisions of the handshake: upgrade, authenticate, refuse, close; pure
listeners          ports: reserved first, opened when the bookie is ready, closed in the order of a clean stop
service            all connections: shared sums, order of reading, order of flushing
"""
