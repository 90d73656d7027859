"""A simulated ZooKeeper, for simulation and tests.

session    a session with it: delays, faults, expiry
store      the metadata store on it
tree       its znodes: a leader's tree, followers behind it, sessions
"""
