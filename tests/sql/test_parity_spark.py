"""All queries, run in their order by one command on Spark, give what the Python functions give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from jobs import query, session
from tests.sql.examples import QUERIES, SQL
from tests.sql.reference import PARAMS, REFERENCE, Row, assert_same, of_main_job, write_tables

NAMES = (SQL / "ORDER").read_text().split()


@pytest.fixture(scope="module")
def output(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql")
    tables = [f"--table={name}={path}" for name, path in write_tables(folder / "tables").items()]
    params = [f"--param={name}={value}" for name, value in PARAMS.items()]
    arguments = [str(SQL), *tables, *params, "--output", str(folder / "output")]
    spark.conf.set("spark.sql.ansi.enabled", "false")  # as in Spark 3; test_examples.py has the other dialect
    try:
        assert session.exit_code(query.main, arguments) == 0
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    return folder / "output"


def rows(output: Path, name: str) -> list[Row]:
    return [tuple(row.values()) for row in pq.read_table(output / name).to_pylist()]


def test_every_query_has_a_reference() -> None:
    assert sorted(REFERENCE) == sorted(NAMES)
    assert {path.stem for path in QUERIES} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_spark_gives_what_python_gives(output: Path, name: str) -> None:
    wanted = REFERENCE[name]()
    assert wanted
    assert_same(rows(output, name), wanted, 1.2e-7 if name == "features" else 1e-12)


@pytest.mark.parametrize("name", ["onehot", "count", "tfidf", "bm25", "hashing"])
def test_cast_to_float_a_value_is_that_of_the_main_job_within_one_unit_in_the_last_place(
    output: Path, name: str
) -> None:
    ours = {(id, index): np.float32(value) for id, index, value in rows(output, name)}
    theirs = {key: np.float32(value) for key, value in of_main_job(name).items()}
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        assert abs(value - theirs[key]) <= np.spacing(theirs[key]), key
