"""What tests share: the corpora that ship with the project, and one Spark session for all tests that need one."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parent / "data"
README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
MODEL_ID = re.search(r"\(id ([0-9a-f]{32})\)", README)[1]  # type: ignore[index]  # of the demo


def corpus(name: str) -> pa.Table:
    """A corpus of tests/data with its columns id, text and label, all string."""
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        table = pa.Table.from_pylist([json.loads(line) for line in lines])
    return table.combine_chunks()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes the session, so that -m "not spark" leaves it out."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def emails() -> pa.Table:
    """The demo's e-mails: id, text, label (ham or spam)."""
    return corpus("emails.jsonl.gz")


@pytest.fixture(scope="session")
def chinese() -> pa.Table:
    """Chinese help pages: id, text, label (the module)."""
    return corpus("libreoffice_help_zh.jsonl.gz")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of jobs.session on two cores, configured as spark-submit would: by its command line.

    A task may fail once, as on a cluster (there three times), so that a test can kill a worker.
    """
    from jobs.session import spark_session

    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.session.timeZone": "UTC",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in conf.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "PYSPARK_SUBMIT_ARGS", f"--master local[2,2] {options} pyspark-shell")
        session = spark_session("textmill tests")
    yield session
    session.stop()
