"""Settings of the journal and of the metadata server on it. Keys, defaults and meanings are Hadoop's 2.7.

    command line (-D KEY=VALUE) > environment > file > default

environment: JM_ and the key with `.` and `-` as `_`, because a shell cannot name a variable otherwise:
JM_dfs_namenode_shared_edits_dir. file: key=value lines as conf/journalmgr.conf, where an unknown key is refused; or a
Hadoop configuration (*.xml), where a whole Hadoop's keys stand and those of others have no effect.

Source: journalmgr/FORMATS.md 1.3, 7.5, 9.1. `python -m journalmgr.config` prints conf/journalmgr.conf.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from bookkeeper.config import ClientSettings, ConfText, Loaded, keys_of, load_client
from bookkeeper.config.http import allowed_hosts_key, token_file_key
from bookkeeper.config.keys import DAY_S, INT32_MAX, KIB, MIB, Kind, boolean, integer, key, seconds, secret_bytes, text
from bookkeeper.config.render import Section, render_sections
from bookkeeper.config.shared import check_root
from bookkeeper.config.table import (
    Fault,
    Given,
    Rules,
    Source,
    from_command_line,
    from_conf,
    from_environment,
    load_table,
    nearest,
    read_conf,
)
from bookkeeper.errors import InvalidArgument
from journalmgr.files.journal import FileJournalSettings
from journalmgr.hadoop_xml import HadoopProperty, parse_hadoop_xml
from journalmgr.ledger.settings import ENTRY_SIZE_MAX, LedgerJournalSettings
from journalmgr.plugins import unserved
from journalmgr.uri import parse_uri

ENVIRONMENT_PREFIX = "JM_"

SHARED_EDITS = "dfs.namenode.shared.edits.dir"
_LEDGERS = "dfs.namenode.bookkeeperjournal."
_OURS = "journalmgr."
TOKEN_FILE_KEY = f"{_OURS}http.token-file"
ALLOWED_HOSTS_KEY = f"{_OURS}http.allowed-hosts"

WHERE = "Where the journal is"
LEDGERS = "Journals on ledgers"
FILES = "Journals on files"
CHECKPOINTS = "Checkpoints of the metadata server"
HTTP = "HTTP interface of the metadata server"
FAILOVER = "High availability of the metadata server"

FOREIGN = "a key of Hadoop that no journal has"
"""Reason of keys of a Hadoop configuration that have no effect here."""

AVAILABLE = "/available"

_YEAR_S = 365 * DAY_S
_DURATION = re.compile(r"([+-]?[0-9]{1,18})(ns|us|ms|s|m|h|d)?", re.ASCII)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _duration(low: int, high: int, *, negative: str = "") -> Kind[float]:
    """Whole seconds; with a unit behind them whatever that says, as Hadoop reads it from 2.8 on.

    negative: what a value below 0 means; it becomes 0.0.
    """
    words = f"s (or with a unit: ms, s, m, h, d), {low}..{high}" + (f"; negative: {negative}" if negative else "")

    def parse(value: str) -> float:
        found = _DURATION.fullmatch(value)
        if found is None:
            raise ValueError(f"not a duration (want {low}..{high} s)")
        parsed = int(found[1]) * _SECONDS[found[2] or "s"]
        if negative and parsed < 0:
            return 0.0
        if not low <= parsed <= high:
            raise ValueError(f"out of range (want {low}..{high} s)")
        return parsed

    return Kind(words, parse)


def _check_uri(uri: str) -> str:
    if "," in uri.partition("://")[2].partition("/")[2]:
        raise ValueError("names several journals; one is supported")
    try:
        parse_uri(uri)
    except InvalidArgument as error:
        raise ValueError(unserved(uri) or str(error)) from error
    return uri


def _check_available(path: str) -> str:
    if not check_root(path).removesuffix(AVAILABLE) or not path.endswith(AVAILABLE):
        raise ValueError(f"not the path of the bookies' registrations, as /ledgers{AVAILABLE}")
    return path


def _or_none(kind: Kind[int]) -> Kind[int | None]:
    return Kind(kind.unit, lambda value: kind.parse(value) if value else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """What the journal manager and the metadata server on it are set to. Durations in seconds, sizes in bytes."""

    # --- where
    shared_edits_dir: str = key(
        SHARED_EDITS,
        text("URI", _check_uri),
        "",
        WHERE,
        "The journal: bookkeeper://<ZooKeeper servers separated by ;>/<znode of the journal>, or file:///<directory>. "
        "Commands take it when none is named.",
    )

    # --- ledgers
    output_buffer_size: int = key(
        f"{_LEDGERS}output-buffer-size",
        integer("bytes", 0, ENTRY_SIZE_MAX),
        "131072",
        LEDGERS,
        "An entry is sent once more bytes of transactions than this wait, and at every flush.",
        differs="1024 there; a flush that carries the work of many callers is one entry this way.",
    )
    ensemble_size: int = key(
        f"{_LEDGERS}ensemble-size", integer("bookies", 1, 255), "3", LEDGERS, "Bookies that hold one segment."
    )
    quorum_size: int = key(f"{_LEDGERS}quorum-size", integer("bookies", 1, 255), "2", LEDGERS, "Copies of each entry.")
    ack_quorum_size: int | None = key(
        f"{_LEDGERS}ack.quorum-size",
        _or_none(integer("bookies", 1, 255)),
        "",
        LEDGERS,
        "Copies that must be durable before a flush succeeds. Not set: that of quorum-size.",
    )
    digest_password: bytes = key(
        f"{_LEDGERS}digestPw",
        secret_bytes("text"),
        "",
        LEDGERS,
        "Password of all ledgers of the journal; whoever reads the journal needs it.",
        secret=True,
    )
    zk_session_timeout_s: float = key(
        f"{_LEDGERS}zk.session.timeout",
        seconds("ms", 500, DAY_S * 1000),
        "3000",
        LEDGERS,
        "ZooKeeper session timeout.",
    )
    available_bookies: str = key(
        f"{_LEDGERS}zk.availablebookies",
        text("path", _check_available),
        f"/ledgers{AVAILABLE}",
        LEDGERS,
        "Where bookies register; made if it is not there. What is above it is the root of the ledgers' metadata.",
        differs="the ledgers are looked for at /ledgers there, whatever this key says.",
    )
    speculative_read_timeout_s: float = key(
        f"{_LEDGERS}speculativeReadTimeoutMs",
        seconds("ms", 1, DAY_S * 1000),
        "2000",
        LEDGERS,
        "A read that was not answered for so long is sent to the next bookie too.",
    )
    read_entry_timeout_s: float = key(
        f"{_LEDGERS}readEntryTimeoutSec", seconds("s", 1, DAY_S), "5", LEDGERS, "Timeout of one read of one bookie."
    )
    add_entry_timeout_s: float = key(
        f"{_LEDGERS}addEntryTimeoutSec", seconds("s", 1, DAY_S), "5", LEDGERS, "Timeout of one add to one bookie."
    )
    client_conf: str = key(
        f"{_OURS}ledgers.client-conf",
        text("file"),
        "",
        LEDGERS,
        "Conf file of the ledger client (as bk_server.conf; TLS and authentication, for example). What the keys above "
        "say stands; BK_<key> in the environment counts too.",
        ours=True,
    )

    # --- files
    private_files: bool = key(
        f"{_OURS}files.private",
        boolean(),
        "true",
        FILES,
        "Create files and directories of edits and images with access only for the process's user (0600, 0700). false: "
        "use the umask, as Hadoop does for edits, for tools that read the files as another user.",
        ours=True,
    )
    preallocation_size: int = key(
        f"{_OURS}files.preallocation-size",
        integer("bytes", 0, 1024 * MIB, multiple_of=KIB),
        "1048576",
        FILES,
        "Padding by which a file of edits is extended at a time; 0 for none.",
        ours=True,
    )
    tail_period_s: float = key(
        f"{_OURS}files.tail-period-ms",
        seconds("ms", 1, DAY_S * 1000),
        "1000",
        FILES,
        "How often a directory is looked at for more, by whoever follows it.",
        ours=True,
    )

    # --- checkpoints
    checkpoint_period_s: float = key(
        "dfs.namenode.checkpoint.period",
        _duration(1, _YEAR_S),
        "3600",
        CHECKPOINTS,
        "A checkpoint is made once the last one is this old.",
    )
    checkpoint_txns: int = key(
        "dfs.namenode.checkpoint.txns",
        integer("transactions", 1, 2**62),
        "1000000",
        CHECKPOINTS,
        "And once so many transactions are not in one yet.",
    )
    checkpoint_check_period_s: float = key(
        "dfs.namenode.checkpoint.check.period",
        _duration(1, DAY_S),
        "60",
        CHECKPOINTS,
        "How often it is looked whether one is due.",
    )
    checkpoints_retained: int = key(
        "dfs.namenode.num.checkpoints.retained",
        integer("checkpoints", 1, INT32_MAX),
        "2",
        CHECKPOINTS,
        "Checkpoints that are kept.",
    )
    extra_edits_retained: int = key(
        "dfs.namenode.num.extra.edits.retained",
        integer("transactions", 0, 2**62),
        "1000000",
        CHECKPOINTS,
        "Transactions that are kept besides those that the oldest checkpoint kept needs.",
    )

    # --- HTTP
    http_token_file: str = token_file_key(TOKEN_FILE_KEY, HTTP)
    http_allowed_hosts: tuple[str, ...] = allowed_hosts_key(ALLOWED_HOSTS_KEY, HTTP)

    # --- high availability
    log_roll_period_s: float = key(
        "dfs.ha.log-roll.period",
        _duration(1, _YEAR_S, negative="never"),
        "120",
        FAILOVER,
        "The active server begins a new segment when the last one is this old.",
    )
    tail_edits_period_s: float = key(
        "dfs.ha.tail-edits.period",
        _duration(0, DAY_S),
        "60",
        FAILOVER,
        "Accepted, and without effect: a standby reads transactions as soon as they are confirmed.",
    )
    ha_session_timeout_s: float = key(
        "ha.zookeeper.session-timeout.ms",
        seconds("ms", 500, DAY_S * 1000),
        "5000",
        FAILOVER,
        "ZooKeeper session timeout of the election: how long after its death a server stays the active one.",
    )
    ha_parent_znode: str = key(
        "ha.zookeeper.parent-znode",
        text("path", check_root),
        "/hadoop-ha",
        FAILOVER,
        "Znode under which servers are elected.",
    )

    @property
    def ledgers_root(self) -> str:
        """Root of the ledgers' metadata."""
        return self.available_bookies.removesuffix(AVAILABLE)

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield what is wrong between keys, each of which is right by itself."""
        ack = self.quorum_size if self.ack_quorum_size is None else self.ack_quorum_size
        names = (f"{_LEDGERS}ensemble-size", f"{_LEDGERS}quorum-size", f"{_LEDGERS}ack.quorum-size")
        if not self.ensemble_size >= self.quorum_size >= ack:
            yield (
                names,
                f"ensemble-size {self.ensemble_size}, quorum-size {self.quorum_size}, ack.quorum-size {ack}: need "
                "ensemble-size >= quorum-size >= ack.quorum-size",
            )

    # --- what parts of the program take

    def options(self, scheme: str) -> dict[str, Any]:
        """What `plugins.open_journal` takes for a journal of this scheme; nothing for one that is not ours.

        Raises ConfigurationError as `ledger_client` does.
        """
        if scheme == "bookkeeper":
            journal = self.ledger_journal()
            return {
                **{each.name: getattr(journal, each.name) for each in fields(journal)},
                "client_settings": self.ledger_client(),
                "ledgers_root": self.ledgers_root,
            }
        if scheme == "file":
            journal_of_files = self.file_journal()
            options = {each.name: getattr(journal_of_files, each.name) for each in fields(journal_of_files)}
            return {**options, "private": self.private_files}
        return {}

    def ledger_journal(self) -> LedgerJournalSettings:
        """For a journal on ledgers."""
        return LedgerJournalSettings(
            ensemble=self.ensemble_size,
            write_quorum=self.quorum_size,
            ack_quorum=self.ack_quorum_size,
            password=self.digest_password,
            output_buffer_size=self.output_buffer_size,
            available_path=self.available_bookies,
        )

    def ledger_client(self, environ: Mapping[str, str] | None = None) -> ClientSettings:
        """For the client of such a journal. Raises ConfigurationError for the file that `client_conf` names."""
        settings = load_client(self.client_conf or None, environ=environ).settings
        return replace(
            settings,
            zk_session_timeout_s=self.zk_session_timeout_s,
            speculative_read_delay_s=self.speculative_read_timeout_s,
            speculative_read_delay_max_s=max(self.speculative_read_timeout_s, settings.speculative_read_delay_max_s),
            read_timeout_s=self.read_entry_timeout_s,
            add_timeout_s=self.add_entry_timeout_s,
        )

    def file_journal(self) -> FileJournalSettings:
        """For a journal on files."""
        return FileJournalSettings(preallocation_size=self.preallocation_size, tail_period_s=self.tail_period_s)


def load_journal(
    conf: Path | ConfText | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    check_journal: Callable[[str], object] | None = None,
) -> Loaded[JournalSettings]:
    """Return the settings. `ignored` has the keys of a Hadoop configuration that are others', with reason FOREIGN.

    conf: a .conf file, or a Hadoop configuration (by its name, *.xml), or None for none. overrides: from the command
    line. environ: the process's own by default. check_journal: raises ValueError for a journal's URI that would not do;
    without it one that nobody can open is no fault, as long as it is not used. Raises ConfigurationError, listing all
    faults.
    """
    faults: list[Fault] = []
    texts = [
        *_from_file(conf, faults),
        *_from_environment(os.environ if environ is None else environ),
        *from_command_line(overrides or {}),
    ]
    if check_journal is not None:
        faults += _faults_of_journal(texts, check_journal)
    hadoop = _is_hadoop(conf)
    return load_table(JournalSettings, Rules(lambda given: _judge(given, hadoop=hadoop)), texts, faults)


def _faults_of_journal(texts: Sequence[Given], check: Callable[[str], object]) -> Iterator[Fault]:
    """What `check` finds of the URI that takes effect; one that cannot be read is told with the table."""
    given = max(
        (given for given in texts if given.name == SHARED_EDITS), key=lambda given: given.origin.source, default=None
    )
    if given is None or not given.text:
        return
    try:
        _check_uri(given.text)
    except ValueError:
        return
    try:
        check(given.text)
    except ValueError as error:
        yield Fault(given.origin, f"{SHARED_EDITS}={given.text}: {error}")


def _is_hadoop(conf: Path | ConfText | None) -> bool:
    return conf is not None and str(conf.name).lower().endswith(".xml")


def _from_file(conf: Path | ConfText | None, faults: list[Fault]) -> Iterator[Given]:
    if not _is_hadoop(conf):
        yield from from_conf(conf, faults)
        return
    read = read_conf(conf, faults) if isinstance(conf, Path) else conf
    if read is None:
        return
    properties, bad = parse_hadoop_xml(read.text)
    faults.extend(Fault(read.origin(line.line), line.why) for line in bad)
    known = keys_of(JournalSettings)
    for found in _with_shared_edits(properties, read, faults):
        if found.fault and found.name in known:
            faults.append(Fault(read.origin(found.line), f"{found.name}: {found.fault}"))
        else:
            yield Given(found.name, found.value, read.origin(found.line))


def _with_shared_edits(properties: list[HadoopProperty], read: ConfText, faults: list[Fault]) -> list[HadoopProperty]:
    """The journal's URI may stand behind the key with a name service's name: taken if it is the only one."""
    suffixed = [found for found in properties if found.name.startswith(f"{SHARED_EDITS}.")]
    if not suffixed or any(found.name == SHARED_EDITS for found in properties):
        return properties
    if len({found.value for found in suffixed}) > 1:
        names = ", ".join(found.name for found in suffixed)
        faults.append(
            Fault(read.origin(suffixed[0].line), f"{names} name several journals; say which: -D {SHARED_EDITS}=URI")
        )
        return properties
    return [*properties, replace(suffixed[0], name=SHARED_EDITS)]


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    known = _variables()
    for given in from_environment(environ, ENVIRONMENT_PREFIX):
        yield replace(given, name=known.get(_folded(given.name), given.name))


@cache
def _variables() -> dict[str, str]:
    """What a variable is called behind the prefix -> key."""
    return {_folded(name): name for name in keys_of(JournalSettings)}


def _folded(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def variable_of(name: str) -> str:
    """The environment variable of a key."""
    return ENVIRONMENT_PREFIX + _folded(name)


def _judge(given: Given, *, hadoop: bool) -> str | None:
    known = keys_of(JournalSettings)
    if given.name in known:
        return None
    if hadoop and given.origin.source is Source.FILE and not given.name.startswith((_LEDGERS, _OURS)):
        return FOREIGN
    spelled = _variables() if given.origin.source is Source.ENVIRONMENT else known
    raise ValueError(f"unknown key {given.name!r}" + nearest(given.name, spelled))


# --- the shipped file

HEADER = """\
# Settings of the journal manager and of the metadata server on it.
#
# Key names and meanings are Hadoop's; a Hadoop configuration (hdfs-site.xml) may be given instead of this file. Unknown
# keys are refused. Precedence: command line (-D key=value), environment (JM_<key>, with '.' and '-' as '_'), this file,
# default. A line that starts with '#' is a comment; one that ends in '\\' goes on in the next.
#
# Each key below stands with its default. Remove the '#' to change it.
"""


def render() -> str:
    """Return the text of conf/journalmgr.conf."""
    sections = [Section("", list(keys_of(JournalSettings).values()))]
    return render_sections(HEADER, sections, active=(), owner="Hadoop")


if __name__ == "__main__":
    sys.stdout.write(render())
