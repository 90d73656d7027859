"""Publish, subscribe, consume: a client of hubs, ours or genuine.

client            PubSubClient, Publisher: what the faces stand on
subscription      messages in order, each once, through lost hubs
attaching         which hub delivers them: attached, attached anew, let go of
taking            messages that wait for their reader, and which of those it took are over
consuming         what is consumed of them, and what a hub is told of that
queueing          ... or acknowledged one by one, and shared with others
starting          where a subscription begins again
publishing        publishes of one topic: in order, many at a time, sent again where that is right
asking            one request to whichever hub serves a topic
hubs              who serves what; connections
link              one connection
settings          times and bounds
connecting        the parts put together: addresses of hubs, TCP, TLS (secure), a reactor
aio, blocking     the faces; faces: what they have in common; values: what they take
"""
