"""Demo part `spark`: the cluster as DataFrames, a windowed aggregate as Parquet, an audit that finds a changed byte.

Four bookies with auto-recovery and a hub. This machine's package history is written twice: into ledgers, one per
package, and to topics. Spark reads both with SQL and aggregates the topics. Then one byte of one copy is changed on the
disk of a bookie: an audit of all copies must find that copy and no other, and after auto-recovery wrote it anew a
second audit must find nothing.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

import hedwig.blocking
from bookkeeper.cli.demo.history import Stream, machine_history
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.console.output import CommandFailed, print_table
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.model import LedgerId
from hedwig.embedded import LocalHub

BOOKIES = 4
PACKAGES_MAX = 120
TOPICS = 4
"""The packages with the longest histories."""

SHOWN = 5
MENDED_S = 120.0
LOOK_S = 0.2
MASTER = "local[2]"

HUB_SETTINGS = {"explicitLacInterval": "100"}
"""A hub that has nothing to store tells how far its topics are confirmed: readers of their ledgers see all messages."""

SETTINGS = {"autoRecoveryDaemonEnabled": "true", "flushInterval": "1000"}


@dataclass(frozen=True, slots=True)
class Victim:
    """A copy whose byte is changed: of an entry, on a bookie."""

    ledger_id: int
    entry_id: int
    payload: bytes
    bookie: LocalBookie


def run() -> None:
    """Run the part and print its report. Raises CommandFailed when a promise was broken."""
    import bookkeeper.spark
    import hedwig.spark

    what, history = machine_history(PACKAGES_MAX)
    streams = list(history)
    print(f"Data: {what}, {len(streams)} packages, {sum(len(each.entries) for each in streams):,} entries")
    started = time.perf_counter()
    with LocalCluster(BOOKIES, settings=SETTINGS) as cluster:
        hub = LocalHub.beside(cluster, 1, HUB_SETTINGS)
        cluster.start_others([hub])
        print(f"Cluster: ZooKeeper, {BOOKIES} bookies with auto-recovery and a hub: {cluster.uri}")
        with connect(cluster.uri) as client:
            victim = write(cluster, client, streams)
            topics = sorted(streams, key=lambda stream: len(stream.entries), reverse=True)[:TOPICS]
            published = publish(hub, topics)
            print(f"Written: {len(streams)} ledgers, {published:,} messages of {len(topics)} topics, in "
                  f"{time.perf_counter() - started:.1f} s with the start")  # fmt: skip
            started = time.perf_counter()
            spark = bookkeeper.spark.local_session(MASTER, name="bookkeeper-demo")
            try:
                hedwig.spark.register(spark)
                print(f"Spark:   {spark.version}, {MASTER}, up in {time.perf_counter() - started:.1f} s")
                query_ledgers(spark, cluster.uri)
                aggregate_topics(spark, cluster.uri, [stream.package for stream in topics], published)
                audit_and_repair(spark, cluster, client, victim)
            finally:
                spark.stop()
    print("Stopped: everything.")


def write(cluster: LocalCluster, client: BlockingBookKeeper, streams: list[Stream]) -> Victim:
    """A ledger for each package; the victim is the longest entry of all."""
    victim: Victim | None = None
    by_id = {bookie.bookie_id: bookie for bookie in cluster.bookies}
    for stream in streams:
        with client.create(
            ensemble=3, write_quorum=2, ack_quorum=2,
            custom={"package": stream.package.encode(), "application": b"demo"},
        ) as ledger:  # fmt: skip
            ledger.append_many(stream.entries)
            entry_id, longest = max(enumerate(stream.entries), key=lambda each: len(each[1]))
            if victim is None or len(longest) > len(victim.payload):
                bookie = by_id[ledger.metadata.last_fragment.ensemble[entry_id % 3]]
                victim = Victim(ledger.id, entry_id, longest, bookie)
    assert victim is not None
    return victim


def publish(hub: LocalHub, topics: list[Stream]) -> int:
    """Each history to its topic; how many messages."""
    with hedwig.blocking.connect([hub.address.rpartition(":")[0]]) as client:
        handed = [client.publisher(each.package).publish_soon(entry) for each in topics for entry in each.entries]
        for done in handed:
            done.result()
    return len(handed)


def query_ledgers(spark: Any, uri: str) -> None:
    """SQL over the entries of all ledgers and the table of ledgers."""
    # Those of topics have another password than ours.
    entries = spark.read.format("bookkeeper").options(uri=uri, ledgers="all", asAdministrator=True).load()
    entries.createOrReplaceTempView("entries")
    tables = spark.read.format("bookkeeper.cluster").option("uri", uri)
    tables.option("table", "ledgers").load().createOrReplaceTempView("ledgers")
    query = f"""
        SELECT CAST(element_at(custom, 'package') AS STRING) AS package, ledger_id, state, count(*) AS entries,
               sum(length(value)) AS bytes
        FROM entries JOIN ledgers USING (ledger_id) WHERE application = 'demo'
        GROUP BY ALL ORDER BY bytes DESC LIMIT {SHOWN}
    """
    print(f"SQL:     the {SHOWN} largest ledgers, entries joined with the table of ledgers")
    _show(spark.sql(query))


def aggregate_topics(spark: Any, uri: str, topics: list[str], published: int) -> None:
    """Messages and bytes per topic and second, as Parquet. Raises CommandFailed when some are missing."""
    directory = Path(tempfile.mkdtemp(prefix="bookkeeper-demo-"))
    try:
        path = f"{directory}/messages-per-second"
        messages = spark.read.format("hedwig").options(uri=uri, subscribe=",".join(topics)).load()
        messages.createOrReplaceTempView("messages")
        rates = spark.sql("""
            SELECT topic, window.start AS second, count(*) AS messages, sum(length(value)) AS bytes
            FROM messages GROUP BY topic, window(timestamp, '1 second')
        """)
        rates.coalesce(1).write.parquet(path)
        kept = spark.read.parquet(path)
        total = kept.selectExpr("sum(messages)").first()[0]
        files = len(list(Path(path).glob("*.parquet")))
        print(f"Parquet: messages and bytes per topic and second, {kept.count()} rows in {files} file, read back:")
        _show(kept.orderBy("messages", "topic", ascending=False).limit(SHOWN))
        if total != published:
            raise CommandFailed(f"the aggregate counts {total} messages, {published} were published")
    finally:
        shutil.rmtree(directory)


def audit_and_repair(spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, victim: Victim) -> None:
    """Change a byte of a copy; find it; have it mended. Raises CommandFailed when that is not what happens."""
    from bookkeeper.spark.audit.repairs import queue_repairs
    from bookkeeper.spark.audit.report import audit

    client.run(lambda ledgers: ledgers.store.underreplication.disable())  # else it is mended before anybody looks
    path, offset = change_a_byte(victim)
    print(f"Changed: one byte of entry {victim.entry_id} of ledger {victim.ledger_id}, at {offset} of {path.name} of "
          f"bookie {victim.bookie.bookie_id}, with auto-recovery off")  # fmt: skip
    started = time.perf_counter()
    first = audit(spark, cluster.uri)
    seconds = time.perf_counter() - started
    rows = first.findings.collect()
    print(f"Audit:   {first.copies:,} copies of {first.entries:,} entries in {first.ledgers:,} ledgers read and "
          f"verified in {seconds:.1f} s; found: {_kinds(first.found)}")  # fmt: skip
    for row in rows:
        print(f"         {row.kind}: ledger {row.ledger_id}, entries {row.first_entry_id} to {row.last_entry_id}, "
              f"bookie {row.bookie}, {row.good_copies} good copy elsewhere")  # fmt: skip
    hit = [row for row in rows if row.ledger_id == victim.ledger_id
           and row.first_entry_id <= victim.entry_id <= row.last_entry_id]  # fmt: skip
    if not hit or {(row.kind, row.bookie) for row in rows} != {("bad", victim.bookie.bookie_id)}:
        raise CommandFailed("the audit did not find exactly the copy that was changed")
    queued = queue_repairs(first, cluster.uri)
    client.run(lambda ledgers: ledgers.store.underreplication.enable())
    print(f"Queued:  {queued.ranges} range(s) of {queued.ledgers} ledger(s) for auto-recovery, which is on again")
    wait_until_mended(client, {row.ledger_id for row in rows})
    second = audit(spark, cluster.uri)
    print(f"Audit:   again {second.copies:,} copies; found: {_kinds(second.found)}")
    if not second.is_clean or second.entries != first.entries:
        raise CommandFailed(f"after the repair the audit finds: {_kinds(second.found)}")


def change_a_byte(victim: Victim) -> tuple[Path, int]:
    """Of the victim's payload, on its bookie's disk, with the bookie stopped meanwhile; the file, and where in it."""
    code = victim.bookie.stop()
    if code != 0:
        raise CommandFailed(f"bookie {victim.bookie.bookie_id} stopped with exit code {code}")
    for path in sorted(victim.bookie.directory.rglob("ledgers/current/*.log")):
        at = path.read_bytes().find(victim.payload)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at + len(victim.payload) // 2)
                changed = bytes([file.read(1)[0] ^ 1])
                file.seek(at + len(victim.payload) // 2)
                file.write(changed)
            victim.bookie.start()
            return path, at + len(victim.payload) // 2
    raise CommandFailed(f"bookie {victim.bookie.bookie_id} has no copy of entry {victim.entry_id} in its entry logs")


def wait_until_mended(client: BlockingBookKeeper, ledger_ids: set[int]) -> None:
    """Until the workers have taken the reports away. Raises CommandFailed after MENDED_S."""

    async def waiting(ledgers: LedgerClient) -> list[int]:
        store = ledgers.store.underreplication
        return [id_ for id_ in sorted(ledger_ids) if await store.bad_copies(LedgerId(id_)) is not None]

    started = time.perf_counter()
    while left := client.run(lambda ledgers: Deferred.fromCoroutine(waiting(ledgers))):
        if time.perf_counter() - started > MENDED_S:
            raise CommandFailed(f"after {MENDED_S:.0f} s nobody has mended ledger {left[0]}")
        time.sleep(LOOK_S)
    print(f"Mended:  {time.perf_counter() - started:.1f} s later, from the copies of other bookies")


def _kinds(found: Any) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(found.items())) or "nothing"


def _show(frame: Any) -> None:
    rows = [[_text(value) for value in row] for row in frame.collect()]
    print_table(tuple(frame.columns), rows)


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
