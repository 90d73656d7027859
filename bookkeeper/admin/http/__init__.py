"""HTTP for operators: /heartbeat, /metrics, and Apache's paths below /api/v1.

    routing.py         requests, answers, refusals; from method and path to a handler; pure
    server.py          HTTP in, HTTP out: the only user of twisted.web
    general.py         /heartbeat, /metrics, config/server_config
    ledgers.py         ledger/*
    cluster.py         bookie/list_bookies, list_bookie_info, cluster_info
    one_bookie.py      bookie/*: this bookie's mode, space, files
    garbage.py         bookie/gc*: collection and compaction of this bookie
    autorecovery.py    autorecovery/*
    ledger_access.py   a ledger client that is connected at the first request that needs it
    tasks.py           long operations that a request begins
    whole.py           which of these a bookie, an auto-recovery process, a hub serves

Each server makes a `Router` of what it has; what it lacks is answered 404 with the reason, never with a made-up value.
Handlers run on the reactor and await whatever blocks. Off by default; on 127.0.0.1 unless httpServerHost says
otherwise, since every client that reaches it may read. `bookkeeper.admin.access` has the rules. `server` is imported
only if it is enabled: twisted.web costs memory that most servers need not spend. Sources: Apache 4.18,
website/docs/admin/http.md, server/http/service.

Differs from Apache: every error has a JSON body {"error": sentence}; a method that a path does not have is 405, a value
that cannot be read 400, a part that cannot answer now 503, where Apache says 404 or 500.
"""
