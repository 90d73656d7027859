"""Topics as DataFrames. Needs the extra `spark`; importing this package imports neither pyspark nor a reactor.

region_tables     topics, subscriptions, hubs: tables of the format bookkeeper.cluster, found by entry point
"""
