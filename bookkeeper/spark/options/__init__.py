"""Options that the Spark formats share.

bounds           bounds on columns of whole numbers, out of a query; pure
filters          Spark's filters as bounds; pure
help             options of a format as text; pure
id_ranges        sets of ids as ranges; pure
kinds            kinds of values that several formats have; pure
limits           limits of one micro-batch; pure
stream_limits    limits of a micro-batch, between Spark and the options; pure
tables           tables of options, read from what a user gave to `.option(...)`
"""
