"""Publish-subscribe on ledgers, by Hedwig's protocol. Not usable yet: no hub and no client is in this release.

    model errors names    values; what can go wrong; which names there are, and where their znodes are
    wire                  frames, messages, requests, responses, records: bytes and back
    protocol              decisions apart from I/O
    hub                   what a hub is made of

The `hedwig` command says so, and exits 1.
"""
