"""Decisions of a hub, apart from its connections, ledgers and metadata. Pure.

expressions    which messages a subscriber wants, said about their headers
options        names of options and header properties that clients and hubs of this project give each other
subscription   create or attach; how far a subscriber has consumed; what of a topic nobody needs any more
"""
