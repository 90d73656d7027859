"""`bookkeeper metadata`: a comparison of the metadata store with the bookies, and an operator's decisions.

command.py       options, and the decisions
facts.py         reads the store, and asks all bookies
records.py       reads all ledger records, and names those that cannot be read
comparison.py    the differences, and which of them need an operator; pure
"""
