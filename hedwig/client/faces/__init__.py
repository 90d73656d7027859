"""Faces of the client of hubs: asyncio and blocking.

aio         the client for asyncio programs
blocking    the client without coroutines or reactors
shared      what both faces share
values      arguments of programs, checked and converted; pure
"""
