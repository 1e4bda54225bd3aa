"""Tables as input: ORC, files whose columns differ, tables of the catalog, and conditions for rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from jobs.tables import wider
from tests.jobs.test_corpus import in_order, mistake, opened, parsed, small
from tests.jobs.test_featurize import featurize, one_clear_line

FORMS = ("parquet", "orc")


def put(path: Path, table: pa.Table, **settings: Any) -> Path:
    """A table as a Parquet or ORC file, by its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".orc":
        orc.write_table(table, path, **settings)
    else:
        pq.write_table(table, path)
    return path


@pytest.fixture
def parts_of(spark: Any) -> Iterator[Callable[[int], None]]:
    """Has Spark cut files into parts of this size."""
    name = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(name)
    yield lambda size: spark.conf.set(name, str(size))
    spark.conf.set(name, before)


# ORC.


def test_orc_is_read_as_parquet_is(spark: Any, tmp_path: Path) -> None:
    columns = {
        "text": ["a", None, "c"],
        "id": pa.array([1, 2, None], pa.int16()),
        "label": ["x", "y", None],
        "n": pa.array([1 << 53, None, 3], pa.int64()),
        "list": pa.array([[1], None, []], pa.list_(pa.int32())),
        "struct": pa.array([{"x": "é"}, None, {"x": None}]),
        "a.b": ["1", "2", "3"],
    }
    for form in FORMS:
        put(tmp_path / form / f"dt=2026-11-30/x=b/é %41.{form}", pa.table(columns))
        put(tmp_path / form / f"dt=2026-11-29/x=b/a.{form}", pa.table(columns))
    found = {form: opened(spark, str(tmp_path / form)) for form in FORMS}
    assert found["orc"].carried == found["parquet"].carried
    assert [field.name for field in found["orc"].carried] == ["n", "list", "struct", "a.b", "dt", "x"]
    both = {form: parsed(each) for form, each in found.items()}
    assert in_order(both["orc"].documents) == in_order(both["parquet"].documents)
    aside = {form: in_order(each.rejects) for form, each in both.items()}
    assert [row["position"] for row in aside["orc"]] == [2, 2]
    for form in FORMS:
        sources = [row["source"].removeprefix(f"{tmp_path}/{form}/").removesuffix(form) for row in aside[form]]
        assert sources == ["dt=2026-11-29/x=b/a.", "dt=2026-11-30/x=b/é %41."]


def test_each_row_of_a_large_orc_file_has_a_place_of_its_own(
    spark: Any, tmp_path: Path, parts_of: Callable[[int], None]
) -> None:
    texts = [f"{i * 7919 % 10**9:09} long" for i in range(30_000)]
    path = put(tmp_path / "a.orc", pa.table({"text": texts}), stripe_size=1 << 16, compression="uncompressed")
    parts_of(100_000)
    found = opened(spark, str(path), max_document_bytes=13)
    assert found.raw.rdd.getNumPartitions() > 2
    aside = parsed(found).rejects
    places = set(zip(aside["source"].to_pylist(), aside["position"].to_pylist(), strict=True))
    assert len(places) == len(texts)
    for row in aside.to_pylist():  # the part with the file's start is numbered as the file is
        if row["source"] == str(path):
            assert row["bytes"].decode() == texts[row["position"]]
    assert {source.split("@")[0] for source, _ in places} == {str(path)}
    assert any("@" in source for source, _ in places)


# Files whose columns differ.


