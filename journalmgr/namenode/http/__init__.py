"""HTTP interface of a name node (WebHDFS).

acl           access control lists as WebHDFS writes them
answers       attributes, summaries, errors
api           paths, and the answer to each error
messages      requests taken apart, answers put together
operations    operations of WebHDFS: method, parameters, request to the service
server        sockets, requests and their limits
"""
