"""Frames and records of publish-subscribe as bytes. Pure.

    framing     four bytes of length, then one protobuf message; a bound
    messages    a message as it is stored: stamped with its region and id
    view        the same, decoded only as far as somebody asks: for filters
    requests    what a hub hears: publishes of one topic in a run, the rest one by one; and what a client writes
    responses   what a hub says: answers, deliveries, events; and what a client hears of them
    records     what is in the metadata, binary and text

Nearly all that passes is publishes and deliveries of plain messages. Their bytes are put together, and taken apart,
without a protobuf object for each; whatever looks otherwise goes through protobuf. Both ways give the same; tests hold
them to it. Source: hedwig/PROTOCOL.md 1, 4, 9.
"""
