"""Features as an external table of Spark's catalog, such as Hive's metastore: a reader sees the old or the new rows.

Each run puts its files into a folder of its own. In the last step the table, or each of its partitions, is set to it
by ALTER TABLE … SET LOCATION, one transaction of the metastore. What the run replaced stays until the next one is done,
for queries that still read it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from jobs.access import keep_access
from jobs.corpus import Corpus
from jobs.outputs import FileSystem, Target
from jobs.partitions import MANIFEST, adds_partitions, partitions, value_of
from jobs.schemas import features_schema
from jobs.session import Mistake, hadoop, log, reason, spark_session
from jobs.tables import PREFIX, quoted
from jobs.workers import DEFAULT_PARTITION
from models.features import FeatureModel

NAME = re.compile(r"(?:([A-Za-z0-9_]+)\.)?([A-Za-z0-9_]+)")  # what Hive allows
RUN = re.compile(r"run-[0-9a-f]{12}")  # the folder of a run
MODEL_ID, MODEL = "textmill.model_id", "textmill.model"  # properties of the table
REPLACING = "none while all partitions are being replaced"  # the model id meanwhile
PLAIN_TYPES = re.compile(
    r"string|bigint|int|smallint|tinyint|boolean|float|double|decimal\(\d+,\d+\)|date|timestamp|binary"
)
ADDED_AT_ONCE = 100


def open_output(options: argparse.Namespace) -> Target:
    """What --output names, a folder or a table; raises Mistake if it can't be written, or exists and is to stay."""
    overwrite = options.overwrite or adds_partitions(options)
    if options.output.startswith(PREFIX):
        return TableTarget(spark_session("textmill featurize"), options.output, overwrite)
    return Target(options.output, "--output", overwrite)


def text(value: str) -> str:
    """A string as SQL takes it, whatever it holds."""
    return "'" + re.sub(r"[^\w ./:=-]", lambda found: f"\\U{ord(found[0]):08x}", value, flags=re.ASCII) + "'"


def column_type(kind: DataType) -> str | None:
    """A type in SQL, if both Spark and Hive have it."""
    if isinstance(kind, ArrayType):
        element = column_type(kind.elementType)
        return element and f"array<{element}>"
    if isinstance(kind, MapType):
        key, value = column_type(kind.keyType), column_type(kind.valueType)
        return f"map<{key},{value}>" if key and value else None
    if isinstance(kind, StructType):
        fields = [(field.name, column_type(field.dataType)) for field in kind]
        known = all(inner and re.fullmatch(r"\w+", name) for name, inner in fields)
        return f"struct<{','.join(f'{quoted(name)}:{inner}' for name, inner in fields)}>" if known else None
    return kind.simpleString() if PLAIN_TYPES.fullmatch(kind.simpleString()) else None


