"""The steps of train.py, as the driver runs them: labelled rows, classes, training in ranks, evaluation.

What runs in workers: train_workers.py. Each step takes what an earlier run finished, if the target has it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, IntegralType, NumericType, StringType

from jobs.barrier import Message, deal, run_ranks, threads_of
from jobs.outputs import FileSystem, Target, file_system, read_parquet
from jobs.progress import duration
from jobs.session import Mistake, app_folder, log, on_workers, ship
from models.classifier import Classifier, FeatureSet
from models.evaluation import Tally
from models.linear import LinearConfig, LinearModel
from models.rows import Outputs
from models.splits import PARTS
from udfs.records import plain_path

NAME = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)
MOST_CLASSES = 10_000
DEAR = 4 << 30  # bytes of histograms that ranks add up, from which on it is said
OPTION = "--features"


# -- what is trained on -----------------------------------------------------------------------------------------------


class Features(NamedTuple):
    """A folder that featurize wrote, by the name that it has in the classifier."""

    name: str
    fs: FileSystem
    manifest: dict[str, Any]

    @property
    def path(self) -> str:
        return plain_path(self.fs.root)

    @property
    def set(self) -> FeatureSet:
        return FeatureSet(self.name, self.manifest["model_id"], self.manifest["width"])


def open_features(given: Sequence[str]) -> list[Features]:
    """The folders of --features, each [NAME=]DIR; raises Mistake for one that no honest classifier can be trained on.

    All must have one split, and be of models that have not seen its test part.
    """
    found: list[Features] = []
    for text in given:
        match = NAME.fullmatch(text)
        name, path = match.groups() if match else ("features", text)
        if name in (each.name for each in found):
            raise Mistake(f"{OPTION} {text}: there is one called {name} already; give each a name, as in tfidf=DIR")
        fs = file_system(path, OPTION)
        if not fs.exists(f"{fs.root}/_manifest.json"):
            raise Mistake(f"{OPTION} {path} has no _manifest.json: give a folder that featurize wrote")
        manifest = fs.read_json(f"{fs.root}/_manifest.json")
        if "width" not in manifest:
            raise Mistake(f"{OPTION} {path} is of an older version: run featurize again, with --split")
        if "split" not in manifest:
            raise Mistake(
                f"{OPTION} {path} has no split, without which nobody knows how good a classifier is: run featurize "
                "with --split hash:0.8,0.1,0.1"
            )
        if manifest["model_saw"] == "unknown":
            raise Mistake(
                f"{OPTION} {path} is of a model that may have seen the test part: fit one with --split, or --apply one "
                "that was fitted with this --split"
            )
        if found and manifest["split"] != found[0].manifest["split"]:
            raise Mistake(f"{OPTION} {path} is split otherwise than {found[0].path}: give all the same --split")
        found.append(Features(name, fs, manifest))
    return found


@dataclass(frozen=True)
class Labelled:
    """Rows of id, label, content, split, indices and values, perhaps weight; documents: how many there were first.

    label: string, or array<string> if a document may have many. Repeated texts are in one part only.
    """

    rows: DataFrame
    sets: list[FeatureSet]
    many: bool
    documents: int

    @property
    def width(self) -> int:
        return sum(each.width for each in self.sets)

    def of(self, *parts: str) -> DataFrame:
        """The rows of some parts that have a label."""
        return self.rows.where(F.col("split").isin(*parts) & F.col("label").isNotNull())


def open_rows(
    spark: SparkSession, output: Target, features: Sequence[Features], label: str | None, weights: str | None
) -> Labelled:
    """The feature sets side by side, with labels and weights of the first one that has them; raises Mistake."""
    tables = []
    for each in features:
        table = read_parquet(spark, each.fs.root)
        if (found := table.count()) != each.manifest["documents"]:
            told = each.manifest["documents"]
            raise Mistake(f"{OPTION} {each.path} holds {found} rows, its _manifest.json says {told}: copy it again")
        tables.append(table)
    asked = [label] if label else ["label", "labels"]
    at, name = _holder(features, tables, asked, "--label")
    kind = next(field.dataType for field in tables[at].schema.fields if field.name == name)
    many = isinstance(kind, ArrayType)
    if not isinstance(
        kind.elementType if isinstance(kind, ArrayType) else kind, (StringType, IntegralType, BooleanType)
    ):
        raise Mistake(
            f"column {name} (--label) of {features[at].path} is {kind.simpleString()}: it must be string, integer, "
            "boolean or an array of these"
        )
    more: dict[int, list[Column]] = {at: [_label(F.col(name), many).alias("label")]}
    if weights:
        holder, column = _holder(features, tables, [weights], "--weights")
        kind = next(field.dataType for field in tables[holder].schema.fields if field.name == column)
        if not isinstance(kind, NumericType):
            raise Mistake(f"column {column} (--weights) is {kind.simpleString()}: it must be a number")
        more.setdefault(holder, []).append(F.col(column).cast("double").alias("weight"))
    rows = [
        table.select("id", "content", "split", "indices", "values", *more.get(number, []))
        for number, table in enumerate(tables)
    ]
    sets, documents = [each.set for each in features], int(features[0].manifest["documents"])
    by_hash = features[0].manifest["split"]["by"] == "hash"
    if len(rows) == 1 and by_hash:
        return Labelled(rows[0], sets, many, documents)
    if not output.find("rows"):
        with output.step("rows") as folder:
            joined = _joined(rows, features) if len(rows) > 1 else rows[0]
            (joined if by_hash else _in_one_part(joined)).write.parquet(folder)
    return Labelled(read_parquet(spark, f"{output.stage}/rows"), sets, many, documents)


def _label(column: Column, many: bool) -> Column:
    return F.array_distinct(F.array_compact(column.cast("array<string>"))) if many else column.cast("string")


def _holder(
    features: Sequence[Features], tables: Sequence[DataFrame], wanted: Sequence[str], option: str
) -> tuple[int, str]:
    """The first table that has one of the columns, and the column."""
    for number, table in enumerate(tables):
        for name in table.columns:
            if name.lower() in (each.lower() for each in wanted):
                return number, name
    columns = ", ".join(name for name in tables[0].columns if name not in ("indices", "values", "content"))
    raise Mistake(f"{OPTION} {features[0].path} has no column {' or '.join(wanted)} ({option}): it has {columns[:300]}")


def _joined(rows: Sequence[DataFrame], features: Sequence[Features]) -> DataFrame:
    """One row for each id, the columns of later sets after those of earlier ones; raises Mistake if ids don't match."""
    offset, parts = 0, []
    for number, (part, each) in enumerate(zip(rows, features, strict=True)):
        part = part.withColumn("indices", _shifted(offset))
        renamed = {name: f"{name}_{number}" for name in ("content", "split", "indices", "values")}
        parts.append(part.withColumnsRenamed(renamed))
        offset += each.manifest["width"]
    if offset >= 1 << 31:
        raise Mistake(f"{OPTION} has {offset} columns, the limit is {(1 << 31) - 1}: give fewer or narrower sets")
    joined = reduce(lambda one, other: one.join(other, "id", "full_outer"), parts)
    numbers = range(len(parts))
    lacking = reduce(Column.__or__, [F.col(f"content_{k}").isNull() for k in numbers])
    other = [F.col(f"{name}_{k}") != F.col(f"{name}_0") for k in numbers[1:] for name in ("content", "split")]
    facts: Any = joined.agg(
        F.count("*").alias("n"),
        F.min(F.when(lacking, F.col("id"))).alias("lacking"),
        F.min(F.when(reduce(Column.__or__, other), F.col("id"))).alias("other"),
    ).first()
    given = ", ".join(each.path for each in features)
    if facts.lacking is not None:
        raise Mistake(f"{OPTION} {given}: id {facts.lacking!r} is not in all of them: give sets of the same documents")
    if facts.other is not None:
        raise Mistake(
            f"{OPTION} {given}: id {facts.other!r} is not the same text in all: give sets of the same documents"
        )
    if any(facts.n != each.manifest["documents"] for each in features):
        raise Mistake(f"{OPTION} {given}: ids are not unique, so that rows can't be joined: find them with --check-ids")
    kept = [name for part in rows for name in part.columns if name in ("label", "weight")]
    return joined.select(
        "id",
        F.col("content_0").alias("content"),
        F.col("split_0").alias("split"),
        F.concat(*[f"indices_{k}" for k in numbers]).alias("indices"),
        F.concat(*[f"values_{k}" for k in numbers]).alias("values"),
        *kept,
    )


