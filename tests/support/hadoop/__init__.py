"""Genuine Hadoop 2.7.7 beside our edits: fetched with Maven at first need, driven in one Java process.

    fetched.py   its jars in `.cache/hadoop-<version>`, our Java drivers compiled against them
    tool.py      the driver: its viewer, reader and writer of edits, a NameNode (tests/interop/java/hadoop)
    edits.py     files through our codec and Hadoop's
    script.py    transactions of a NameNode as a script, and name directories whose edits are ours
    served.py    our inodes as a NameNode serves them
    fields.py    our operations as the values that Hadoop holds of them

Nothing of Hadoop's is committed. What must be there is as for Apache BookKeeper: see tests/support/java_programs.py.
"""

from tests.support.hadoop.fetched import HADOOP_VERSION, Hadoop, find_hadoop
from tests.support.hadoop.tool import HadoopTool, Reading, ToldOp

__all__ = ["HADOOP_VERSION", "Hadoop", "HadoopTool", "Reading", "ToldOp", "find_hadoop"]
