"""The steps of the main job, as the driver runs them: count, fit, transform. What runs in workers: workers.py.

count reads the input, once, and deals its terms to shards; where there is a split, divide does that for the training
part. fit sums them in one shuffle of packed terms, takes the
first of each shard, and chooses the vocabulary among those: no global sort. transform weighs the blocks' counts. Each
takes what an earlier run finished, if the target has it.
"""

from __future__ import annotations

import json
import math
import tempfile
from argparse import Namespace
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, FractionalType, StringType, StructField

from jobs.corpus import Corpus, packed
from jobs.explode import FREQUENT, exploded, join_vocabulary, sum_terms, write_vocabulary
from jobs.outputs import FileSystem, Target, add_up, move_parquet, read_parquet, write_cells
from jobs.partitions import lay_out, name_run
from jobs.schemas import check, features_schema, tokens_schema
from jobs.session import Mistake, app_folder, log, mistakes, on_workers, reason, rows_per_batch, ship
from jobs.workers import (
    BLOCK_COLUMNS,
    CELLS,
    COUNT_STATS,
    DEALT_COLUMNS,
    FEATURE_STATS,
    FIRST_TERMS,
    KEPT_STATS,
    NAMED,
    OF_PARTS,
    REPORT_STATS,
    SPLIT_STATS,
    hash_of,
    unpack_counts,
)
from models.counts import SHARDS, join_counts
from models.features import MODEL_FILES, FeatureConfig, FeatureModel, select
from models.kept import KeptCounts
from models.splits import Split
from udfs.records import REJECTS, plain_path

TASK_TERMS = 1 << 20  # dealt terms for which a task of its own pays
JOINED_ROWS = 1 << 16  # joined entries that go to a worker at once
SHARD_ROWS = 64  # dealt parts of shards that go to a worker at once


def load_model(fs: FileSystem, option: str = "--apply") -> FeatureModel:
    """The model in a folder of any file system, its kept counts left there; raises Mistake if it is none."""
    path = plain_path(fs.root)
    if not fs.exists(fs.root):
        raise Mistake(f"{option} {path} does not exist: give what --model wrote")
    try:
        missing = sorted({*MODEL_FILES} - {*fs.names(fs.root)}) if fs.is_dir(fs.root) else ["folder"]
    except Exception as error:  # of Java: no permission
        raise Mistake(f"{option} {path} can't be read: {reason(error)}") from None
    if missing:
        raise Mistake(f"{option} {path} is not a model folder: it has no {missing[0]}; give what --model wrote")
    with tempfile.TemporaryDirectory() as scratch:
        for name in MODEL_FILES:
            fs.download(f"{fs.root}/{name}", Path(scratch) / name)
        try:
            return FeatureModel.load(scratch)
        except ValueError as error:
            raise Mistake(f"{option} {path}: {str(error).replace(scratch, path)}") from None


def count(
    spark: SparkSession, output: Target, config: FeatureConfig, corpus: Corpus, options: Namespace
) -> dict[str, int]:
    """Parse and count the corpus into the stage's count/ (blocks, dealt, stats, _rejects); the sums of COUNT_STATS.

    Of the options engine, tokens and hash_report count: whether terms are left to Spark to sum, and what else is kept.
    Where the corpus has a split, `divide` deals.
    """
    if not is_counted(output):
        with output.step("count") as folder:
            explode = options.engine == "explode"
            kept = (explode, bool(options.tokens), bool(options.hash_report), corpus.split is None)
            worker = on_workers(spark, "count", config.to_json(), corpus.layout.to_json(), *kept)
            with packed(spark, corpus):
                write_cells(corpus.raw.mapInArrow(worker, CELLS), folder)
            if explode and corpus.split is None:
                sum_terms(spark, exploded(spark, folder), folder)
            if not move_parquet(output.fs, f"{folder}/kind=rejects", f"{folder}/_rejects"):
                output.fs.write_parquet(f"{folder}/_rejects/part-empty.parquet", REJECTS.empty_table())
    return add_up(spark, f"{output.stage}/count", COUNT_STATS)


