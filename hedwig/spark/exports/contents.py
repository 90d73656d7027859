"""What of a message is the same wherever it is published: its body and its own properties; the digest of these. Pure.

    message    SHA-256 of a line for its body, and one for each property, these ascending:
                   <digest of the body>
                   <digest of the property's name> <digest of its value>
    topic      from its messages by their numbers, as a ledger from its entries (bookkeeper.spark.exports.digests)

Digests are SHA-256, as 64 hexadecimal digits; each line ends with a line feed. The properties of GIVEN are given by hub
and publisher each time that a message is published, and do not count; nor does what a data frame does not tell: the
message's type and region of origin.

`message_digests` does the same in SQL; this is its plain twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from bookkeeper.spark.exports.digests import digest_of_payload
from hedwig.protocol.options import PREVIOUS, PRODUCER, SEQUENCE, TIME

GIVEN = (PRODUCER, SEQUENCE, PREVIOUS, TIME)


def digest_of_message(body: bytes, properties: Mapping[str, bytes]) -> str:
    """Of one message."""
    lines = sorted(
        f"{digest_of_payload(name.encode())} {digest_of_payload(value)}\n"
        for name, value in properties.items()
        if name not in GIVEN
    )
    return sha256(f"{digest_of_payload(body)}\n{''.join(lines)}".encode()).hexdigest()


def import_producer(export_id: str, job: str) -> bytes:
    """Under which name an import publishes: another one for each export, and for each name of an import."""
    return b"i" + sha256(f"{export_id}\n{job}".encode()).hexdigest()[:32].encode()
