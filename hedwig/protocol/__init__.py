"""Decisions of a hub, apart from its connections, ledgers and metadata. Pure.

acknowledgements    individual acknowledgement: what is done, what is delivered again and when, what is dead
conditions          filter expressions as functions of a message
expressions         filter expressions: the language
kept_ledgers        why ledgers of a topic are kept, and until when
options             names of options and header properties that only clients and hubs of this project use
producers           publish-once: the messages of each producer that a topic has
publish_time        when a message was published
replay              where to begin again, by id or time
retention           which ledgers of a topic may be deleted by age and size
subscription        create or attach; how far a subscriber has consumed; which messages every subscriber has consumed
work_queue          a shared subscription: which consumer gets which message

All but `subscription`, `conditions` and `expressions` is beyond Hedwig, and is off unless a client asks for it.
"""
