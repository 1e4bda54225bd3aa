"""Each query's example gives on Spark what its header says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs.queries import Query, read_query
from tests.sql.examples import QUERIES, SQL, Row, Table, example
from udfs.spark import register


def spark_rows(spark: SparkSession, query: Query, tables: dict[str, Table], settings: dict[str, str]) -> DataFrame:
    """The result of a query over some tables, which are found under their names."""
    for name, table in tables.items():
        schema = ", ".join(f"`{column}` {kind}" for column, kind in table.columns.items())
        spark.createDataFrame(table.rows, schema).createOrReplaceTempView(name)
    text, bound = query.for_spark(query.values(settings))
    return spark.sql(text, bound)


def ordered(rows: list[Row], query: Query) -> list[Row]:
    """The rows as they come, if the query says in which order, else sorted."""
    if re.search(r"ORDER BY [^()]*\Z", query.text):
        return rows
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def approx(row: Row) -> Any:
    return tuple(pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for value in row)


@pytest.fixture(scope="module", autouse=True)
def functions(spark: SparkSession) -> None:
    register(spark)


@pytest.mark.parametrize("path", [*QUERIES, *sorted(SQL.glob("spark/*.sql"))], ids=lambda path: path.stem)
def test_an_example_gives_what_it_says(spark: SparkSession, path: Path) -> None:
    query, shown = read_query(path), example(path)
    found = [tuple(row) for row in spark_rows(spark, query, shown.tables, shown.settings).collect()]
    assert ordered(found, query) == [approx(row) for row in ordered(shown.gives, query)]


def test_the_order_names_every_query_once() -> None:
    listed = (SQL / "ORDER").read_text().split()
    assert len(set(listed)) == len(listed)
    assert sorted(listed) == sorted([*(path.stem for path in QUERIES), *adapters("spark")])
    assert adapters("spark") == adapters("hive")


def adapters(engine: str) -> list[str]:
    return sorted(path.stem for path in (SQL / engine).glob("*.sql"))
