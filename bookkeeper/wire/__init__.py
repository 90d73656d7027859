"""Bytes on a connection, and nothing else: no I/O, no clock, no decisions.

    framing.py    length-prefixed frames out of chunks of any size, under a frame limit
    pieces.py     received pieces of an unfinished frame; hedwig uses it too
    entry_size.py the largest entry, the same for both protocol versions
    messages.py   requests, responses and batches, the same for both protocol versions
    v2.py         binary packets: one fast loop per chunk, one slow path for everything unusual
    v2_server.py  the bookie's side of v2: requests in, answers out
    v3.py         protobuf packets; it and v3_server alone import BookkeeperProtocol_pb2, and only at the first v3 frame
    v3_server.py  the bookie's side of v3
    packed_bodies.py  entries of one size in one answer, looked at together
    runs.py       v3 frames that differ in two bytes and the body only
    codec.py      ServerCodec (finds out which version a client speaks); the client's encoders and decoders
    status.py     status <-> error of the client
    availability.py  which entries a bookie holds, as runs
    digest.py     the envelope of an entry: ids, LAC, length, digest; keys
    proto/        .proto sources and the modules generated from them by `make proto`

A chunk of received bytes goes in, a list of messages in order of arrival comes out. Consecutive adds of one ledger
become one AddBatch, consecutive reads one ReadBatch; bodies are `bytes`, never views of a shared buffer, but for those
of a batch read (PackedBodies), which whoever gets them verifies at once. Whatever a peer sends, the worst outcome is
`codec.error`: no exception, and never more than one frame limit and its allowance of buffered bytes.
"""