OLD = {
    "text": ["old"],
    "id": pa.array([1], pa.int32()),
    "n": pa.array([7], pa.int16()),
    "f": pa.array([0.5], pa.float32()),
    "s": pa.array([{"x": 1, "y": [2]}], pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int32()))])),
    "gone": ["only here"],
}
NEW = {
    "new": [True],
    "ID": pa.array([(1 << 53) + 1], pa.int64()),
    "text": ["new"],
    "n": pa.array([1 << 40], pa.int64()),
    "f": pa.array([1e300], pa.float64()),
    "s": pa.array(
        [{"y": [1 << 40], "x": 3, "z": "more"}],
        pa.struct([("y", pa.list_(pa.int64())), ("x", pa.int32()), ("z", pa.string())]),
    ),
}


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_columns_of_all_files_are_carried_in_types_that_hold_all(
    form: str, partitioned: bool, spark: Any, tmp_path: Path
) -> None:
    days = ("dt=2026-11-29/", "dt=2026-11-30/") if partitioned else ("", "")
    put(tmp_path / f"{days[0]}old [1].{form}", pa.table(OLD))
    put(tmp_path / f"{days[1]}new.{form}", pa.table(NEW))
    found = opened(spark, str(tmp_path))
    assert found.id_type == LongType()
    kinds = {field.name: field.dataType.simpleString() for field in found.carried}
    assert kinds == {
        "n": "bigint", "f": "double", "gone": "string", "new": "boolean",
        "s": kinds["s"], **({"dt": "date"} if partitioned else {}),
    }  # fmt: skip
    assert sorted(re.findall(r"\w+:\w+<?\w*", kinds["s"])) == ["x:int", "y:array<bigint", "z:string"]
    rows = parsed(found).documents.drop_columns(["dt"] * partitioned).to_pylist()
    old = {
        "text": "old",
        "id": 1,
        "n": 7,
        "f": 0.5,
        "s": {"x": 1, "y": [2], "z": None},
        "gone": "only here",
        "new": None,
    }
    new = {"text": "new", "id": (1 << 53) + 1, "n": 1 << 40, "f": 1e300, "s": {"x": 3, "y": [1 << 40], "z": "more"}}
    assert sorted(rows, key=lambda row: row["id"]) == [old, {**new, "gone": None, "new": True}]


@pytest.mark.parametrize("form", FORMS)
def test_columns_that_are_only_added_need_one_reading(form: str, spark: Any, tmp_path: Path) -> None:
    for name, more in (("a", {}), ("b", {"x": [1]}), ("c", {"y": ["2"]})):
        put(tmp_path / f"{name}.{form}", pa.table({"text": [name], **more}))
    found = opened(spark, str(tmp_path))
    assert "Union" not in found.raw._jdf.queryExecution().toString()
    assert in_order(parsed(found).documents) == [
        {"text": "a", "x": None, "y": None},
        {"text": "b", "x": 1, "y": None},
        {"text": "c", "x": None, "y": "2"},
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"body": "b", "id": 1}, "other.{form} has no column 'text' (--text), which other files have: leave it out"),
        ({"text": "b"}, "other.{form} has no column 'id' (--id)"),
        ({"text": "b", "id": "1"}, "column id is bigint in --input {folder}/a.{form}, but string in {folder}/other"),
        ({"text": "b", "id": 1, "n": [1]}, "column n is bigint in --input {folder}/a.{form}, but array<bigint> in"),
        ({"text": "b", "id": 1, "n": 0.5}, "column n is bigint in --input {folder}/a.{form}, but double in"),
    ],
)
def test_a_file_that_does_not_fit_the_others_is_named_before_a_row_is_read(
    form: str, columns: dict[str, Any], told: str, spark: Any, tmp_path: Path
) -> None:
    put(tmp_path / f"a.{form}", pa.table({"text": ["a" * 99] * 99, "id": range(99), "n": range(99)}))
    put(tmp_path / f"other.{form}", small(**{**columns, "n": columns.get("n", 1)}))
    assert told.format(form=form, folder=f"file:{tmp_path}") in mistake(spark, tmp_path)


