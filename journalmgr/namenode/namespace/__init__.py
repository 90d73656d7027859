"""The namespace of a name node: a tree of directories, files and links.

acl              access control lists of inodes; pure
apply            transactions applied to the namespace; pure
apply_records    transactions about counters, upgrades, tokens, cache pools; pure
checks           conditions of an operation: paths, limits, quotas; pure
operations       requests of clients, checked, as operations to log; pure
slices           long walks in slices
status           attributes of inodes and listings; pure
tree             directories, files, links and counters; pure
xattrs           extended attributes; pure
"""