def _shifted(offset: int) -> Column:
    return F.transform("indices", lambda index: (index + offset).cast("int"))


def _in_one_part(rows: DataFrame) -> DataFrame:
    """Without the rows of later parts whose content is in an earlier one."""
    place = F.array_position(F.array(*[F.lit(part) for part in PARTS]), F.col("split"))
    first = rows.groupBy("content").agg(F.min(place).alias("first"))
    return rows.join(first, "content").where(place == F.col("first")).select(*rows.columns)


class Classes(NamedTuple):
    """The classes, their documents in the training part, and the labelled documents of each part."""

    names: list[str]
    documents: list[int]
    of_parts: dict[str, int]
    without_label: int
    repeated: int


def find_classes(labelled: Labelled, kind: str) -> Classes:
    """Those of the training part, by frequency, then by code point; raises Mistake where nothing can be learnt."""
    columns = [F.count("*").alias("all"), F.count("label").alias("labelled")]
    if "weight" in labelled.rows.columns:
        weight = F.col("weight")
        bad = weight.isNull() | F.isnan(weight) | (weight < 0) | (weight == float("inf"))
        columns.append(F.min(F.when(bad & F.col("label").isNotNull(), F.col("id"))).alias("bad"))
    rows = {row.split: row for row in labelled.rows.groupBy("split").agg(*columns).collect()}
    of_parts = {part: int(rows[part].labelled) if part in rows else 0 for part in PARTS}
    for row in rows.values():
        if row.asDict().get("bad") is not None:
            raise Mistake(f"--weights: document {row.bad!r} has none, or one that is no finite number from 0 on")
    if not of_parts["train"]:
        raise Mistake("no training rows: the training part holds no document with a label")
    if not of_parts["test"]:
        raise Mistake("no test rows: the test part holds no document with a label; give it a larger share of the split")
    train = labelled.of("train")
    names = train.select(F.explode("label").alias("label")) if labelled.many else train.select("label")
    found = names.groupBy("label").count().limit(MOST_CLASSES + 1).collect()
    if len(found) > MOST_CLASSES:
        raise Mistake(f"the labels have more than {MOST_CLASSES} different values: is this the right --label?")
    if not found:
        raise Mistake("no training rows: no document of the training part has any of its labels")
    if len(found) == 1 and kind == "linear" and not labelled.many:
        raise Mistake(f"the training rows are all of one class, {found[0].label!r}: there is nothing to tell apart")
    found.sort(key=lambda row: (-row["count"], row.label))
    every = sum(int(row["all"]) for row in rows.values())
    return Classes(
        [row.label for row in found],
        [int(row["count"]) for row in found],
        of_parts,
        every - sum(of_parts.values()),
        labelled.documents - every,
    )


