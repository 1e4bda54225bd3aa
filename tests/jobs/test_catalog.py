"""Tables of the catalog as output, with Spark's own catalog; with Hive's metastore: tests/cluster/test_tables.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import _parse_datatype_string

from jobs.catalog import column_type
from models.features import FeatureModel
from tests.jobs.test_failures import KEY, kill_at, rerun
from tests.jobs.test_featurize import featurize, manifest, one_clear_line, write_lines, write_parts
from tests.jobs.test_partitions import DAYS, VALUES, documents
from udfs.records import plain_path

pytestmark = pytest.mark.usefixtures("spark")
RECORDS = [{"id": f"d{i}", "text": f"w{i % 7} a b c w{i % 11} a", "label": "xy"[i % 2], "n": i} for i in range(20)]


@pytest.fixture
def base(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """A database `made`, and where the folders of the runs of its table `features` will lie."""
    spark.sql(f"create database made location '{tmp_path}/warehouse'")
    yield tmp_path / "warehouse/features"
    spark.sql("drop database made cascade")


def place_of(spark: Any) -> Path:
    """The folder of the table made.features."""
    rows = spark.sql("describe table extended made.features").collect()
    return Path(plain_path(next(row.data_type for row in rows if row.col_name == "Location")))


def property_of(spark: Any, name: str) -> str:
    return {row.key: row.value for row in spark.sql("show tblproperties made.features").collect()}[name]


def rows_of(spark: Any, source: str = "made.features") -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in spark.table(source).collect()), key=lambda row: str(row["id"]))


def runs(base: Path) -> set[str]:
    return {path.name for path in base.iterdir()}


def test_a_table_is_made_and_pointed_from_run_to_run(
    spark: Any, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "in.jsonl", [*RECORDS, b"{"])
    job = ("--input", source, "--output", "table:made.features", "--model", tmp_path / "model", "--max-rejects", "9%")
    assert featurize("--input", source, "--output", tmp_path / "out", "--model", tmp_path / "m", *job[-2:]) == 0
    capsys.readouterr()
    assert featurize(*job) == 0
    said = capsys.readouterr().out
    assert "spark.table('made.features')" in said
    first = place_of(spark)
    assert f"set aside   {first}/_rejects" in said
    assert manifest(first) == manifest(tmp_path / "out")
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert spark.table("made.features").dtypes == frame.dtypes
    assert sorted(map(str, spark.table("made.features").collect())) == sorted(map(str, frame.collect()))
    assert property_of(spark, "textmill.model_id") == manifest(first)["model_id"]
    assert property_of(spark, "textmill.model") == f"file:{tmp_path}/model"
    assert runs(base) == {first.name}

    assert featurize(*job) == 2
    assert "--output table:made.features exists: give --overwrite" in one_clear_line(capsys.readouterr().err)
    places = [first]
    for kind in ("count", "onehot"):
        first.chmod(0o750)
        assert featurize(*job, "--overwrite", "--features", kind) == 0
        places.append(place_of(spark))
        assert runs(base) == {place.name for place in places[-2:]}  # the one before stays for its readers
        assert property_of(spark, "textmill.model_id") == manifest(places[-1])["model_id"]
        assert max(value for row in rows_of(spark) for value in row["values"]) == (2 if kind == "count" else 1)
        assert places[-1].stat().st_mode & 0o777 == 0o750
    assert len({*places}) == 3
    assert [path.name for path in base.parent.iterdir()] == ["features"]


POINTS = {  # before a renaming or statement: what a rerun need not do, and which model the table has in between
    "whole": (f"{KEY}/output > ", "count, fit, transform", 1),
    "pointed": (r"ALTER TABLE \S+ SET LOCATION", "count, fit, transform", 1),
    "told": (r"ALTER TABLE \S+ SET TBLPROPERTIES", "count, fit, transform", 2),
    "cleared": (rf"{KEY} > ", "count, fit, transform", 2),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_is_killed_leaves_the_old_or_the_new_rows_and_a_rerun_goes_on(
    point: str, spark: Any, base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_lines(tmp_path / "in.jsonl", RECORDS)
    pattern, finished, highest = POINTS[point]
    job = ["--input", source, "--output", "table:made.features", "--model", tmp_path / "model", "--overwrite"]
    arguments = [str(part) for part in (*job, "--features", "count")]
    assert featurize(*job, "--features", "onehot") == 0
    old = place_of(spark)
    kill_at(spark, pattern, arguments)
    spark.catalog.refreshTable("made.features")
    assert max(value for row in rows_of(spark) for value in row["values"]) == highest
    assert rerun(arguments, caplog) == finished
    assert max(value for row in rows_of(spark) for value in row["values"]) == 2
    assert property_of(spark, "textmill.model_id") == FeatureModel.load(tmp_path / "model").id
    assert runs(base) == {old.name, place_of(spark).name}
    assert [path.name for path in base.parent.iterdir()] == ["features"]


def test_a_first_run_that_is_killed_goes_on_without_overwrite(
    spark: Any, base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = write_parts(documents(DAYS), tmp_path / "in", 1)
    job = ["--input", rows, "--output", "table:made.features", "--model", tmp_path / "model", "--partition-by", "dt"]
    arguments = [str(part) for part in job]
    for pattern in ("CREATE TABLE", r"ALTER TABLE \S+ ADD", "SET TBLPROPERTIES"):
        kill_at(spark, pattern, arguments)
    assert len(rows_of(spark)) == 12
    assert rerun(arguments, caplog) == "count, fit, transform"
    assert len(rows_of(spark)) == 12
    assert len(runs(base)) == 1


@pytest.fixture
def model(spark: Any, tmp_path: Path) -> Path:
    """A model of the documents."""
    source = write_parts(documents(DAYS), tmp_path / "fitted", 1)
    assert featurize("--input", source, "--output", tmp_path / "whole", "--model", tmp_path / "model") == 0
    return tmp_path / "model"


@pytest.fixture
def apply(model: Path, base: Path, tmp_path: Path) -> Callable[..., int]:
    """Runs the job on rows, with the model, into the table by dt; returns its exit code."""

    def run(rows: pa.Table, *options: object) -> int:
        number = len(list(tmp_path.glob("in-*")))
        source = write_parts(rows, tmp_path / f"in-{number}", 1)
        given = ("--input", source, "--output", "table:made.features", "--partition-by", "dt")
        return featurize(*given, *([] if "--model" in options else ["--apply", model]), *options)

    return run


@pytest.mark.parametrize("kind", [*VALUES, "leading zeros"])
def test_partitions_have_the_type_and_the_values_of_the_column(
    kind: str, spark: Any, apply: Callable[..., int]
) -> None:
    values = VALUES.get(kind, ["01", "1", "1.0", None])
    rows = documents(values)
    assert apply(rows) == 0
    assert dict(spark.table("made.features").dtypes)["dt"] == {"date": "date", "int": "bigint"}.get(kind, "string")
    found = [(row["id"], row["dt"]) for row in rows_of(spark)]
    assert found == sorted((row["id"], row["dt"]) for row in rows.to_pylist())
    assert spark.sql("show partitions made.features").count() == len({*values})


def test_only_the_partitions_of_the_input_are_replaced_and_what_they_were_stays_for_a_run(
    spark: Any, base: Path, apply: Callable[..., int], tmp_path: Path
) -> None:
    def folders() -> dict[str, list[str]]:
        return {run.name: sorted(path.name for path in run.glob("dt=*")) for run in base.iterdir()}

    rows = documents(DAYS)
    assert apply(rows) == 0
    (first,) = runs(base)
    all_days = folders()[first]
    last = rows.filter(pa.array([day == DAYS[3] for day in rows["dt"].to_pylist()]))
    added = pa.table({"id": ["new"], "text": ["word1"], "label": ["1"], "dt": [date(2026, 12, 1)], "n": [99]})
    new = pa.concat_tables([last.set_column(0, "id", [[f"e{i}" for i in range(3)]]), added])
    before = [row for row in rows_of(spark) if row["dt"] != DAYS[3]]
    for turn in range(2):
        assert apply(new) == 0
        table = rows_of(spark)
        assert [row for row in table if not row["id"].startswith(("e", "new"))] == before
        assert {row["id"] for row in table} - {row["id"] for row in before} == {"e0", "e1", "e2", "new"}
        found = folders()
        assert found.pop(first) == [day for day in all_days if turn == 0 or day != "dt=2026-11-30"]
        assert len(found) == turn + 1
    assert apply(rows) == 0
    assert len(rows_of(spark)) == 13
    assert apply(rows.slice(0, 1)) == 0
    assert first not in runs(base)

    # All of it, by another model: what the input has no rows for goes.
    assert apply(rows, "--model", tmp_path / "model2", "--features", "count", "--overwrite") == 0
    assert len(rows_of(spark)) == 12
    assert {row["dt"] for row in rows_of(spark)} == {*DAYS}


def test_other_tables_and_options_are_refused_as_they_are(
    spark: Any, base: Path, model: Path, apply: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "(id string, indices array<int>, `values` array<float>)"
    spark.sql(f"create table made.managed {columns} using parquet")
    spark.sql(f"create table made.foreign {columns} using parquet location '{tmp_path}/foreign/run-0123456789ab'")
    spark.sql(f"create table made.orc {columns} using orc location '{tmp_path}/orc'")
    spark.sql(f"create table made.moved {columns} using parquet location '{tmp_path}/moved' "
              "tblproperties ('textmill.model_id' = 'x')")  # fmt: skip
    spark.sql("create view made.seen as select 1 as one")
    rows = documents(DAYS)
    assert apply(rows) == 0
    before, there = rows_of(spark), runs(base)
    capsys.readouterr()
    other = tmp_path / "other"
    source = write_lines(tmp_path / "lines.jsonl", [{"id": "a", "text": "a b"}])
    assert featurize("--input", source, "--output", tmp_path / "plain", "--model", other) == 0
    ntz = write_parts(pa.table({"id": ["a"], "text": ["a"], "at": [datetime(2026, 11, 30)]}), tmp_path / "ntz", 1)
    named = write_lines(tmp_path / "named.jsonl", [{"id": "a", "text": "a b", "x;y": "z"}])
    capsys.readouterr()
    for options, told in (
        (("--output", "table:made.managed"), "made.managed is a managed table"),
        (("--output", "table:made.foreign"), "made.foreign has no property textmill.model_id"),
        (("--output", "table:made.orc"), "made.orc is no table of Parquet files"),
        (("--output", "table:made.moved", "--overwrite"), "no folder of a run: give another name"),
        (("--output", "table:made.seen"), "made.seen is a view"),
        (("--output", "table:nosuch.features"), "there is no database nosuch"),
        (("--output", "table:made.features;"), "of ASCII letters, digits and _"),
        (("--output", "table:spark_catalog.made.features"), "give table:NAME or table:DATABASE.NAME"),
        (("--output", "table:`made`.features"), "give table:NAME or table:DATABASE.NAME"),
        (("--output", "table:"), "give table:NAME or table:DATABASE.NAME"),
        (("--apply", other), f"--apply is model {FeatureModel.load(other).id}"),
        (("--model", tmp_path / "m"), "exists: give --overwrite"),
        (("--partition-by", "n"), "is partitioned by dt, --partition-by is n"),
        (("--overwrite",), "would drop the partitions of --output"),
        (("--input", ntz, "--output", "table:made.new", "--partition-by", "id"), "no column that is carried along"),
    ):
        assert apply(rows, *options) == 2, options
        assert told in one_clear_line(capsys.readouterr().err)
    assert apply(rows.drop_columns(["n"])) == 2
    assert "has other columns than --input would give: id string, " in one_clear_line(capsys.readouterr().err)
    for source, told in (
        (ntz, "column at is timestamp_ntz: a table of Hive's has no such type"),
        (named, "column x;y"),
    ):
        given = ("--input", source, "--output", "table:made.new", "--apply", model)
        assert featurize(*given) == 2
        assert told in one_clear_line(capsys.readouterr().err)
    assert (
        featurize("--input", tmp_path / "in-0", "--output", "table:made.features", "--apply", model, "--overwrite") == 2
    )
    assert "is partitioned by dt, --partition-by is not given" in one_clear_line(capsys.readouterr().err)
    assert (rows_of(spark), runs(base)) == (before, there)
    assert [row.tableName for row in spark.sql("show tables in made").collect()].count("new") == 0


def test_columns_of_any_type_come_through_and_a_table_feeds_a_table(spark: Any, base: Path, tmp_path: Path) -> None:
    columns = {
        "text": ["a", None, "中文 文本"],
        "Label": ["x", "y", None],
        "at": pa.array([datetime(2026, 11, 30, 12, tzinfo=timezone.utc), None, None], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
        "a.b": [[{"x": 1, "é": "ü"}], None, []],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
    source = write_parts(pa.table(columns), tmp_path / "in", 1)
    spark.read.parquet(str(source)).write.saveAsTable("made.corpus")
    job = ("--input", "table:made.corpus", "--output", "table:made.features", "--model", tmp_path / "model")
    assert featurize(*job) == 0
    found = {row["label"]: row for row in rows_of(spark)}
    for row in spark.table("made.corpus").collect():
        assert [found[row["Label"]][name] for name in ("at", "price", "a.b", "map")] == list(row[2:])
    assert featurize(*job[:2], "--output", "table:made.corpus", *job[4:]) == 2
    assert featurize(*job, "--overwrite") == 0
    assert len(runs(base)) == 2


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("array<struct<a:int,b:map<string,decimal(10,2)>>>", "array<struct<`a`:int,`b`:map<string,decimal(10,2)>>>"),
        ("binary", "binary"),
        ("timestamp_ntz", None),
        ("array<interval day to second>", None),
        ("struct<`a b`:int>", None),
        ("map<string,timestamp_ntz>", None),
    ],
)
def test_types_that_hive_has(kind: str, sql: str | None) -> None:
    assert column_type(_parse_datatype_string(kind)) == sql
