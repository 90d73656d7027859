"""A TCP proxy before a ZooKeeper server that can end clients' handshakes, or leave them unanswered."""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
from types import TracebackType
from typing import Self


class Mode(enum.Enum):
    """The treatment of a connection."""

    PASS = "passed on"
    REFUSE = "ended once the client has asked for its session, as by a server with an older state"
    SILENT = "accepted and not answered"


class ZooKeeperProxy:
    """One address for clients. A context manager. accepted_count: connections since the last `turn`."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._mode = Mode.PASS
        self._open: set[socket.socket] = set()
        self.accepted_count = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def turn(self, mode: Mode) -> None:
        """Set the mode for new connections; end the open ones."""
        self._mode = mode
        self.accepted_count = 0
        self._end_all()

    def _end_all(self) -> None:
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(client)
            self.accepted_count += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._mode is Mode.REFUSE:
                client.recv(65536)
            elif self._mode is Mode.SILENT:
                while client.recv(65536):
                    pass
            else:
                with socket.create_connection(self._target) as server:
                    self._open.add(server)
                    back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                    back.start()
                    _pump(client, server)
                    back.join()
                    self._open.discard(server)
        except OSError:
            pass
        finally:
            self._open.discard(client)
            client.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end_all()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
