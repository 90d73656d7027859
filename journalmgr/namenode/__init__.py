"""A metadata server in the manner of HDFS's name node: it shows that the journal does its work.

    errors        errors of the name node; pure
    fs_client     a blocking client of several name nodes
    http/         the HTTP interface
    images/       checkpoints
    machine       the state machine of a replica: loaded, moved on by transactions, saved
    namespace/    directories, files and links
    server        one name node put together
    service       requests on the active server, and who is active

    request -> namespace.operations    checked against the namespace -> operations to log; changes nothing
                    |
               the edit log            gives them their txids
                    |
               namespace.apply         the only way a namespace changes: on the active, and on every standby
                    |
               namespace.tree  ->  namespace.status (what clients see), images.format (a snapshot, its fingerprint)

Invariants:
- equal transactions leave equal namespaces, and equal namespaces equal images and fingerprints;
- a transaction is applied as a whole or not at all, and none is passed over.

Out of scope: snapshots, data nodes (a file's content is an attribute, see `namespace.tree.CONTENT_XATTR`), permissions
(modes, owners and lists are kept and shown, and nothing is refused for them), erasure coding.
"""
