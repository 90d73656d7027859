"""Decisions of a hub, apart from its connections, ledgers and metadata. Pure.

subscription       create or attach; how far a subscriber has consumed; what of a topic nobody needs any more
expressions        which messages a subscriber wants, said about their headers: the language
conditions         the same as functions that are asked for each message

Beyond Hedwig, for who asks:

options            names of options and header properties that clients and hubs of this project give each other
producers          publishing once: which messages of which producers a topic has
publish_time       when a message was published
acknowledgements   individual acknowledgement: what is done, what comes again and when, what is dead
work_queue         a shared subscription: who gets which message
retention          what of a topic may go by age and size
kept_ledgers       why ledgers of a topic are kept, and until when
replay             where to begin again, by id or time
"""
