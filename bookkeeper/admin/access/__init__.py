"""Access to the HTTP servers: one set of rules for bookie, auto-recovery, hub and name node.

    rules.py     the decision about one request; pure
    tokens.py    token files: format, reloading, the token that our own commands send
    audit.py     the log line of a request
    curl.py      the curl line of a request that the rules allow
    surfaces.py  ports that other machines reach without credentials
    gate.py      the rules of one server: its names and its tokens

With a token file every path except /heartbeat needs a token. Without a token file, the network decides:

    method             peer             the request needs
    GET, HEAD          any              a Host that is an IP address or a name of the server (against DNS rebinding)
    POST               loopback         such a Host, and a header that no HTML form sends
    other              loopback         such a Host
    any                any              the server's own Origin, or none

/heartbeat stays open: the probes of orchestrators cannot send a token, and the path reveals no more than an open port.

A page of another origin can make a browser send GET, HEAD and POST without a preflight (OPTIONS). All other methods,
all additional headers and all content types that forms do not use need a preflight, which no server here grants. So
only POST needs the header: X-BookKeeper-Request, or a content type that forms do not use, such as application/json. A
POST without a content type is not enough: `navigator.sendBeacon` sends one. Apache's administrators use PUT and
DELETE, which need no header.

WebHDFS: Hadoop's client sends POST (CONCAT, TRUNCATE) exactly as a form does, and cannot add a header. So a POST to
WebHDFS needs the header only if its User-Agent is a browser's. This is Hadoop's own rule (`RestCsrfPreventionFilter`,
default pattern ^Mozilla.*,^Opera.*). A page cannot change the User-Agent of a request without a preflight.

A browser always sends Host, so a request without Host does not come from a page. HTTP/1.0 allows such a request, and it
is answered.

With tokens, the Host is not checked: a page with a rebound name has no token.
"""