def is_counted(output: Target) -> bool:
    """Whether the stage's count/ is whole: the last thing that transform does is to take the rejects out of it."""
    return bool(output.find("count/_rejects") or output.find("output"))


def divide(
    spark: SparkSession, output: Target, corpus: Corpus, split: Split, options: Namespace
) -> tuple[Split, dict[str, int]]:
    """Put the training part's terms, for a model that is fitted, into the stage's split/ (dealt, stats).

    Returns the split, with its cutoffs, and the sums of SPLIT_STATS. Of the options engine and model count.
    """
    if not output.find("split"):
        with output.step("split") as folder, rows_per_batch(spark, 1):
            blocks = read_parquet(spark, f"{output.stage}/count/kind=blocks", BLOCK_COLUMNS)
            if split.by == "time" and not split.cutoffs:
                kind = next(field.dataType for field in corpus.carried if field.name == split.column)
                split = _with_cutoffs(spark, blocks, split, kind)
            told, explode = json.dumps(split.to_dict()), options.engine == "explode"
            worker = on_workers(spark, "deal_training", told, bool(options.model) and not explode)
            write_cells(blocks.select("terms", "documents").mapInArrow(worker, CELLS), folder)
            output.fs.write_json(f"{folder}/_split.json", split.to_dict())
            if explode and options.model:
                training = blocks.select("block", "documents").mapInArrow(
                    on_workers(spark, "training_rows", told), "block bigint, row int"
                )
                terms = exploded(spark, f"{output.stage}/count").join(training, ["block", "row"], "left_semi")
                sum_terms(spark, terms, folder)
    found = f"{output.stage}/split"
    split = Split.from_dict(output.fs.read_json(f"{found}/_split.json"))
    return split, add_up(spark, found, SPLIT_STATS)


def _with_cutoffs(spark: SparkSession, blocks: DataFrame, split: Split, kind: DataType) -> Split:
    """A time split with the first time of each later part: that before which its share of the documents lies.

    Documents of one time are never parted, so that a part may be larger than its share, or a later one empty.
    """
    fractions = (FractionalType, StringType)
    stored = {FractionalType: "double", StringType: "string"}
    at = next((stored[each] for each in fractions if isinstance(kind, each)), "bigint")
    times = blocks.select("documents").mapInArrow(
        on_workers(spark, "block_times", split.column), f"at {at}, documents bigint"
    )
    counts = times.groupBy("at").agg(F.sum("documents").alias("documents"))
    before = Window.orderBy("at").rowsBetween(Window.unboundedPreceding, -1)
    running = counts.withColumn("before", F.coalesce(F.sum("documents").over(before), F.lit(0)))
    n = counts.agg(F.sum("documents")).first()[0]  # type: ignore[index]
    ends = [round(share * n) for share in list(accumulate(split.shares))[:-1]]
    firsts = running.agg(*[F.min(F.when(F.col("before") >= end, F.col("at"))) for end in ends]).first()
    return replace(split, cutoffs=tuple(time for time in firsts if time is not None))  # type: ignore[union-attr]


def what_it_saw(model: FeatureModel, split: Split) -> str:
    """Of the documents: the training part at most (train), nothing (a hash without idf), or unknown."""
    if model.config.hash_size and model.config.features in ("onehot", "count"):
        return "nothing"
    return "train" if model.fitted_on == split else "unknown"


def tell_finished(output: Target, model: Target | None, tokens: Target | None) -> None:
    """Log which steps an earlier run finished, so that this one need not."""
    found = {
        "count": is_counted(output),
        "split": output.find("split"),
        "fit": model and model.find("model"),
        "tokens": tokens and tokens.find("tokens"),
        "transform": output.find("output"),
    }
    names = [name for name, is_finished in found.items() if is_finished]
    if names:
        log.info("continues after %s, finished by an earlier run", ", ".join(names))


