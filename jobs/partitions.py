"""Output in folders COLUMN=VALUE, as Spark writes them, of which a later run replaces only those that it has rows for.

Each folder has a manifest of its own with the counts of its rows, so that it can be replaced by a rename. What belongs
to no value (rejects, blanks) is counted by run, as long as a folder of that run is there.
"""

from __future__ import annotations

import argparse
import json
import re
import uuid
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, IntegralType, StringType, StructField

from jobs.access import keep_access
from jobs.corpus import Corpus
from jobs.outputs import FileSystem, Target, read_parquet
from jobs.schemas import check, features_schema
from jobs.session import Mistake
from jobs.workers import DEFAULT_PARTITION, MOST_PARTITIONS, PARTITION_STATS, hash_of
from models.features import FeatureModel
from models.kept import hex_sum
from models.splits import Split

MANIFEST = "_manifest.json"
SUMS = ("documents", "tokens", "entries", "empty")  # of a folder's rows
OF_RUNS = ("rejects", "blanks", "repaired")
ASIDE = ".replaced-"  # a folder in the output, hidden from Spark, with what a run replaces


def adds_partitions(options: argparse.Namespace) -> bool:
    """Whether the run may add to an output that exists."""
    return bool(options.partition_by and options.apply and not options.overwrite)


def refuse_other_output(output: Target, options: argparse.Namespace, model: FeatureModel | None) -> bool:
    """Whether an output exists to which partitions are added.

    Raises Mistake if it was written without --partition-by, by another column or by another model; without a mistake
    of these also with --overwrite, since that would delete the partitions that the input has no rows for.
    """
    fs, path = output.fs, output.path
    if not options.partition_by or model is None or output.catalogued or not fs.exists(path):
        return False
    remedy = "give --overwrite to replace all of it, or another path"
    found = _there(fs, path)
    alike = str(found.get("partition_by", "")).lower() == options.partition_by.lower()
    if options.overwrite:
        if alike and found["model_id"] == model.id:
            raise Mistake(
                f"--overwrite would delete the partitions of --output {options.output} that --input has no rows for: "
                "leave it out to replace only the others (with another path for --tokens), or delete the output first"
            )
        return False
    if not alike:
        raise Mistake(f"--output {options.output} exists and is not partitioned by {options.partition_by}: {remedy}")
    if found["model_id"] != model.id:
        raise Mistake(
            f"--output {options.output} holds features of model {found['model_id']}, --apply is model {model.id}: "
            f"apply that one, {remedy}"
        )
    return True


def _there(fs: FileSystem, path: str) -> dict[str, Any]:
    """The manifest of an output, also where a run that was killed has left it aside."""
    places = [path, *(f"{path}/{name}" for name in fs.names(path) if name.startswith(ASIDE))]
    return next((fs.read_json(f"{at}/{MANIFEST}") for at in places if fs.exists(f"{at}/{MANIFEST}")), {})


def refuse_other_split(output: Target, split: Split | None) -> None:
    """Raise Mistake if the output to which partitions are added has another split."""
    found = _there(output.fs, output.path).get("split")
    if found != (split and split.to_dict()):
        there = json.dumps(found) if found else "no split"
        raise Mistake(
            f"--output {output.given} has {there}, this run {json.dumps(split.to_dict()) if split else 'none'}: give "
            "the same --split (of time, with the model that was fitted on it), or another path"
        )


def partition_column(corpus: Corpus, name: str) -> StructField:
    """The column to partition by; raises Mistake if it is not carried along, or of a type that no folder can show."""
    field = next((field for field in corpus.carried if field.name.lower() == name.lower()), None)
    if field is None:
        there = ", ".join(field.name for field in corpus.carried)[:300] or "none"
        raise Mistake(
            f"--partition-by {name} is no column that is carried along from --input: there is {there}; folders "
            f"{name}=… count below --input, so name the folder above them and choose with --where"
        )
    if not isinstance(field.dataType, (StringType, IntegralType, DateType)) or not re.fullmatch(r"\w+", field.name):
        raise Mistake(
            f"column {field.name} (--partition-by) is {field.dataType.simpleString()}: it must be string, integer or "
            "date, and its name of letters, digits and _"
        )
    return field


