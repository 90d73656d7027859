"""Scrub: everything stored is read and verified in the background.

driver             rounds and rate of the scrub
indexed_records    what the index still needs of an entry log that cannot be read through
page_repair        damaged index pages, made again out of entry logs (I-59)
page_rules         content of a damaged index page, from the page and the entry logs; pure
repair_turns       which damaged index pages a round tries to repair; pure
steps              verification in small steps: entry logs, their maps, index files
"""
