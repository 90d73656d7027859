"""Bytes on a connection, and nothing else: no I/O, no clock, no decisions.

    availability     which entries a bookie holds, as runs
    codec            ServerCodec (finds out which version a client speaks); the client's encoders and decoders
    digest           the envelope of an entry: ids, LAC, length, digest; keys
    entry_size       the largest entry, the same for both protocol versions
    framing          length-prefixed frames out of chunks of any size, under a frame limit
    messages         requests, responses and batches, the same for both protocol versions
    packed_bodies    entries of one size in one answer, verified together
    pieces           received pieces of an unfinished frame; hedwig uses it too
    proto/           .proto sources and the modules generated from them by `make proto`
    runs             v3 frames that differ in two bytes and the body only
    status           status <-> error of the client
    v2               binary packets: one fast loop per chunk, one slow path for everything unusual
    v2_server        the bookie's side of v2: requests in, answers out
    v3               protobuf packets; only v3 and v3_server import BookkeeperProtocol_pb2, at the first v3 frame
    v3_server        the bookie's side of v3

A chunk of received bytes goes in, a list of messages in order of arrival comes out. Consecutive adds of one ledger
become one AddBatch, consecutive reads one ReadBatch; bodies are `bytes`, never views of a shared buffer, but for those
of a batch read (PackedBodies), which whoever gets them verifies at once. Whatever a peer sends, the worst outcome is
`codec.error`: no exception, and never more than one frame limit and its allowance of buffered bytes.
"""
