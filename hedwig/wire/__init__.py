"""Frames and records of publish-subscribe as bytes. Pure.

    framing     four bytes of length, then one protobuf message; a bound
    messages    a message as it is stored: with its region and id
    receiving   runs of answers and deliveries, read by a client without protobuf objects
    records     records in the metadata, binary and text
    requests    requests: written by clients, read by hubs
    responses   answers, deliveries, events: written by hubs, read by clients
    view        a stored message, decoded as far as a filter needs it

Nearly all that passes is publishes and deliveries of plain messages. Their bytes are put together, and taken apart,
without a protobuf object for each; whatever looks otherwise goes through protobuf. Both ways give the same; tests hold
them to it. Source: hedwig/PROTOCOL.md 1, 4, 9.
"""
