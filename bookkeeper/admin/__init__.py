"""Watching and steering running servers from outside.

access/      requests that an HTTP server allows
http/        the HTTP server of a bookie, of auto-recovery and of a hub, when httpServerEnabled=true
questions    requests to such a server from another process
"""
