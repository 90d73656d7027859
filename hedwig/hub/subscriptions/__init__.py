"""Subscriptions of a hub: records, deliveries, outstanding messages.

attachment           a subscription held by one connection: deliveries in order
dead_letters         messages that were delivered too often, published to another topic
delivery_budget      bound on outstanding messages of all subscriptions
records              stored records of one topic's subscriptions
replay               where a subscription begins again, by message or by time
shared_attachment    a subscription with individual acknowledgement, held by one or several connections
"""
