"""Subscriptions of a client.

cursor          what an ordered subscription has consumed, and what its hub knows of it; pure
inbox           delivered messages that wait for their reader
session         the attachment of a subscription to a hub, renewed when the hub is lost
start           where a subscription begins again; pure
subscription    messages in order, each once, through lost hubs
work_queue      messages acknowledged one by one, perhaps shared with other clients; pure
"""
