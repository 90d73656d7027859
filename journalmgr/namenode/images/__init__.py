"""Checkpoints of a name node: images of its whole state.

checkpoints           where checkpoints are kept
format                the bytes of an image; pure
ledger_checkpoints    checkpoints in ledgers
notes                 notes of ledgers that belong to no listed image (I-86)
schedule              when checkpoints are taken, how many are kept, what is purged
"""
