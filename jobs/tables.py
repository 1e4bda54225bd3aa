"""Tables as input: Parquet and ORC files, whose columns may differ from file to file, and tables of Spark's catalog."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
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
    StructField,
    StructType,
)

from jobs.outputs import FileSystem, literal
from jobs.session import Mistake, reason

PREFIX = "table:"
NAME = re.compile(r"[\w$-]+(\.[\w$-]+){0,2}")
FOOTER_THREADS = 8
WIDER: tuple[list[type[DataType]], ...] = ([ByteType, ShortType, IntegerType, LongType], [FloatType, DoubleType])
PLACE = ("__source", "__position", "__start")  # of a row: its file, its number there, or where its part starts


@dataclass(frozen=True)
class Alike:
    """Files with the same columns."""

    columns: StructType
    files: list[str]

    def find(self, name: str) -> StructField | None:
        """The column of this name; case does not count."""
        return next((field for field in self.columns if field.name.lower() == name.lower()), None)


def quoted(name: str) -> str:
    """A column's or table's name, or a part of it, as SQL takes it literally."""
    return f"`{name.replace('`', '``')}`"


def table_name(path: str) -> str:
    """The name behind table:, checked; raises Mistake if it can't be one."""
    name = path.removeprefix(PREFIX)
    if not NAME.fullmatch(name):
        raise Mistake(
            f"--input {path}: {name!r} is no name of a table: give table:NAME, table:DATABASE.NAME or "
            "table:CATALOG.DATABASE.NAME, of letters, digits, _, $ and -"
        )
    return name


def catalog_table(spark: SparkSession, name: str) -> DataFrame:
    """A table or view of the session's catalog; raises Mistake if there is none of this name."""
    sql_name = ".".join(quoted(part) for part in name.split("."))
    try:
        if spark.catalog.tableExists(sql_name):
            return spark.table(sql_name)
    except Exception as error:
        raise Mistake(f"--input {PREFIX}{name} cannot be read: {reason(error)}") from None
    kind = spark.conf.get("spark.sql.catalogImplementation")
    hive = "" if kind == "hive" else "; for Hive's tables, spark-submit --conf spark.sql.catalogImplementation=hive"
    raise Mistake(f"--input {PREFIX}{name} is no table or view of Spark's catalog ({kind}): check the name{hive}")


def placed(table: DataFrame) -> DataFrame:
    """A table with the columns of PLACE that can be had: from the files' metadata, else by partitions."""
    metadata = _metadata(table)
    if metadata is None:
        start = F.spark_partition_id().cast("bigint")
        return table.select("*", F.lit("").alias(PLACE[0]), start.alias(PLACE[2]))
    column, known = metadata
    source = column["file_path"].alias(PLACE[0])
    if "row_index" in known:  # Parquet
        return table.select("*", source, column["row_index"].alias(PLACE[1]))
    return table.select("*", source, column["file_block_start"].alias(PLACE[2]))


def _metadata(table: DataFrame) -> tuple[Column, list[str]] | None:
    """The files' metadata as a column, and the names of its fields; None where Spark does not know a row's file."""
    try:
        # By its logical name it is also found beside a column of that name.
        if hasattr(table, "metadataColumn"):
            column = table.metadataColumn("_metadata")
        else:
            jdf: Any = table._jdf  # Spark 3.5 has it in Java
            column = Column(jdf.metadataColumn("_metadata"))
        kind = table.select(column).schema[0].dataType
    except AnalysisException:
        return None
    names = kind.names if isinstance(kind, StructType) else []
    return (column, names) if {"file_path", "file_block_start"} <= set(names) else None


