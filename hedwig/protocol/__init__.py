"""Decisions of a hub, apart from its connections, ledgers and metadata. Pure.

subscription   create or attach; how far a subscriber has consumed; what of a topic nobody needs any more
"""