class TableTarget(Target):
    """A table of the catalog as a target; `path` is the folder that holds those of its runs."""

    catalogued = True

    def __init__(self, spark: SparkSession, given: str, overwrite: bool) -> None:
        """Raises Mistake for what is no name, for a table that the job did not make, or that may not be replaced."""
        self.spark, self.jvm = spark, hadoop()[0]
        spark.conf.set("spark.sql.parser.escapedStringLiterals", "false")  # else `text` could not escape
        named = NAME.fullmatch(given.removeprefix(PREFIX))
        if not named:
            raise Mistake(f"--output {given}: give table:NAME or table:DATABASE.NAME, of ASCII letters, digits and _")
        self.given, self.option = given, "--output"
        database = (named[1] or spark.catalog.currentDatabase()).lower()
        name = named[2].lower()
        self.table = f"{quoted(database)}.{quoted(name)}"
        state: Any = spark._jsparkSession.sessionState()
        self._catalog, self._identifier = state.catalog(), state.sqlParser().parseTableIdentifier(self.table)
        try:
            found = self._metadata()
            path = self._folder(found) if found else f"{self._database_folder(database)}/{name}"
        except Mistake:
            raise
        except Exception as error:  # no metastore answers
            raise Mistake(f"--output {given}: {reason(error)}") from None
        super().__init__(path, "--output", overwrite, given)

    def expect(
        self, corpus: Corpus, column: StructField | None, options: argparse.Namespace, model: FeatureModel | None
    ) -> None:
        """Learn what rows will come, by which column they are partitioned, and where the model lies.

        model: the one of --apply. Raises Mistake for a type that Hive does not have, and where a table that exists has
        other columns, another partition column or, if only some of its partitions are replaced, another model.
        """
        self.column = column
        self.fields = [*features_schema(corpus, column), *([column] if column else [])]
        self.model = FileSystem(options.model or options.apply).root
        self.adds = adds_partitions(options)
        for field in self.fields:
            if not column_type(field.dataType) or re.search(r"[,:;`$\x00-\x1f]", field.name):
                raise Mistake(
                    f"column {field.name} is {field.dataType.simpleString()[:80]}: a table of Hive's has no such type "
                    "or name; read it through a view that casts, renames or leaves it out"
                )
        found = self._metadata()
        if found is None:
            return
        by = found.partitionColumnNames().mkString(",")
        if by.lower() != (column.name.lower() if column else ""):
            raise Mistake(
                f"--output {self.given} is partitioned by {by or 'no column'}, --partition-by is "
                f"{column.name if column else 'not given'}: give the same, or another table"
            )
        there = _described(StructType.fromJson(json.loads(found.schema().json())))
        wanted = _described(StructType(self.fields))
        if there != wanted:
            raise Mistake(
                f"--output {self.given} has other columns than --input would give: {', '.join(there)[:150]} and not "
                f"{', '.join(wanted)[:150]}: give another table, or drop it first"
            )
        if column and model is not None:
            before = found.properties().apply(MODEL_ID)
            if self.adds and before != model.id:
                raise Mistake(
                    f"--output {self.given} holds features of model {before}, --apply is model {model.id}: apply that "
                    "one, give --overwrite to replace all of it, or another table"
                )
            if not self.adds and before == model.id:
                raise Mistake(
                    f"--overwrite would drop the partitions of --output {self.given} that --input has no rows for: "
                    "leave it out to replace only the others (with another path for --tokens), or drop the table first"
                )

    def swapped(self) -> str | None:
        placed = self._in_place("output")
        used = placed and any(f"{place}/".startswith(f"{placed}/") for place in self._places().values())
        return "output" if used else None

    def swap(self, folder: str) -> None:
        """Point the table at `folder`, a step in the stage, once it lies among the folders of runs.

        Then delete what the run before the last one replaced.
        """
        self.lease.check()
        before = self._places()
        if not self.overwrite and before and not self.swapped():
            raise FileExistsError(f"--output {self.given} was made by another program: give --overwrite")
        if self.fs.exists(folder):  # else a run that was killed has moved it
            old = next(iter(before.values()), None)
            if old and self.fs.exists(old):
                keep_access(self.fs, old, folder, self.option)
            self.fs.mkdirs(f"{folder}.placed-run-{self.lease.run}")
            self.fs.mkdirs(self.path)
            self.fs.rename(folder, f"{self.path}/run-{self.lease.run}")
        placed = self._in_place(folder.rsplit("/", 1)[1])
        assert placed
        self.rows = placed
        self._point(before)
        after = self._places()
        if self.overwrite and before != after:  # else a run that was killed has just replaced the old ones
            used = {*before.values(), *after.values(), self.rows}
            for unused in [*self._unused(used)]:
                self.fs.delete(unused)

    def _point(self, before: dict[str, str]) -> None:
        """Have the catalog know the rows of this run, in place of those in the folders `before`."""
        model_id = self.fs.read_json(f"{self.rows}/{MANIFEST}")["model_id"]
        properties = f"{text(MODEL_ID)} = {text(model_id)}, {text(MODEL)} = {text(self.model)}"
        found = self._metadata()
        if found is None:
            self._create(properties)
        if not self.column:
            if before and before[""] != self.rows:
                self._alter(f"SET LOCATION {text(self.rows)}")
        else:
            if before and found.properties().apply(MODEL_ID) != model_id:
                self._alter(f"SET TBLPROPERTIES ({text(MODEL_ID)} = {text(REPLACING)})")
            folders = {value_of(name): f"{self.rows}/{name}" for name in partitions(self.fs, self.rows)}
            for value in folders.keys() & before.keys():
                if before[value] != folders[value]:
                    self._alter(f"{self._partition(value)} SET LOCATION {text(folders[value])}")
            added = iter(sorted(folders.keys() - before.keys()))
            while some := [*islice(added, ADDED_AT_ONCE)]:
                located = [f"{self._partition(value)} LOCATION {text(folders[value])}" for value in some]
                self._alter(f"ADD {' '.join(located)}")
            for value in [] if self.adds else sorted(before.keys() - folders.keys()):
                self._alter(f"DROP {self._partition(value)}")
        self._alter(f"SET TBLPROPERTIES ({properties})")

    def _create(self, properties: str) -> None:
        columns = [f"{quoted(field.name)} {column_type(field.dataType)}" for field in self.fields]
        by = f"PARTITIONED BY ({columns.pop()})" if self.column else ""
        # Of Hive's own format Spark looks up the place for each query; of a format of Spark once a session.
        stored = "STORED AS" if self.spark.conf.get("spark.sql.catalogImplementation") == "hive" else "USING"
        place = text(self.path if self.column else self.rows)
        self.spark.sql(
            f"CREATE TABLE {self.table} ({', '.join(columns)}) {stored} PARQUET {by} LOCATION {place} "
            f"TBLPROPERTIES ({properties})"
        )

    def _alter(self, clause: str) -> None:
        self.spark.sql(f"ALTER TABLE {self.table} {clause}")

    def _partition(self, value: str) -> str:
        assert self.column
        return f"PARTITION ({quoted(self.column.name)} = {text(value) if value else 'null'})"

    def _metadata(self) -> Any:
        """What the catalog knows of the table; None if there is none. Raises Mistake if the job did not make it."""
        if not self._catalog.tableExists(self._identifier):
            return None
        found = self._catalog.getTableMetadata(self._identifier)
        kind = found.tableType().name()
        form = f"{found.provider().toString()} {found.storage().inputFormat().toString()}".lower()
        what = {"VIEW": "is a view", "MANAGED": "is a managed table"}.get(kind)
        what = what or (None if "parquet" in form else "is no table of Parquet files")
        what = what or (None if found.properties().contains(MODEL_ID) else f"has no property {MODEL_ID}")
        if what:
            raise Mistake(f"--output {self.given} {what}, so it was not made by this job: give another name")
        return found

    def _folder(self, found: Any) -> str:
        """Where the folders of runs lie, of a table that exists."""
        place = self._path(found.location())
        if not found.partitionColumnNames().isEmpty():
            return place
        folder, run = place.rsplit("/", 1)
        if not RUN.fullmatch(run):
            raise Mistake(
                f"--output {self.given} lies in {place}, no folder of a run: give another name, or drop it first"
            )
        return folder

    def _database_folder(self, database: str) -> str:
        in_memory = self.spark.conf.get("spark.sql.catalogImplementation") != "hive"
        remedy = "for Hive's, spark-submit --conf spark.sql.catalogImplementation=hive"
        if not self._catalog.databaseExists(database):
            hint = f" ({remedy})" if in_memory else ""
            raise Mistake(f"--output {self.given}: there is no database {database}: create it, or name another{hint}")
        if in_memory:
            log.warning("--output: Spark's own catalog forgets the table when the job ends; %s", remedy)
        return self._path(self._catalog.getDatabaseMetadata(database).locationUri())

    def _places(self) -> dict[str, str]:
        """The folders that the table takes its rows from, by value of the partition, or by "" if there is only one."""
        found = self._metadata()
        if found is None:
            return {}
        if found.partitionColumnNames().isEmpty():
            return {"": self._qualified(found.location())}
        places = {}
        parts = self._catalog.listPartitions(self._identifier, self.jvm.scala.Option.empty()).iterator()
        while parts.hasNext():
            part = parts.next()
            value = part.spec().values().head()
            places["" if value in (None, DEFAULT_PARTITION) else value] = self._qualified(part.location())
        return places

    def _path(self, uri: Any) -> str:
        return str(self.jvm.org.apache.hadoop.fs.Path(uri).toString())

    def _qualified(self, uri: Any) -> str:
        return self.fs.qualified(self._path(uri))

    def _in_place(self, name: str) -> str | None:
        """Where a step of this key lies among the folders of runs, if a run that was killed got so far."""
        mark = f"{name}.placed-"
        runs = [each.removeprefix(mark) for each in self.fs.names(self.stage) if each.startswith(mark)]
        return next((f"{self.path}/{run}" for run in runs if self.fs.exists(f"{self.path}/{run}")), None)

    def _refuse_existing(self) -> None:
        if not self.overwrite and self._places():
            raise Mistake(f"--output {self.given} exists: give --overwrite to replace it, or another name")

    def _restore(self) -> None:
        """Nothing was moved away."""

    def _unused(self, used: set[str]) -> Iterator[str]:
        """The folders of runs, or of single partitions in them, that are not among the used ones."""
        for run in filter(RUN.fullmatch, self.fs.names(self.path)):
            place = f"{self.path}/{run}"
            parts = [f"{place}/{name}" for name in partitions(self.fs, place)]
            unused = [part for part in parts if part not in used]
            if place not in used and len(unused) == len(parts):
                yield place
            else:
                yield from unused


def _described(columns: StructType) -> list[str]:
    """Names and types, case and nullability aside."""
    return [f"{field.name} {field.dataType.simpleString()}".lower() for field in columns]