def reject_reasons(spark: SparkSession, folder: str, most: int = 3) -> str:
    """The most frequent reasons for the rejects in `folder`/count, as one line."""
    rejects = read_parquet(spark, f"{folder}/count/_rejects").where("kind = 'reject'")
    alike = rejects.groupBy(F.regexp_replace("reason", r"\d+", "N")).agg(
        F.count("reason").alias("number"), F.min("reason").alias("lowest"), F.max("reason").alias("highest")
    )
    rows = alike.orderBy(F.desc("number"), "lowest").limit(most).collect()
    return "; ".join(f"{row.number} x{' such as' * (row.lowest != row.highest)} {row.lowest}" for row in rows)


def fit(
    spark: SparkSession,
    output: Target,
    target: Target,
    config: FeatureConfig,
    stats: dict[str, int],
    with_counts: bool,
    split: Split | None = None,
) -> FeatureModel:
    """The model of the documents in output's stage, which goes to the stage of its own target, as model/.

    stats: documents, tokens and dealt_terms of what is fitted on: all, or the training part of `split`. with_counts:
    the model's folder holds the counts of all terms.
    """
    if found := target.find("model"):
        return load_model(FileSystem(found))
    dealt = f"{output.stage}/{'split' if split else 'count'}"
    model = fit_counts(spark, dealt, config, stats)
    model.fitted_on = split
    with target.step("model") as folder, tempfile.TemporaryDirectory() as scratch:
        if with_counts:
            model.counts = keep_counts(spark, dealt, f"{folder}-counts", config, stats)
        model.save(Path(scratch) / "model")
        target.fs.upload(Path(scratch) / "model", folder)
        if with_counts:
            move_parquet(target.fs, f"{folder}-counts/kind=counts", f"{folder}/counts")
    return model


def fit_counts(spark: SparkSession, folder: str, config: FeatureConfig, stats: dict[str, int]) -> FeatureModel:
    """The model of the terms that are dealt in `folder`.

    stats: documents, tokens and dealt_terms of them. The driver holds few more terms than are chosen. Raises
    Mistake if no term is left.
    """
    n = stats["documents"]
    with mistakes():
        low, high = config.df_limits(n)
    dealt = _dealt(spark, f"{folder}/kind=dealt", stats["dealt_terms"])
    most = config.max_features and shard_share(config.max_features)
    while True:
        with rows_per_batch(spark, SHARD_ROWS):
            worker = on_workers(spark, "first_terms", low, high, most)
            rows = dealt.mapInArrow(worker, FIRST_TERMS).collect()
        counts = join_counts([unpack_counts(pa.scalar(bytes(row.terms))) for row in rows])
        with mistakes():
            chosen = select([counts], config, n)
        # A shard whose last term was not chosen has no more to give.
        lasts = pa.array([row.last for row in rows if row.last is not None], pa.large_string())
        if most is None or not pc.any(pc.is_in(lasts, chosen.terms)).as_py():
            return FeatureModel.of_counts(config, chosen, n, stats["tokens"])
        most *= 4


