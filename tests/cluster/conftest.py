"""The cluster that its tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.processes import JARS, Cluster, cluster


@pytest.fixture(scope="package")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """HDFS, YARN and Hive as processes, healthy, of which nothing is left after the tests."""
    if not (JARS / "hive/.fetched").exists():
        pytest.skip("no jars of Hadoop and Hive in build/cluster: make cluster-jars needs Maven")
    with cluster(tmp_path_factory.mktemp("cluster")) as one:
        yield one
