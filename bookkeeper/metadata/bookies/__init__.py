"""Bookies in ZooKeeper: registrations, service info, cookies.

cookie          a cookie as text; pure
cookies         cookies as znodes
counts          counts of a cluster's bookies; pure
list            registered bookies, kept up to date by watches
registration    the registration of this process's bookie
service_info    what a bookie publishes about itself; pure
"""
