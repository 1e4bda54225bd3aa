"""The cluster that its tests share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.cluster.processes import JARS, ROOT, Cluster, cluster


@pytest.fixture(scope="package")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """HDFS, YARN and Hive as processes, healthy, of which nothing is left after the tests."""
    if not shutil.which("mvn") and not (JARS / "hive/.fetched").exists():
        pytest.skip("no Maven on PATH, which fetches the jars of Hadoop and Hive")
    assert (JARS / "hive/.fetched").exists(), "no jars of Hadoop and Hive in build/cluster: make cluster-jars"
    with cluster(tmp_path_factory.mktemp("cluster")) as one:
        yield one


@pytest.fixture(scope="package")
def packed() -> tuple[str, ...]:
    """Options of spark-submit that ship the code and the packed environment, and nothing else, to every container."""
    for name in ("environment.tgz", "textmill.zip"):
        assert (ROOT / "build" / name).exists(), f"no build/{name}: make environment zip"
    python = ["spark.yarn.appMasterEnv.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON"]
    conf = [part for name in python for part in ("--conf", f"{name}=./env/bin/python")]
    archives = ("--archives", f"{ROOT}/build/environment.tgz#env", "--py-files", f"{ROOT}/build/textmill.zip")
    return (*archives, *conf)
