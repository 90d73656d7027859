"""Settings of the journal on ledgers. Names and defaults are those of dfs.namenode.bookkeeperjournal.*."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.client.read.entries import payload_size_max
from bookkeeper.config import ClientSettings
from bookkeeper.errors import InvalidArgument

ENTRY_SIZE_MAX = 0xFFFFF - 256
"""Bytes of transactions in one entry. A bookie of 4.2.3 refuses frames beyond 0xFFFFF bytes; header, master key, digest
and the longer frame of protocol v3 take less than 256 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerJournalSettings:
    """How segments are kept. Timeouts of ledgers are the client's.

    ensemble, write_quorum, ack_quorum: of new ledgers (ensemble-size, quorum-size, ack.quorum-size); ack_quorum is the
    write quorum unless given.
    password: of all ledgers (digestPw). Whoever reads the journal needs it.
    output_buffer_size: an entry is sent once more bytes than this wait, and at every flush (output-buffer-size).
    Differs from Apache: 128 KiB instead of 1024 bytes; a flush that carries the work of many callers is one entry then.
    available_path: znode under which bookies register; `connect` makes it (zk.availablebookies).
    """

    ensemble: int = 3
    write_quorum: int = 2
    ack_quorum: int | None = None
    password: bytes = b""
    output_buffer_size: int = 128 * 1024
    available_path: str = "/ledgers/available"

    def __post_init__(self) -> None:
        ack_quorum = self.acknowledgements
        if not self.ensemble >= self.write_quorum >= ack_quorum >= 1:
            raise InvalidArgument(
                f"ensemble-size {self.ensemble}, quorum-size {self.write_quorum}, ack.quorum-size {ack_quorum}: need "
                "ensemble >= quorum >= ack quorum >= 1"
            )
        if not 0 <= self.output_buffer_size <= ENTRY_SIZE_MAX:
            raise InvalidArgument(
                f"output-buffer-size {self.output_buffer_size} is not in 0..{ENTRY_SIZE_MAX}: an entry holds no more"
            )

    @property
    def acknowledgements(self) -> int:
        """The ack quorum."""
        return self.write_quorum if self.ack_quorum is None else self.ack_quorum


def default_client_settings() -> ClientSettings:
    """Of the ledger client where nothing else is said: Hadoop's timeouts for its journal (journalmgr/FORMATS.md 1.3).

    The session with ZooKeeper is how long a dead writer stays the elected one; a follower is about the LAC's interval
    behind a writer that pauses.
    """
    return ClientSettings(
        zk_session_timeout_s=3.0,
        speculative_read_delay_s=2.0,
        read_timeout_s=5.0,
        add_timeout_s=5.0,
        explicit_lac_interval_s=0.1,
    )


def entry_size_max(frame_size_max: int) -> int:
    """Bytes of transactions in one entry of a client whose frames have this bound."""
    return min(ENTRY_SIZE_MAX, payload_size_max(frame_size_max))
