"""The words of an export and of an import. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.config.keys import GIB, MIB, Kind, boolean, integer, key, text
from bookkeeper.spark.ledgers.options import LedgerChoice, parse_ledgers
from bookkeeper.spark.options.kinds import quorum
from bookkeeper.spark.sink.options import COMMIT_PATH, COMMIT_PATH_MEANING, commit_path, name_of_write

EXPORT, IMPORT = "export", "import"
"""Where a word belongs, in messages."""

CHOICE, FILES, LEDGERS, COMMITS = "What is exported", "Files", "New ledgers", "Commits"

_LEDGERS: Kind[LedgerChoice] = Kind("all, or ids and ranges: 3,7,10-20", parse_ledgers)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What is exported, and into which files."""

    ledgers: LedgerChoice = key("ledgers", _LEDGERS, "all", CHOICE, "Ledgers; of a range those that there are.")
    owner: str = key(
        "owner", text("a name"), "", CHOICE,
        "Only ledgers of this owner, as the column owner of table ledgers has it. Not set: of all.",
    )  # fmt: skip
    application: str = key(
        "application", text("a name"), "", CHOICE,
        "Only ledgers whose custom metadata have this application. Not set: of all.",
    )  # fmt: skip
    open_too: bool = key(
        "open", boolean(), "false", CHOICE, "Open ledgers, too: what is confirmed when the export begins.",
    )  # fmt: skip
    fail_on_data_loss: bool = key(
        "failOnDataLoss", boolean(), "true", CHOICE,
        "Fail where something of what was chosen cannot be exported; false: say so in the manifest and go on.",
    )  # fmt: skip
    as_administrator: bool = key(
        "asAdministrator", boolean(), "false", CHOICE,
        "Read each ledger with the password that its metadata names, not with the option password.",
    )  # fmt: skip
    file_bytes_max: int = key(
        "maxFileBytes", integer("bytes", MIB, 64 * GIB), "134217728", FILES,
        "About how much payload a file holds at most.",
    )  # fmt: skip

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Nothing can be wrong between these words."""
        return iter(())


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How ledgers are written anew."""

    job: str = key(
        "job", name_of_write(), "", COMMITS, "Name of the import: what was committed under it is not written again.",
    )  # fmt: skip
    commit_path: str = key("commitPath", commit_path(), COMMIT_PATH, COMMITS, COMMIT_PATH_MEANING)
    ensemble: int = key("ensembleSize", quorum(), "", LEDGERS, "Bookies of a ledger. Not set: as it had.")
    write_quorum: int = key("writeQuorumSize", quorum(), "", LEDGERS, "Copies of each entry. Not set: as it had.")
    ack_quorum: int = key("ackQuorumSize", quorum(), "", LEDGERS, "Copies to wait for. Not set: as it had.")
    fail_on_data_loss: bool = key(
        "failOnDataLoss", boolean(), "true", LEDGERS,
        "Refuse an export in which something is lost; false: leave ledgers out that are not complete.",
    )  # fmt: skip

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """What is wrong between words."""
        if not self.job:
            yield ("job",), "is missing: a name for this import, by which it goes on where it was, e.g. restore-1"
        given = [each for each in (self.ensemble, self.write_quorum, self.ack_quorum) if each]
        if given != sorted(given, reverse=True):
            yield (
                ("ensembleSize", "writeQuorumSize", "ackQuorumSize"),
                f"{', '.join(map(str, given))}: none may be larger than the one before it",
            )
