"""What values, nulls, patterns and names do in Spark SQL: the same as in Hive, see tests/cluster/test_sql.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from jobs import query, session
from jobs.queries import read_query
from tests.sql.nasty import SPLITS, VALUES, VIEWS, WORDS


@pytest.fixture(scope="module")
def words(spark: SparkSession) -> str:
    rows = [(id, w, {"x": 1, "y": 2} if id == 1 else {} if id == 2 else None) for id, w in WORDS]
    spark.createDataFrame(rows, "id int, w array<string>, m map<string, int>").createOrReplaceTempView("words")
    return "words"


@pytest.fixture
def victims(spark: SparkSession) -> Iterator[None]:
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW victims AS SELECT 1 AS id")
    yield
    assert spark.table("victims").count() == 1


def run(spark: SparkSession, path: Path, text: str, **given: str) -> list[tuple[object, ...]]:
    path.write_text(text, "utf-8")
    found = read_query(path)
    text, bound = found.for_spark(found.values(given))
    return [tuple(row) for row in spark.sql(text, bound).collect()]


@pytest.mark.parametrize("name", VIEWS)
def test_lateral_view(spark: SparkSession, words: str, tmp_path: Path, name: str) -> None:
    text, wanted = VIEWS[name]
    found = run(spark, tmp_path / "q.sql", f"-- param: t identifier {words}\n{text}")
    assert sorted(found, key=str) == sorted(wanted, key=str)


@pytest.mark.usefixtures("victims")
def test_a_value_stays_a_value_whatever_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    for value in VALUES:
        text = "-- param: s string\nSELECT :s AS s, length(:s) AS n, ':s' AS t"
        assert run(spark, tmp_path / "q.sql", text, s=value) == [(value, len(value), ":s")]


@pytest.mark.usefixtures("victims")
@pytest.mark.parametrize("name", [value for value in VALUES if value != "x" * 50_000] + ["x" * 129, "tаble"])
def test_a_name_that_is_none_is_refused_before_anything_runs(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.sql").write_text("-- param: t identifier\nSELECT * FROM :t")
    assert session.exit_code(query.main, [str(tmp_path / "q.sql"), "--param", f"t={name}"]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "give NAME or DATABASE.NAME" in said[0]


@pytest.mark.parametrize("escaped", ["true", "false"])
def test_patterns_of_character_classes_split_the_same_by_any_way(
    spark: SparkSession, tmp_path: Path, escaped: str
) -> None:
    from pyspark.sql import functions as F

    spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
    try:
        for text, (pattern, parts) in SPLITS.items():
            literal = f"-- param: s string\nSELECT split(:s, '{pattern}') AS w"
            assert run(spark, tmp_path / "q.sql", literal, s=text) == [(parts,)]
            bound = "-- param: s string\n-- param: p string\nSELECT split(:s, :p) AS w"
            assert run(spark, tmp_path / "q.sql", bound, s=text, p=pattern) == [(parts,)]
            table = spark.createDataFrame([(text,)], "s string")
            assert table.select(F.split("s", pattern)).collect()[0][0] == parts
    finally:
        spark.conf.set("spark.sql.parser.escapedStringLiterals", "false")


def test_reserved_names_run_in_back_ticks_and_columns_that_differ_in_case_are_told(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.sql("SELECT 'x' AS `order`, 'y' AS `user`, 'z' AS `skill.inst`").createOrReplaceTempView("order")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    try:
        text = "-- param: t identifier order\nSELECT `order`, `user`, `skill.inst` FROM :t"
        assert run(spark, tmp_path / "q.sql", text) == [("x", "y", "z")]
        with pytest.raises(AnalysisException):
            run(spark, tmp_path / "q.sql", "SELECT 1 AS order")
    finally:
        spark.conf.unset("spark.sql.ansi.enforceReservedKeywords")
        spark.conf.unset("spark.sql.ansi.enabled")
    spark.sql("SELECT 'a' AS Text, 'b' AS text").createOrReplaceTempView("twice")
    (tmp_path / "q.sql").write_text("-- param: t identifier twice\nSELECT text FROM :t")
    assert session.exit_code(query.main, [str(tmp_path / "q.sql")]) == 2
    assert "ambiguous" in capsys.readouterr().err.lower()
