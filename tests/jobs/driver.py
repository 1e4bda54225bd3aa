"""featurize.py as a driver of its own, on the Java of the tests, which gets a signal when it comes to a given point.

python -m tests.jobs.driver PATTERN SIGNAL ARGUMENTS: the point is before the first renaming ("SOURCE > TARGET") or
writing ("TARGET") of a path, or statement in SQL, in which the pattern is found. Nothing of the job is replaced.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession

from jobs import session
from jobs.featurize import main
from jobs.outputs import FileSystem


def at(pattern: str, act: Callable[[], object]) -> None:
    """Call `act` when the driver comes to that point."""
    rename, write, sql, wanted = FileSystem.rename, FileSystem.write, SparkSession.sql, [re.compile(pattern)]

    def come_to(point: str) -> None:
        if wanted and wanted[0].search(point):
            wanted.clear()
            act()

    def renaming(fs: FileSystem, source: str, target: str) -> None:
        come_to(f"{source} > {target}")
        rename(fs, source, target)

    def writing(fs: FileSystem, path: str, data: bytes) -> None:
        come_to(path)
        write(fs, path, data)

    def querying(spark: SparkSession, query: str) -> DataFrame:
        come_to(query)
        return sql(spark, query)

    FileSystem.rename, FileSystem.write = renaming, writing  # type: ignore[method-assign]
    SparkSession.sql = querying  # type: ignore[method-assign, assignment]


def attach() -> None:
    """A SparkContext of this process for the application that runs in the Java of PYSPARK_GATEWAY_PORT."""
    SparkContext._ensure_initialized()
    java = SparkContext._jvm.org.apache.spark  # type: ignore[union-attr]
    running = java.SparkContext.getOrCreate()
    SparkContext(conf=SparkConf(_jconf=running.conf()), jsc=java.api.java.JavaSparkContext.fromSparkContext(running))


if __name__ == "__main__":
    pattern, number, *arguments = sys.argv[1:]
    attach()
    at(pattern, lambda: os.kill(os.getpid(), int(number)))
    sys.exit(session.exit_code(main, arguments))