# -- training ---------------------------------------------------------------------------------------------------------


@dataclass
class Plan:
    """What is to be trained, and by how many ranks; the same model for any number of them.

    weights: of the classes, or None. memory: bytes of binned rows above which a rank keeps them on disk.
    """

    config: Any
    outputs: Outputs
    classes: Classes
    weights: list[float] | None
    ranks: int
    memory: int
    port: int


def outputs_of(classes: Classes, many: bool) -> Outputs:
    number = len(classes.names)
    return Outputs("labels" if many else "binary" if number <= 2 else "classes", number)


def balanced(classes: Classes) -> list[float]:
    """A weight for each class with which all count the same: n / (classes x documents of the class)."""
    n = sum(classes.documents)
    return [n / (len(classes.documents) * number) for number in classes.documents]


def train(spark: SparkSession, output: Target, labelled: Labelled, plan: Plan, training: Training) -> Classifier:
    """The classifier of the training and validation parts, in the stage as model/ before any test row is looked at."""
    if found := output.find("model"):
        return download(output.fs, found)
    keys = deal(plan.ranks)
    given = {
        "classes": plan.classes.names,
        "many": labelled.many,
        "width": labelled.width,
        "keys": keys,
        "weights": plan.weights,
    }
    part = (F.array_position(F.array(*[F.lit(each) for each in PARTS]), F.col("split")) - 1).cast("int")
    rows = labelled.of("train", "validation")
    if not labelled.many:  # a class that training does not show can't be validated
        names = F.broadcast(spark.createDataFrame([(name,) for name in plan.classes.names], "label string"))
        rows = rows.join(names, "label", "left_semi")
    weight = ["weight"] if "weight" in rows.columns else []
    columns = rows.select("id", part.alias("part"), "label", "content", "indices", "values", *weight)
    cells = columns.mapInArrow(
        on_workers(spark, "pack_rows", json.dumps(given), module="jobs.train_workers"), "rank int, cell binary"
    )
    settings = {
        "config": asdict(plan.config),
        "outputs": list(plan.outputs),
        "width": labelled.width,
        "memory": plan.memory,
        "threads": threads_of(spark, plan.ranks),
    }
    function = ("jobs.train_workers", "linear_rank" if isinstance(plan.config, LinearConfig) else "boosted_rank")
    run_ranks(
        spark, cells, plan.ranks, function, [json.dumps(settings)], {"start": training.start}, training.told, plan.port
    )
    classifier = training.classifier(plan, labelled)
    with output.step("model") as folder:
        upload(output.fs, classifier, folder)
    return classifier


