"""Watching and steering running servers from outside.

http/     the HTTP server of a bookie, of auto-recovery and of a hub, when httpServerEnabled=true
"""
