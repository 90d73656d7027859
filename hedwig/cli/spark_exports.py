"""`bookkeeper spark export-topics` and `bookkeeper spark import-topics`."""

from __future__ import annotations

import argparse
from functools import partial

from bookkeeper.cli.spark.said_as import said_as
from bookkeeper.cli.spark.session import spark_session, unfinished_export
from bookkeeper.console.output import EXIT_OK, counted, note, print_json, print_table, readable_size
from bookkeeper.spark.outputs import OutputState
from hedwig.cli.spark_said_as import EXPORT, IMPORT
from hedwig.cli.spark_words import region_words, topics_of
from hedwig.spark.exports.export import TopicExport, export_topics
from hedwig.spark.exports.importing import TopicImport, import_topics

EXIT_TRIMMED = 3


def run_export(args: argparse.Namespace) -> int:
    """Export, and say what is in it."""
    topics = topics_of(args)
    uri, words = region_words(args)
    options = {"maxPartitionBytes": args.file_bytes, **said_as(EXPORT), **words}
    state = OutputState()
    with spark_session(args, interrupted=partial(unfinished_export, args.output, state)) as spark:
        done = export_topics(
            spark, uri, output=args.output, topics=topics, prefix=args.prefix, options=options, state=state, say=note
        )
        _show_export(args, done)
    return EXIT_OK


def _show_export(args: argparse.Namespace, done: TopicExport) -> None:
    manifest = done.manifest
    rows = done.topics.orderBy("topic").limit(args.rows).collect()
    columns = ("topic", "messages", "bytes", "first_seq", "last_seq")
    if args.json:
        print_json(
            {
                "export": manifest.export_id,
                "directory": done.directory,
                "messages": manifest.messages,
                "bytes": manifest.size,
                "files": manifest.files.count,
                "file_bytes": manifest.files.size,
                "count": manifest.count,
                "topics": [{name: row[name] for name in columns} for row in rows],
            }
        )
    else:
        print_table(("topic", "messages", "bytes", "first", "last"), [[row[name] for name in columns] for row in rows])
    if manifest.count > len(rows):
        note(f"{manifest.count - len(rows):,} more; --rows prints more, all are in {done.directory}/topics")
    note(
        f"exported {counted(manifest.messages, 'message')} ({readable_size(manifest.size)}) of "
        f"{counted(manifest.count, 'topic')} as {manifest.export_id} in {counted(manifest.files.count, 'file')} "
        f"({readable_size(manifest.files.size)})"
    )


def run_import(args: argparse.Namespace) -> int:
    """Import, and say what was published."""
    uri, words = region_words(args)
    given = {"job": args.job, "prefix": args.into, "subscription": args.subscription, "hubs": args.hubs}
    options = {**{name: value for name, value in given.items() if value}, **said_as(IMPORT), **words}
    goes_on = "nothing was published" if args.dry_run else "what is published stays: the same command goes on"
    with spark_session(args, interrupted=goes_on) as spark:
        note(f"reading {args.directory} to check it")
        done = import_topics(spark, uri, args.directory, options=options, dry_run=args.dry_run, say=note)
    _show_import(args, done)
    return EXIT_OK if args.dry_run or all(each.is_verified for each in done.topics) else EXIT_TRIMMED


def _show_import(args: argparse.Namespace, done: TopicImport) -> None:
    shown = done.topics[: args.rows]
    if args.json:
        print_json(
            {
                "export": done.manifest.export_id,
                "count": len(done.topics),
                "messages": done.manifest.messages,
                "published": sum(each.published for each in done.topics),
                "topics": [
                    {
                        "topic": each.topic,
                        "into": each.into,
                        "messages": each.messages,
                        "published": each.published,
                        "is_verified": each.is_verified,
                    }
                    for each in shown
                ],
            }
        )
    else:
        would = "would be published" if args.dry_run else "handed to hubs now"
        print_table(("topic", "into", "messages", would),
                    [(each.topic, each.into, each.messages, each.published) for each in shown])  # fmt: skip
    if len(done.topics) > len(shown):
        note(f"{len(done.topics) - len(shown):,} more; --rows prints more")
    published = sum(each.published for each in done.topics)
    what = "would be published" if args.dry_run else "handed to hubs now"
    note(
        f"import of export {done.manifest.export_id}: {counted(published, 'message')} {what}, "
        f"{done.manifest.messages - published:,} before"
    )
    trimmed = [] if args.dry_run else [each.into for each in done.topics if not each.is_verified]
    if trimmed:
        note(
            f"{counted(len(trimmed), 'topic')} do not keep all of it any more, so it cannot be verified: "
            f"{', '.join(trimmed[:5])}{' ...' if len(trimmed) > 5 else ''}"
        )
