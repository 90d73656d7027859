"""Publish, subscribe, consume: a client of hubs, ours or genuine.

client            `PubSubClient` and `Publisher`, on which the faces stand
connecting        a client put together: addresses, TCP, TLS, a reactor
faces/            asyncio and blocking clients
hubs              which hub serves a topic, and connections to hubs
lanes             publishes of one topic: in order, many at a time, sent again where that is safe
link              one connection to a hub
publish_once      numbered messages, published again if their outcome is unknown
request           one request to the hub that serves a topic: redirects, lost hubs
settings          times and bounds; pure
subscriptions/    subscriptions
tls               TLS to a hub's second port
"""
