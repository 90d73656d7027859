"""Watching a running bookie from outside.

http.py   GET /heartbeat and GET /metrics (Prometheus text), when httpServerEnabled=true
"""
