"""The auditor: finds ledgers that lack copies and marks them.

auditor           candidate and auditor: election and terms
conclusions       what follows from the answers of bookies; pure
jobs              jobs of the auditor: each examines all ledgers once
progress          progress of the jobs
replica_counts    entries that bookies hold, compared with metadata; pure
term              one auditor's term, from election to end of session
"""
