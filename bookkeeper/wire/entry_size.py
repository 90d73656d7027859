"""The largest entry: what every request and answer of both protocol versions can carry under one frame limit.

Entries of one version may be read by the other, so both encoders allow the same size: that which fits into the frame
with the most bytes around an entry body. Those bytes include the frame's length field, which Apache's limit counts too:

    v2 add, read, fencing read               28    length 4, header 4, and 20 of key, or of code and ids
    v2 batch read                            40    length 4, header 4, code and ids 20, request id 8, entry's size 4
    v3 read, fencing read, long poll    71 + 2s    header 17, status 2, inner message 2 + s: status 2, ledger id 10,
                                                   entry id 11, body 1 + s, LAC 11, time of the LAC 11
    v3 recovery add                     73 + 2s    header 19 (priority), inner message 2 + s: ids 20, key 22,
                                                   body 1 + s, write flags 2, flag 3
    v3 read of the LAC                  76 + 2s    header 17, status 2, inner message 2 + s: status 2, ledger id 10,
                                                   explicit LAC 38 (16 and an HMAC), body 1 + s

s: bytes of a varint that holds a size below the frame limit, 4 for the default. Every other varint counts at its
longest: request ids of 64 bits, ledger ids of 63, entry id -1. A test encodes each of these frames.

An entry that exists already may be larger: earlier releases, and Apache's v2 client, write up to the limit less 28
bytes. Readers accept the longer answers (`framing.ANSWER_ALLOWANCE`); copies too large for a v3 add are sent by v2.
"""

from __future__ import annotations

from bookkeeper.model import ENTRY_HEADER_SIZE
from bookkeeper.wire.framing import LENGTH_SIZE, request_size_max
from bookkeeper.wire.runs import varint_size

V2_ADD_AROUND = 28
_V3_ADD_AROUND = 73
_V3_READ_LAC_AROUND = 76
_DIGEST_SIZE_MAX = 20  # an HMAC


def entry_body_size_max(frame_size_max: int) -> int:
    """Return the bytes of the largest new entry with its header and digest."""
    return frame_size_max - _V3_READ_LAC_AROUND - 2 * varint_size(frame_size_max)


def payload_size_max(frame_size_max: int) -> int:
    """Return the bytes of the largest new payload under any digest."""
    return entry_body_size_max(frame_size_max) - ENTRY_HEADER_SIZE - _DIGEST_SIZE_MAX


def v2_copy_size_max(frame_size_max: int) -> int:
    """Return the bytes of the largest entry that a v2 recovery add can send to a bookie with the allowance.

    Apache's bookies accept FRAME_ALLOWANCE bytes less, and never hold a larger entry.
    """
    return request_size_max(frame_size_max) + LENGTH_SIZE - V2_ADD_AROUND


def v3_copy_size_max(frame_size_max: int) -> int:
    """Return the bytes of the largest entry that a v3 recovery add can send to any bookie."""
    return frame_size_max - _V3_ADD_AROUND - 2 * varint_size(frame_size_max)
