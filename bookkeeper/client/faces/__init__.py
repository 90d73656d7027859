"""Faces of the client: asyncio and blocking, each on a Twisted reactor.

aio                the client for asyncio programs
blocking           the client without coroutines or reactors: scripts, command lines, Spark workers
loop_reactor       a Twisted reactor on a running asyncio loop
process_objects    objects that belong to one process, such as iterators
reactor_thread     a Twisted reactor in a thread of its own, and calls to it
"""
