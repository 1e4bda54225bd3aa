"""The cluster that its tests share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.cluster.processes import JARS, Cluster, cluster


@pytest.fixture(scope="package")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """HDFS, YARN and Hive as processes, healthy, of which nothing is left after the tests."""
    if not shutil.which("mvn") and not (JARS / "hive/.fetched").exists():
        pytest.skip("no Maven on PATH, which fetches the jars of Hadoop and Hive")
    assert (JARS / "hive/.fetched").exists(), "no jars of Hadoop and Hive in build/cluster: make cluster-jars"
    with cluster(tmp_path_factory.mktemp("cluster")) as one:
        yield one
