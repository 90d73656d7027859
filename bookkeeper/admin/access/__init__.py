"""Who may ask an HTTP server what: one set of rules for bookie, auto-recovery, hub and name node.

    rules.py     pure  the decision about one request
    tokens.py    files of tokens: format, reading again, the token that our own commands send
    audit.py     the log line of a request
    curl.py      the curl line of a request that the rules let in
    surfaces.py  ports that other machines reach without credentials
    gate.py      the rules of one server: its names and its tokens

With a token file every path but /heartbeat needs a token. Without one, the network decides:

    method             peer             what a request needs
    GET, HEAD          any              Host is an IP address or a name of the server (DNS rebinding)
    POST               loopback         the same, and a header that no HTML form sends
    other              loopback         the same
    any                any              an Origin that is the server's own, or none

/heartbeat stays open: the probes of orchestrators cannot send a token, and it says no more than an open port does.

A page of another origin makes a browser send GET, HEAD and POST without asking. Every other method, every other header
and every content type that is not a form's needs a preflight (OPTIONS), which no server here grants. So only POST needs
the header: X-BookKeeper-Request, or a content type that forms lack, as application/json. A POST without a content type
does not do: `navigator.sendBeacon` sends one. Apache's administrators use PUT and DELETE, which need nothing.

WebHDFS: Hadoop's client sends POST (CONCAT, TRUNCATE) exactly as a form does and cannot add a header. So a POST of
WebHDFS needs the header only if its User-Agent is a browser's: Hadoop's own rule (`RestCsrfPreventionFilter`, whose
default pattern is ^Mozilla.*,^Opera.*). No page can change the User-Agent of a request that needs no preflight.

A browser always sends Host, so a request without it is no page's. HTTP/1.0 allows it, and it is answered.

With tokens, the Host does not matter: a page that was rebound to the server has no token.
"""
