"""A metadata server in the manner of HDFS's name node: what proves that the journal does its work.

    request -> operations.Requests   checked against the namespace -> operations to log; changes nothing
                    |
               the edit log          gives them their txids
                    |
               apply.apply           the one way a namespace changes: on the active, and on every standby
                    |
    namespace.Namespace  ->  status (what clients are shown),  image_format (a snapshot of it, its fingerprint)

Files:
    namespace      the tree, its indices, counters and quotas         status     FileStatus, listings
    apply          one operation of the edit log onto a namespace     acl        access control lists
    apply_records  those about what is beside the tree                xattrs     extended attributes, content
    operations     requests of clients to operations                  errors     what can be refused, and why
    checks         paths, limits and quotas of requests               image_format  a namespace as bytes and back

    machine        the namespace as a replica's state: checkpoint, transactions, fingerprint
    checkpoints    images in a directory, and what any store of them promises
    ledger_checkpoints  images in ledgers   image_notes  none of them left behind, none deleted that is needed
    checkpointing  when they are taken, how many stay, what is purged then
    service        one server as a process                            server     journal, election, checkpoints, HTTP
    slices         long looks at the namespace, between others

    http_server    connections of the HTTP interface, bounds          http_api   paths, errors at the edge
    http_operations  the operations of WebHDFS                        http_messages  request, parameters, answer
    http_answers   errors, summaries, attributes as WebHDFS has them  http_acl   access control lists as text
    fs_client      a blocking client of several servers

Invariants:
- equal transactions leave equal namespaces, and equal namespaces equal images and fingerprints;
- a transaction is applied wholly or not at all; none is passed over.

Out of scope: snapshots, data nodes (a file's content is an attribute, see `namespace.CONTENT_XATTR`), permissions
(modes, owners and lists are kept and shown; nobody is refused anything for them), erasure coding.
"""
