"""`bookkeeper metadata`: the metadata store compared with what bookies hold, and what an operator decides about it.

command.py       options, and the decisions
facts.py         the store and all bookies are asked
comparison.py    what differs, and what of that needs somebody; pure
"""