def refuse_other_columns(spark: SparkSession, output: Target, corpus: Corpus, column: StructField) -> None:
    """Raise Mistake if the rows in an output that exists have other columns than the new ones will have."""
    try:
        check(read_parquet(spark, output.path).drop(column.name), features_schema(corpus, column))
    except ValueError as error:
        raise Mistake(f"--output {output.path} has other columns than --input would give: {error}") from None


def refuse_other_values(spark: SparkSession, output: Target, new: str, column: StructField) -> None:
    """Raise Mistake if Spark reads the partitions in the folder `new` as another type than those of the output.

    Together it would read them as a third, and so change values: 1 and 1.5 are 1.0 and 1.5, 01 and 2 are 1 and 2.
    """
    types = []
    for path in (output.path, new):
        if {*partitions(output.fs, path)} == {f"{column.name}={DEFAULT_PARTITION}"}:
            return
        types.append(read_parquet(spark, path).schema[column.name].dataType)
    if types[0] != types[1] and not all(isinstance(kind, IntegralType) for kind in types):
        there, added = (kind.simpleString() for kind in types)
        raise Mistake(
            f"column {column.name} (--partition-by): Spark reads its values in --output as {there}, of --input "
            f"as {added}, and would change them: write values of one kind, or replace the whole output"
        )


def lay_out(
    spark: SparkSession, fs: FileSystem, source: str, target: str, column: StructField, catalogued: bool
) -> dict[str, int]:
    """Move the files in the cells of `source` into folders COLUMN=VALUE, each with a manifest; the sums of their stats.

    Raises Mistake where there are too many, or where Spark would not read a value back from a folder's name as it was,
    unless a catalog tells it the values.
    """
    fs.mkdirs(target)
    for kind in [name for name in fs.names(source) if re.match(r"kind=\d", name)]:
        number, _, value = kind.removeprefix("kind=").partition("-")
        folder = f"{target}/{column.name}={value}"
        fs.mkdirs(folder)
        for part in fs.names(f"{source}/{kind}"):
            if not part.startswith((".", "_")):
                fs.rename(f"{source}/{kind}/{part}", f"{folder}/{part.removesuffix('.txt')}-{number}.parquet")
    names = ", ".join(f"{name} bigint" for name in PARTITION_STATS)
    rows = read_parquet(spark, f"{source}/kind=stats", f"value string, {names}")
    sums = rows.groupBy("value").agg(*[F.sum(name).alias(name) for name in PARTITION_STATS]).collect()
    stats = {row.value: row.asDict() for row in sums}
    if len(stats) > MOST_PARTITIONS:
        raise Mistake(f"column {column.name} (--partition-by) has {len(stats)} values, above {MOST_PARTITIONS}")
    if not catalogued:
        back = read_parquet(spark, target).select(F.col(column.name).cast("string")).distinct().collect()
        changed = sorted(stats.keys() - {"" if row[0] is None else row[0] for row in back})
        if changed:
            raise Mistake(
                f"column {column.name} (--partition-by) has values such as {changed[0]!r}, which Spark reads back from "
                "a folder's name as another number or date: write them otherwise in the input"
            )
    for folder in partitions(fs, target):
        fs.write_json(f"{target}/{folder}/{MANIFEST}", _of_rows(stats[value_of(folder)]))
    return {name: sum(each[name] for each in stats.values()) for name in PARTITION_STATS}


def value_of(folder: str) -> str:
    """The value in a folder's name; the empty string for null."""
    value = folder.partition("=")[2]
    return "" if value == DEFAULT_PARTITION else unquote(value)


def partitions(fs: FileSystem, path: str) -> list[str]:
    """The names of the folders COLUMN=VALUE in an output."""
    return [name for name in fs.names(path) if "=" in name and not name.startswith(".")]


def _of_rows(stats: dict[str, int]) -> dict[str, Any]:
    return {**{name: stats[name] for name in SUMS}, "content_hash": hash_of(stats)}


