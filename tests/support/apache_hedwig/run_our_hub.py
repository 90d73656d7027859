"""One hub of ours, until SIGTERM: python -m tests.support.apache_hedwig.run_our_hub URI PORT PREFIX

Says "serving ADDRESS" on standard output once it serves.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.logger import globalLogBeginner, textFileLogObserver
from twisted.python.failure import Failure

from bookkeeper.config import ClientSettings
from hedwig.hub.server import Hub, HubSettings


def main(uri: str, port: str, prefix: str) -> None:
    """Run it."""
    reactor: Any = _reactor
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    client = ClientSettings(zk_session_timeout_s=2)
    hub = Hub(
        reactor,
        HubSettings(metadata_uri=uri, host="127.0.0.1", port=int(port), prefix=prefix, client=client),
    )

    def failed(failure: Failure) -> None:
        sys.stderr.write(failure.getTraceback())
        reactor.stop()

    def serves(_: None) -> None:
        sys.stdout.write(f"serving {hub.address}\n")
        sys.stdout.flush()

    reactor.addSystemEventTrigger("before", "shutdown", hub.stop)
    reactor.callWhenRunning(lambda: hub.start().addCallbacks(serves, failed))
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