def test_a_file_without_the_label_has_no_label(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", small(text="a", label="x"))
    put(tmp_path / "b.parquet", small(text="b"))
    assert in_order(parsed(opened(spark, str(tmp_path))).documents) == [
        {"text": "a", "label": "x"},
        {"text": "b", "label": None},
    ]


simple = st.sampled_from([ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType()])


def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    fields = st.dictionaries(st.sampled_from("abc"), inner, min_size=1)
    return st.one_of(
        inner.map(ArrayType),
        inner.map(lambda kind: MapType(StringType(), kind)),
        fields.map(lambda found: StructType([StructField(name, kind) for name, kind in found.items()])),
    )


types = st.recursive(simple, nested, max_leaves=4)


@given(types, types)
@settings(deadline=None, max_examples=300)
def test_the_wider_of_two_types_does_not_depend_on_their_order(one: DataType, other: DataType) -> None:
    """But for the order of a struct's fields; and nothing is wider than the widest."""

    def sorted_fields(kind: DataType | None) -> str:
        if isinstance(kind, StructType):
            return f"struct<{sorted((field.name, sorted_fields(field.dataType)) for field in kind)}>"
        if isinstance(kind, ArrayType):
            return f"array<{sorted_fields(kind.elementType)}>"
        if isinstance(kind, MapType):
            return f"map<{sorted_fields(kind.valueType)}>"
        return str(kind)

    both = wider(one, other)
    assert sorted_fields(both) == sorted_fields(wider(other, one))
    assert wider(one, one) == one
    if both is not None:
        assert wider(both, one) == both
        assert sorted_fields(wider(other, both)) == sorted_fields(both)


# Tables of the catalog.


@pytest.fixture(scope="module")
def tables(spark: Any) -> Iterator[None]:
    """In the catalog: texts (Parquet, partitioned), as_orc, and the view seen."""
    rows = [("a", 1, "2026-11-29"), ("b", 2, "2026-11-30"), ("b b", None, "2026-11-30")]
    frame = spark.createDataFrame(rows, "text string, id bigint, dt string")
    spark.sql("create database if not exists db")
    frame.coalesce(1).write.mode("overwrite").partitionBy("dt").saveAsTable("db.texts")
    frame.coalesce(1).write.mode("overwrite").format("orc").saveAsTable("as_orc")
    spark.sql("create or replace temp view seen as select id, upper(text) as text from db.texts")
    yield
    spark.sql("drop database db cascade")
    spark.sql("drop table as_orc")
    spark.catalog.dropTempView("seen")


def test_tables_and_views_of_the_catalog_are_read(spark: Any, tables: None) -> None:
    for name, source, texts in (
        ("db.texts", r"table:db.texts /.*/texts/dt=2026-11-30/part-\S*.parquet", ["a", "b"]),
        ("spark_catalog.db.texts", r"table:spark_catalog.db.texts /.*parquet", ["a", "b"]),
        ("as_orc", r"table:as_orc /.*/as_orc/part-\S*.orc", ["a", "b"]),
        ("seen", r"table:seen( @\d+)?", ["A", "B"]),
    ):
        found = parsed(opened(spark, f"table:{name}"))
        assert sorted(found.documents["text"].to_pylist()) == texts
        assert found.documents["id"].type == pa.int64()
        assert ("dt" in found.documents.column_names) == (name != "seen")
        (aside,) = found.rejects.to_pylist()
        assert re.fullmatch(source, aside["source"])
        assert aside["reason"] == "column id (the id) is null"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nosuch", "table:nosuch is no table or view of Spark's catalog (in-memory)"),
        ("db.nosuch", "spark-submit --conf spark.sql.catalogImplementation=hive"),
        ("nosuch.nosuch.t", "nosuch"),
        ("", "'' is no name of a table"),
        ("a.b.c.d", "is no name of a table"),
        ("a..b", "is no name of a table"),
        ("t; drop table as_orc", "is no name of a table"),
        ("as_orc where id = 1", "is no name of a table"),
        ("`as_orc`", "is no name of a table"),
        ("parquet./tmp", "is no name of a table"),
    ],
)
def test_a_table_that_is_not_there_or_no_name(name: str, told: str, spark: Any, tables: None) -> None:
    assert told in mistake(spark, f"table:{name}")
    assert spark.catalog.tableExists("as_orc")


def test_a_table_takes_neither_a_format_nor_a_glob(spark: Any) -> None:
    assert "leave out --format" in mistake(spark, "table:db.texts", form="parquet")
    assert "leave out --glob" in mistake(spark, "table:db.texts", glob=True)


# Conditions.