class Training:
    """The driver's part of a training: cuts for all ranks, checkpoints, rounds, the model."""

    def __init__(self, output: Target, plan: Plan) -> None:
        self.output, self.plan = output, plan
        self.rounds: list[dict[str, Any]] = []
        self.begun = 0  # rounds that a checkpoint had
        self.counts: dict[str, int] = {}
        self.parts: Sequence[bytes] = ()

    def start(self, messages: list[Message]) -> Message:
        """The answer to all ranks' summaries: the cuts, the last checkpoint, how they find each other."""
        from models.boosted import Summary, cut_values, merge_summaries, reduced_bytes, summary_size

        config, outputs = self.plan.config, self.plan.outputs
        of_ranks = [
            Summary(
                *(
                    np.frombuffer(part, kind)
                    for part, kind in zip(m.parts, (np.int64, np.uint64, np.float32), strict=True)
                )
            )
            for m in messages
        ]
        width = len(of_ranks[0].indptr) - 1
        cuts = cut_values(merge_summaries(of_ranks, summary_size(width, config.max_bin)), config.max_bin)
        if len(messages) > 1 and (dear := reduced_bytes(cuts, config, outputs)) > DEAR:
            log.warning(
                "the %d workers add up %.0f GB of histograms: one worker with all cores, a lower --max-bin or a lower "
                "--depth would be faster",
                len(messages), dear / (1 << 30),
            )  # fmt: skip
        values = {
            "height": cuts.shape[0],
            "communicator": messages[0].values["communicator"],
            "bytes": max(m.values["bytes"] for m in messages),
            **{name: sum(m.values[name] for m in messages) for name in ("train", "validation")},
        }
        indices, indptr = cuts.indices.astype(np.int32), cuts.indptr.astype(np.int32)
        resume = self._checkpoint()
        return Message("start", values, [cuts.data.tobytes(), indices.tobytes(), indptr.tobytes(), resume])

    def _checkpoint(self) -> bytes:
        found = self.output.find("checkpoint")
        if not found:
            return b""
        self.begun = int(self.output.fs.read_json(f"{found}/rounds.json"))
        log.info("goes on after %d rounds, from a checkpoint", self.begun)
        with tempfile.TemporaryDirectory() as scratch:
            self.output.fs.download(f"{found}/model.ubj", Path(scratch) / "model.ubj")
            return (Path(scratch) / "model.ubj").read_bytes()

    def told(self, message: Message) -> None:
        """Keep what the first rank tells."""
        if message.name == "warning":
            log.warning("%s", message.values["text"])
        elif message.name == "round":
            self.rounds.append(message.values)
        elif message.name == "checkpoint":
            with self.output.step("checkpoint") as folder:
                self.output.fs.write(f"{folder}/model.ubj", message.parts[0])
                self.output.fs.write_json(f"{folder}/rounds.json", message.values["rounds"])
            log.info("%s", self.line())
        else:
            self.counts, self.parts = message.values, message.parts

    def line(self, elapsed: float | None = None) -> str:
        """How far it is: rounds, log-loss, the time left."""
        if not self.rounds:
            return "train  reading" + (f"  {duration(elapsed)}" if elapsed else "")
        last, of = self.rounds[-1], self.plan.config.rounds
        parts = [f"train  round {last['number']:,} of {of:,}", f"log-loss {last['train']:.4f}"]
        if last["validation"] is not None:
            parts.append(f"of validation {last['validation']:.4f}")
        done = last["number"] - self.begun
        if elapsed and done > 0:
            parts.append(f"{duration(elapsed / done * (of - last['number']))} left at most")
        return "  ".join(parts)

    def classifier(self, plan: Plan, labelled: Labelled) -> Classifier:
        """What the ranks have trained."""
        model: Any
        if isinstance(plan.config, LinearConfig):
            import sklearn

            versions = {"scikit-learn": sklearn.__version__}
            model, rounds = LinearModel.from_bytes(self.parts[0], plan.outputs), None
        else:
            import xgboost

            from models.boosted import BoostedModel

            versions = {"xgboost": xgboost.__version__}
            model = BoostedModel.from_bytes(self.parts[0])
            told = json.loads(self.parts[1])
            schema = pa.schema([("round", pa.int32()), ("train", pa.float64()), ("validation", pa.float64())])
            rounds = pa.table([list(column) for column in zip(*told, strict=True)], schema)
        training = {
            **asdict(plan.config),
            "class_weights": plan.weights,
            "documents": {part: self.counts[part] for part in ("train", "validation")},
            "without_label": plan.classes.without_label,
            "repeated": plan.classes.repeated,
            "versions": versions,
        }
        return Classifier(model, plan.classes.names, labelled.sets, training, rounds)


