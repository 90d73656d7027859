"""Watching and steering running servers from outside.

questions    what such a server says, asked from another process
access/      which requests an HTTP server allows
http/        the HTTP server of a bookie, of auto-recovery and of a hub, when httpServerEnabled=true
"""