@pytest.mark.parametrize("form", [*FORMS, "table"])
def test_only_rows_that_meet_the_condition_are_read(form: str, spark: Any, tmp_path: Path) -> None:
    for day in ("2026-11-29", "2026-11-30"):
        columns = {"text": [f"{i} {day}" for i in range(4)], "n": [0, 1, 2, None], "a.b": range(4)}
        if form != "table":
            put(tmp_path / f"dt={day}/a.{form}", pa.table(columns))
    if form == "table":
        spark.sql("create or replace temp view days as select concat(cast(n as string), ' 2026-11-30') as text, n, "
                  "n as `a.b`, date'2026-11-30' as dt from values (0L), (1L), (2L), (null) as t(n)")  # fmt: skip
    source = "table:days" if form == "table" else str(tmp_path)
    found = opened(spark, source, where="dt = '2026-11-30' and n >= 1 and `a.b` < 3")
    assert sorted(parsed(found).documents["text"].to_pylist()) == ["1 2026-11-30", "2 2026-11-30"]
    plan = found.raw._jdf.queryExecution().executedPlan().toString()
    if form != "table":
        assert re.search(r"PartitionFilters: \[[^\]]*dt", plan), plan
        assert "GreaterThanOrEqual(n,1)" in plan
    assert not parsed(found).rejects.num_rows


def test_positions_are_those_of_the_file_whatever_the_condition_leaves_out(spark: Any, tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", pa.table({"text": ["a"] * 6, "id": [1, None, 3, None, 5, None], "n": range(6)}))
    aside = parsed(opened(spark, str(path), where="n >= 2")).rejects
    assert aside["position"].to_pylist() == [3, 5]


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("nosuch = 1", "nosuch"),
        ("n", "boolean"),
        ("n >", "syntax"),
        ("n > 1)", "syntax"),
        ("n > 1; drop table as_orc", "syntax"),
        ("drop table as_orc", "syntax"),
        ("n > 1 union select 1", "syntax"),
        ("exists (select 1 from as_orc)", "holds a query"),
        ("n > (select max(id) from as_orc)", "holds a query"),
        ("rand() < 0.5", "may differ"),
        ("reflect('a.b', 'c') is null", "--where"),
        ("count(*) > 1", "contains invalid expressions: count(1)"),
        ("*", "--where *"),
    ],
)
def test_a_condition_is_one_expression_over_the_columns(
    condition: str, told: str, spark: Any, tmp_path: Path, tables: None
) -> None:
    path = put(tmp_path / "a.parquet", small(text="a", n=1))
    line = mistake(spark, path, where=condition)
    assert line.startswith(f"--where {condition}")
    assert told in line.lower()
    assert spark.catalog.tableExists("as_orc")


@pytest.mark.parametrize("form", ["jsonl", "csv", "text", "files"])
def test_a_condition_needs_columns(form: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"text\n")
    assert f"--where can't be asked of {form}" in mistake(spark, tmp_path / "a.txt", form=form, where="n = 1")


@pytest.mark.parametrize("condition", ["dt = '2027-01-01'", "dt is null", "false", "n > 9"])
def test_a_condition_that_no_row_meets_leaves_no_documents(
    condition: str, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in ("2026-11-29", "2026-11-30"):
        put(tmp_path / f"in/dt={day}/a.parquet", small(text="a", n=1))
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", tmp_path / "in", "--where", condition, *outputs) == 2
    assert "holds no documents: 0 records" in one_clear_line(capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("cast(text as int) = 1", "cannot be cast to"),
        ("1 / (n - 1) > 0", "Division by zero"),
        ("element_at(array(1), int(n - 1)) = 1", "index"),
        ("to_date(text) is null", "date"),
        ("text rlike concat(text, '(')", "Unclosed group"),
    ],
)
def test_a_condition_that_fails_for_a_row_is_named(
    condition: str, told: str, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = put(tmp_path / "a.parquet", small(text="a", n=1))
    before = spark.conf.get("spark.sql.ansi.enabled")
    if spark.version.startswith("3."):  # gives null unless asked
        spark.conf.set("spark.sql.ansi.enabled", "true")
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    try:
        assert featurize("--input", source, "--where", condition, *outputs) == 2
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    line = one_clear_line(capsys.readouterr().err)
    assert line.startswith(f"error: --where {condition} fails for a row: ")
    assert told in line