def download(fs: FileSystem, folder: str) -> Classifier:
    """The classifier in a folder of any file system."""
    with tempfile.TemporaryDirectory() as scratch:
        fs.download(folder, Path(scratch) / "model")
        return Classifier.load(Path(scratch) / "model")


def upload(fs: FileSystem, classifier: Classifier, folder: str, metrics: dict[str, Any] | None = None) -> None:
    """Save a classifier to a folder of any file system."""
    with tempfile.TemporaryDirectory() as scratch:
        classifier.save(Path(scratch) / "model", metrics)
        fs.upload(Path(scratch) / "model", folder)


# -- evaluation -------------------------------------------------------------------------------------------------------


def evaluate(spark: SparkSession, classifier: Classifier, labelled: Labelled) -> dict[str, Any]:
    """What metrics.json says: the one function that looks at the test part's labels."""
    folder = Path(tempfile.mkdtemp(dir=app_folder()))
    classifier.save(folder / "model")
    archive = shutil.make_archive(str(folder / f"classifier-{folder.name}"), "zip", folder / "model")
    worker = on_workers(spark, "evaluate", ship(spark, Path(archive)), module="jobs.train_workers")
    rows = labelled.of("test").select("id", "label", "indices", "values")
    found = rows.mapInArrow(worker, "tally string").collect()
    whole = Tally(classifier.classes, labelled.many)
    tallies = [Tally.from_dict(classifier.classes, labelled.many, json.loads(row.tally)) for row in found]
    metrics = whole.merge(tallies).metrics()
    documents = classifier.training["documents"]
    n_test = sum(each.documents for each in tallies)
    return {"n_train": documents["train"], "n_validation": documents["validation"], "n_test": n_test, **metrics}
