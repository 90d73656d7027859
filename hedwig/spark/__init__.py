"""Topics as DataFrames: Spark's Python data source over the ledgers of topics, and a sink that publishes.

    import hedwig.spark
    hedwig.spark.register(spark)
    spark.read.format("hedwig").option("uri", "zk://zk1:2181/ledgers").option("subscribe", "news").load()
    frame.writeStream.format("hedwig").option("hubs", "hub1:4080").option("topic", "news")...
    print(hedwig.spark.options_help())

        region_options, topic_options, option_help    pure: the words, and as text for people
        topic_parts, topic_offsets                pure: who holds which messages; how far a stream has come
        topic_sight, topic_extents                what is kept now; what a query reads of it
        topic_partition, topic_slices, topic_columns    tasks: slices of ledgers -> Arrow batches
        topic_source, topic_stream                the format: planner, stream
          topic_cursors                           a subscription that follows what a stream has committed
        topic_sink                                rows -> hubs
          topic_numbers                           pure: under which producer and number a row is published
          topic_rows, topic_publishing            Arrow batches -> messages -> hubs
        region_tables                             topics, subscriptions, hubs: tables of the format bookkeeper.cluster
        topics/                                   pipeline: windowed rates, lags and sizes of topics, as a stream
        exports/                                  topics to Parquet with a manifest, and from there to topics again
        region_access, hub_client                 one ledger client and one hub client per process

A hub is asked only for the end of a topic. Nothing is read from the driver's disk or environment: what planner and
tasks need is in the options. Needs the extra `spark`. Importing this package imports neither pyspark nor a reactor.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hedwig.spark.exports.export import export_topics
    from hedwig.spark.exports.importing import import_topics
    from hedwig.spark.option_help import options_help
    from hedwig.spark.registration import register
    from hedwig.spark.topics.following import follow_topics

__all__ = ["export_topics", "follow_topics", "import_topics", "options_help", "register"]


def __getattr__(name: str) -> object:
    if name == "register":
        from hedwig.spark.registration import register

        return register
    if name == "options_help":
        from hedwig.spark.option_help import options_help

        return options_help
    if name == "export_topics":
        from hedwig.spark.exports.export import export_topics

        return export_topics
    if name == "import_topics":
        from hedwig.spark.exports.importing import import_topics

        return import_topics
    if name == "follow_topics":
        from hedwig.spark.topics.following import follow_topics

        return follow_topics
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