def name_run(fs: FileSystem, path: str, rejects: str, manifest: dict[str, Any], column: StructField) -> dict[str, Any]:
    """Give the run in the output at `path` a name, by which its rejects and partitions are known; its manifest."""
    run = uuid.uuid4().hex[:12]
    for part in fs.names(rejects):
        if not part.startswith((".", "_")):
            fs.rename(f"{rejects}/{part}", f"{rejects}/{run}-{part}")
    fs.write_json(f"{rejects}/_{run}.json", {name: manifest[name] for name in OF_RUNS})
    for folder in partitions(fs, path):
        rows = fs.read_json(f"{path}/{folder}/{MANIFEST}")
        fs.write_json(f"{path}/{folder}/{MANIFEST}", {**rows, "run": run})
    return {**manifest, "partition_by": column.name}


def whole_manifest(fs: FileSystem, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """A run's manifest with the counts and the content hash of all partitions that there are in an output."""
    folders = [fs.read_json(f"{path}/{folder}/{MANIFEST}") for folder in partitions(fs, path)]
    runs = [fs.read_json(f"{path}/_rejects/_{run}.json") for run in {rows["run"] for rows in folders}]
    sums = {name: sum(rows[name] for rows in folders) for name in SUMS}
    sums |= {name: sum(run[name] for run in runs) for name in OF_RUNS}
    content = hex_sum(sum(int(rows["content_hash"], 16) for rows in folders))
    records = sums["documents"] + sums["rejects"] + sums["blanks"]
    manifest = {name: value for name, value in manifest.items() if name != "parts"}  # which no folder tells
    return {**manifest, **sums, "records": records, "content_hash": content}


def replace_partitions(output: Target, new: str, manifest: dict[str, Any]) -> None:
    """Put the partitions in the folder `new` into the output, those of the same name aside until all are in.

    A failure in between puts all back; what a kill leaves is mended by the next run (`restore`).
    """
    fs, path = output.fs, output.path
    output.lease.check()
    restore(fs, path)
    aside = f"{path}/{ASIDE}{uuid.uuid4().hex[:12]}"
    moved: list[tuple[str, str]] = []

    def move(source: str, target: str) -> None:
        fs.rename(source, target)
        moved.append((source, target))

    try:
        fs.mkdirs(aside)
        if fs.exists(f"{new}/_rejects"):
            keep_access(fs, f"{path}/_rejects", f"{new}/_rejects", output.option)
        for name in fs.names(f"{new}/_rejects"):
            move(f"{new}/_rejects/{name}", f"{path}/_rejects/{name}")
        for name in partitions(fs, new):
            if fs.exists(f"{path}/{name}"):
                keep_access(fs, f"{path}/{name}", f"{new}/{name}", output.option)
                move(f"{path}/{name}", f"{aside}/{name}")
            else:
                keep_access(fs, path, f"{new}/{name}", output.option)
            move(f"{new}/{name}", f"{path}/{name}")
        fs.write_json(f"{path}/.{MANIFEST}", whole_manifest(fs, path, manifest))  # hidden until it may be seen
        keep_access(fs, f"{path}/{MANIFEST}", f"{path}/.{MANIFEST}", output.option)
        move(f"{path}/{MANIFEST}", f"{aside}/{MANIFEST}")
        move(f"{path}/.{MANIFEST}", f"{path}/{MANIFEST}")
    except BaseException:
        for source, target in reversed(moved):
            fs.rename(target, source)
        fs.delete(f"{path}/.{MANIFEST}")
        fs.delete(aside)
        raise
    _forget_runs(fs, path)
    fs.delete(aside)


def _forget_runs(fs: FileSystem, path: str) -> None:
    """Delete the rejects of runs of which no partition is left."""
    left = {fs.read_json(f"{path}/{folder}/{MANIFEST}")["run"] for folder in partitions(fs, path)}
    for name in fs.names(f"{path}/_rejects"):
        if not name.startswith(".") and re.split(r"[-.]", name.lstrip("_"))[0] not in left:
            fs.delete(f"{path}/_rejects/{name}")


def restore(fs: FileSystem, path: str) -> None:
    """Put back what a run that was killed had put aside and not replaced."""
    for aside in [name for name in fs.names(path) if name.startswith(ASIDE)]:
        for name in fs.names(f"{path}/{aside}"):
            if not fs.exists(f"{path}/{name}"):
                fs.rename(f"{path}/{aside}/{name}", f"{path}/{name}")
        fs.delete(f"{path}/{aside}")
