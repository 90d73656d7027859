"""Integrity of stored bytes: checksums, damage, scrub and repair.

checksums/    checksums of entry logs and of index pages, in side files
damage/       what is known to be damaged, and reports of it
scrub/        verification of everything stored, and repair of index pages
"""
