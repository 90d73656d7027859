"""Messages of other regions.

feed       one topic's messages of one other region, stored here in their order
sources    the subscriptions of this hub in other regions
"""