def _dealt(spark: SparkSession, folder: str, terms: int) -> DataFrame:
    """The dealt terms in a folder, all of a shard in one task."""
    tasks = min(SHARDS, 1 + terms // TASK_TERMS)
    return read_parquet(spark, folder, DEALT_COLUMNS).repartition(tasks, "shard")


def keep_counts(
    spark: SparkSession, folder: str, target: str, config: FeatureConfig, stats: dict[str, int]
) -> KeptCounts:
    """Write all terms that are dealt in `folder` to `target`/kind=counts; what the model's manifest says of them."""
    with rows_per_batch(spark, SHARD_ROWS):
        dealt = _dealt(spark, f"{folder}/kind=dealt", stats["dealt_terms"])
        write_cells(dealt.mapInArrow(on_workers(spark, "keep_counts"), CELLS), target)
    kept = add_up(spark, target, KEPT_STATS)
    return KeptCounts(config, stats["documents"], stats["tokens"], SHARDS, kept["terms"], hash_of(kept), None)


def hash_report(
    spark: SparkSession, folder: str, target: str, size: int | None, stats: dict[str, int]
) -> dict[str, int]:
    """Write which terms share an index to `target`/kind=report; returns the sums of REPORT_STATS."""
    with rows_per_batch(spark, SHARD_ROWS):
        dealt = _dealt(spark, f"{folder}/count/kind=unhashed", stats["unhashed_terms"])
        write_cells(dealt.mapInArrow(on_workers(spark, "write_hash_report", size), CELLS), target)
    return add_up(spark, target, REPORT_STATS)


def shard_share(most: int) -> int:
    """How many of the first `most` terms one shard holds at most, but for a chance in 10^12: they are dealt by hash."""
    mean = most / SHARDS
    return math.ceil(mean + 8 * math.sqrt(mean) + 12)


def transform(
    spark: SparkSession,
    output: Target,
    model: FeatureModel,
    corpus: Corpus,
    counted: dict[str, int],
    column: StructField | None,
    options: Namespace,
    split: Split | None = None,
    parts: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Weigh the blocks in the stage into its output/, verified, with rejects and manifest; returns the manifest.

    column: by which the rows go to folders. split, parts: what `divide` returned. Of the options engine and hash_report
    count.
    """
    if found := output.find("output"):
        return dict(output.fs.read_json(f"{found}/_manifest.json"))
    with output.step("output") as folder:
        rejects = f"{output.stage}/count/_rejects"
        cells, write = f"{folder}-cells", write_joined if options.engine == "explode" else write_features
        schema = features_schema(corpus, column)
        blocks = _blocks(spark, output.stage, corpus)
        settings = (schema.json(), column.name if column else "", json.dumps(split.to_dict()) if split else "")
        write(spark, blocks, output.stage, cells, model, settings)
        if column:
            written = lay_out(spark, output.fs, cells, folder, column, output.catalogued)
        else:
            written = add_up(spark, cells, FEATURE_STATS)
            move_parquet(output.fs, f"{cells}/kind=features", folder)
        rows = read_parquet(spark, folder)
        check(rows.drop(column.name) if column else rows, schema)
        if not rows.count() == written["documents"] == counted["documents"]:
            raise RuntimeError(f"{rows.count()} rows were written, {counted['documents']} documents were read")
        if options.hash_report:
            written |= hash_report(spark, output.stage, f"{cells}-report", model.config.hash_size, counted)
            move_parquet(output.fs, f"{cells}-report/kind=report", f"{folder}/_hash_report")
        manifest = manifest_of(model, counted, written)
        if split and parts:
            of_parts = {part: parts[number] for part, number, _ in OF_PARTS}
            manifest |= {"split": split.to_dict(), "parts": of_parts, "model_saw": what_it_saw(model, split)}
        if column:
            manifest = name_run(output.fs, folder, rejects, manifest, column)
        output.fs.write_json(f"{folder}/_manifest.json", manifest)
        output.lease.check()
        output.fs.rename(rejects, f"{folder}/_rejects")
    return manifest


def manifest_of(model: FeatureModel, counted: dict[str, int], written: dict[str, int]) -> dict[str, Any]:
    """What _manifest.json says: counts of committed rows, the model's id, and the content hash of the rows."""
    names = ("records", "documents", "rejects", "blanks", "repaired", "tokens")
    return {
        **{name: counted[name] for name in names},
        "terms": len(model.terms),
        "width": model.width,
        "entries": written["entries"],
        "empty": written["empty"],
        **{name: written[name] for name in REPORT_STATS if name in written},
        "model_id": model.id,
        "content_hash": hash_of(written),
    }


def write_features(
    spark: SparkSession, blocks: DataFrame, stage: str, folder: str, model: FeatureModel, settings: tuple[str, str, str]
) -> None:
    """Weigh the blocks in `stage`/count into the cells of `folder`; settings: schema, partition_by and split."""
    vocabulary = app_folder() / f"vocabulary-{model.id}.table"
    model.table.save(vocabulary)
    with rows_per_batch(spark, 1):
        name = ship(spark, vocabulary)
        weights = (model.config.to_json(), name, model.mean_length, model.unseen_idf)
        worker = on_workers(spark, "write_features", *weights, *settings)
        write_cells(blocks.select("terms", "documents", "hashes", "repeats").mapInArrow(worker, CELLS), folder)


def write_joined(
    spark: SparkSession, blocks: DataFrame, stage: str, folder: str, model: FeatureModel, settings: tuple[str, str, str]
) -> None:
    """What write_features does, by a join of the terms in `stage`/count with the vocabulary."""
    write_vocabulary(model, f"{folder}-vocabulary.parquet", FREQUENT)
    vocabulary = read_parquet(spark, f"{folder}-vocabulary.parquet")
    columns = blocks.select("block", "documents", "hashes", "repeats")
    documents = columns.mapInArrow(on_workers(spark, "name_documents"), NAMED)
    rows = join_vocabulary(exploded(spark, f"{stage}/count"), vocabulary, documents, model)
    worker = on_workers(spark, "write_joined", model.config.to_json(), model.mean_length, *settings)
    with rows_per_batch(spark, JOINED_ROWS):
        write_cells(rows.mapInArrow(worker, CELLS), folder)


def keep_tokens(spark: SparkSession, output: Target, target: Target, corpus: Corpus) -> None:
    """Write the TOKENS that count put into the blocks of output's stage as tokens/ to the stage of their own target."""
    if target.find("tokens"):
        return
    with target.step("tokens") as folder, rows_per_batch(spark, 1):
        columns = _blocks(spark, output.stage, corpus).select("tokens", "documents", "hashes", "repeats")
        write_cells(columns.mapInArrow(on_workers(spark, "write_tokens"), CELLS), f"{folder}-cells")
        move_parquet(target.fs, f"{folder}-cells/kind=tokens", folder)
        check(read_parquet(spark, folder), tokens_schema(corpus.id_type))


def _blocks(spark: SparkSession, folder: str, corpus: Corpus) -> DataFrame:
    """The blocks in `folder`/count; without an id column, with the records of each that earlier blocks hold too."""
    blocks = read_parquet(spark, f"{folder}/count/kind=blocks", BLOCK_COLUMNS)
    if corpus.layout.id or corpus.layout.format == "files":
        return blocks.withColumn("repeats", F.lit(None).cast("array<struct<record:binary,earlier:bigint>>"))
    return blocks.join(_repeats(blocks), "block", "left")


def _repeats(blocks: DataFrame) -> DataFrame:
    """For each block, the records that other blocks before it hold too, and how often: rows of block, repeats."""
    records = blocks.select("block", "hashes").mapInArrow(
        on_workers(blocks.sparkSession, "block_records"), "block bigint, record binary, records bigint"
    )
    before = Window.partitionBy("record").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    repeated = records.withColumn("earlier", F.sum("records").over(before)).where("earlier > 0")
    return repeated.groupBy("block").agg(F.collect_list(F.struct("record", "earlier")).alias("repeats"))


def refuse_repeated_ids(spark: SparkSession, output: Target, corpus: Corpus, shown: int = 3) -> None:
    """Raise Mistake if ids of the finished output/ occur more than once; hashes of records do not (see `_repeats`)."""
    if not corpus.layout.id and corpus.layout.format != "files":
        return
    rows = read_parquet(spark, output.find("output") or f"{output.stage}/output")
    repeated = rows.groupBy("id").count().where("count > 1")
    first = repeated.orderBy(F.desc("count"), "id").limit(shown).collect()
    if first:
        examples = ", ".join(f"{row['id']!r} ({row['count']} times)" for row in first)
        raise Mistake(
            f"--check-ids: {repeated.count()} ids of {corpus.path} occur more than once, such as {examples[:300]}: "
            "make them unique, or leave out --check-ids"
        )
