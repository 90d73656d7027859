"""What operators look at and change, in ZooKeeper and ledgers, without a hub; and requests to hubs.

region           topics, hubs, subscriptions of one region, as they are recorded; nothing is claimed, nothing is fenced
reading          a topic's messages from its ledgers
topic_retention  which rule keeps each ledger of a topic, and until when
listed_ledgers   which topic a ledger belongs to
topic_ends       the last acknowledged message of a topic; hubs are asked where bookies do not know
balance          which hubs have too many topics (pure)
asking           hubs are asked over HTTP to give topics up
blocking         all of that for commands: connects, crosses threads
"""
