"""The edit log of a metadata server, one ledger per segment: reserved, and empty so far.

The name is taken so that the distribution's layout and its console program are settled. This release holds
no journal manager: importing the package gives nothing, and the `journalmgr` command says so and exits 1.
"""
