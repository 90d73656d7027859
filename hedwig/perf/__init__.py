"""What `hedwig perf` measures, on a client and a meter that are handed over.

loads       publish, deliver, drain, acquire: one measurement each
"""