class Unfooted(Exception):
    """A file whose footer can't be read, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name)
        self.name, self.why = name, why


def _footer(fs: FileSystem, form: str, name: str) -> str:
    try:
        return fs.columns(name, form)
    except Exception as error:
        raise Unfooted(name, reason(error).replace(name, "")) from None


def alike(reader: DataFrameReader, fs: FileSystem, names: list[str], form: str) -> list[Alike]:
    """Files (Parquet or ORC) by their columns, as Spark reads them; every footer is read, or Unfooted raised."""
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        for name, columns in zip(names, pool.map(partial(_footer, fs, form), names), strict=True):
            found.setdefault(columns, []).append(name)
    return [Alike(reader.format(form).load(literal(files[0])).schema, files) for files in found.values()]


def all_columns(groups: list[Alike]) -> list[StructField]:
    """The columns of all files, each with a type that holds the values of all; raises Mistake where there is none."""
    fields: dict[str, StructField] = {}
    first: dict[str, str] = {}
    for group in groups:
        for field in group.columns:
            key = field.name.lower()
            known = fields.setdefault(key, field)
            file = first.setdefault(key, group.files[0])
            kind = wider(known.dataType, field.dataType)
            if kind is None:
                raise Mistake(
                    f"column {known.name} is {known.dataType.simpleString()[:80]} in --input {file}, but "
                    f"{field.dataType.simpleString()[:80]} in {group.files[0]}: make them one type, or read them one "
                    "by one"
                )
            fields[key] = StructField(known.name, kind)
    return list(fields.values())


def wider(one: DataType, other: DataType) -> DataType | None:
    """The type that holds all values of both; None where there is none."""
    if one == other:
        return one
    for family in WIDER:
        if type(one) in family and type(other) in family:
            return max(one, other, key=lambda kind: family.index(type(kind)))
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        element = wider(one.elementType, other.elementType)
        return element and ArrayType(element)
    if isinstance(one, MapType) and isinstance(other, MapType):
        key, value = wider(one.keyType, other.keyType), wider(one.valueType, other.valueType)
        return MapType(key, value) if key and value else None
    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = {field.name.lower(): field for field in one}
        for field in other:
            known = fields.setdefault(field.name.lower(), field)
            kind = wider(known.dataType, field.dataType)
            if kind is None:
                return None
            fields[field.name.lower()] = StructField(known.name, kind)
        return StructType(list(fields.values()))
    return None


def as_stored(own: DataType, wide: DataType) -> DataType:
    """A file's own type in the shape of the wider one: what Spark can read there and then cast."""
    if isinstance(own, ArrayType) and isinstance(wide, ArrayType):
        return ArrayType(as_stored(own.elementType, wide.elementType))
    if isinstance(own, MapType) and isinstance(wide, MapType):
        return MapType(as_stored(own.keyType, wide.keyType), as_stored(own.valueType, wide.valueType))
    if isinstance(own, StructType) and isinstance(wide, StructType):
        kinds = {field.name.lower(): field.dataType for field in own}
        fields = [(f.name, as_stored(kinds.get(f.name.lower(), f.dataType), f.dataType)) for f in wide]
        return StructType([StructField(name, kind) for name, kind in fields])
    return own


def read_files(
    reader: DataFrameReader, form: str, places: list[str], groups: list[Alike], fields: list[StructField]
) -> DataFrame:
    """The rows of all files with these columns, null where a file has none such, and with those of PLACE behind.

    places: paths that hold all of the files. Files whose types have to be widened are read apart, each by its name.
    """
    reads: dict[str, tuple[StructType, list[str]]] = {}
    wide = StructType(fields)
    for group in groups:
        stored = as_stored(group.columns, wide)
        assert isinstance(stored, StructType)
        reads.setdefault(stored.json(), (stored, []))[1].extend(group.files)
    whole: DataFrame | None = None
    for stored, files in reads.values():
        paths = places if len(reads) == 1 else [literal(name) for name in files]
        rows = placed(reader.schema(stored).format(form).load(paths))
        columns = [
            F.col(quoted(own.name)) if own.dataType == field.dataType else _cast(own, field.dataType)
            for own, field in zip(stored, fields, strict=True)
        ]
        table = rows.select(*columns, *[name for name in rows.columns if name in PLACE])
        whole = table if whole is None else whole.union(table)
    assert whole is not None
    return whole


def _cast(own: StructField, kind: DataType) -> Column:
    return F.col(quoted(own.name)).cast(kind).alias(own.name)


def rows_where(table: DataFrame, condition: str) -> DataFrame:
    """The rows for which a condition in SQL is true.

    Raises Mistake if it is not one boolean expression over the table's columns that gives the same every time.
    """
    try:
        expression = F.expr(condition)
        rows = table.where(expression)
        probe: Any = table.select(expression)
        plan = probe._jdf.queryExecution().analyzed()
    except Exception as error:
        raise Mistake(f"--where {condition}: {reason(error)}") from None
    if not plan.subqueries().isEmpty():
        raise Mistake(f"--where {condition} holds a query: give an expression over the table's columns, or make a view")
    if not plan.expressions().head().deterministic():
        raise Mistake(f"--where {condition} may differ from one evaluation to the next: leave such functions out")
    return rows


def file_folders(table: DataFrame) -> list[str]:
    """The folders of the files that a table reads, those above key=value folders, as far as Spark knows them."""
    found = {re.sub(r"(/[^/=]+=[^/]*)*/[^/]*$", "", unquote(name)) for name in table.inputFiles()}
    return sorted(found)
