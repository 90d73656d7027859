"""Publish-subscribe on ledgers (Hedwig's protocol): reserved, and empty so far.

The name is taken so that the distribution's layout and its console program are settled. This release holds
no hub and no client: importing the package gives nothing, and the `hedwig` command says so and exits 1.
"""
