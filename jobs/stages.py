"""The three stages of the main job, as the driver runs them: count, fit, transform. What runs in workers: workers.py.

count reads the input, once, and deals its terms to shards. fit sums them in one shuffle of packed terms, takes the
first of each shard, and chooses the vocabulary among those: no global sort. transform weighs the blocks' counts.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from jobs.corpus import Corpus
from jobs.outputs import FileSystem, add_up, read_parquet, write_cells
from jobs.schemas import features_schema
from jobs.session import Mistake, app_folder, mistakes, on_workers, rows_per_batch, ship
from jobs.workers import (
    BLOCK_COLUMNS,
    CELLS,
    COUNT_STATS,
    DEALT_COLUMNS,
    FEATURE_STATS,
    FIRST_TERMS,
    SHARDS,
    unpack_counts,
)
from models.counts import join_counts
from models.features import MODEL_FILES, FeatureConfig, FeatureModel, select
from udfs.records import plain_path

TASK_TERMS = 1 << 20  # dealt terms for which a task of its own pays
SHARD_ROWS = 64  # dealt parts of shards that go to a worker at once


def load_model(fs: FileSystem) -> FeatureModel:
    """The model in a folder of any file system; raises Mistake if it is none."""
    path = plain_path(fs.root)
    missing = sorted({*MODEL_FILES} - {*fs.names(fs.root)}) if fs.is_dir(fs.root) else ["folder"]
    if missing:
        raise Mistake(f"--apply {path} is not a model folder: it has no {missing[0]}; give what --model wrote")
    with tempfile.TemporaryDirectory() as scratch:
        for name in MODEL_FILES:
            fs.download(f"{fs.root}/{name}", Path(scratch) / name)
        try:
            return FeatureModel.load(scratch)
        except ValueError as error:
            raise Mistake(f"--apply {path}: {str(error).replace(scratch, path)}") from None


def count(spark: SparkSession, folder: str, config: FeatureConfig, corpus: Corpus) -> dict[str, int]:
    """Parse and count the corpus into `folder`/count (blocks, rejects, stats); returns the sums of COUNT_STATS."""
    worker = on_workers(spark, "count", config.to_json(), corpus.layout.to_json())
    write_cells(corpus.raw.mapInArrow(worker, CELLS), f"{folder}/count")
    return add_up(spark, f"{folder}/count", COUNT_STATS)


def reject_reasons(spark: SparkSession, folder: str, most: int = 3) -> str:
    """The most frequent reasons for the rejects in `folder`/count, as one line."""
    rejects = read_parquet(spark, f"{folder}/count/kind=rejects").where("kind = 'reject'")
    rows = rejects.groupBy("reason").count().orderBy(F.desc("count"), "reason").limit(most).collect()
    return "; ".join(f"{row['count']} x {row['reason']}" for row in rows)


def fit(spark: SparkSession, folder: str, config: FeatureConfig, stats: dict[str, int]) -> FeatureModel:
    """The model of the blocks in `folder`/count.

    stats: documents, tokens and dealt_terms of the count. The driver holds few more terms than are chosen. Raises
    Mistake if no term is left.
    """
    n = stats["documents"]
    with mistakes():
        low, high = config.df_limits(n)
    tasks = min(SHARDS, 1 + stats["dealt_terms"] // TASK_TERMS)
    dealt = read_parquet(spark, f"{folder}/count/kind=dealt", DEALT_COLUMNS).repartition(tasks, "shard")
    most = config.max_features and shard_share(config.max_features)
    while True:
        with rows_per_batch(spark, SHARD_ROWS):
            worker = on_workers(spark, "first_terms", low, high, most)
            rows = dealt.mapInArrow(worker, FIRST_TERMS).collect()
        counts = join_counts([unpack_counts(pa.scalar(bytes(row.terms))) for row in rows])
        with mistakes():
            chosen = select(counts, config, n)
        # A shard whose last term was not chosen has no more to give.
        lasts = pa.array([row.last for row in rows if row.last is not None], pa.large_string())
        if most is None or not pc.any(pc.is_in(lasts, chosen.terms)).as_py():
            return FeatureModel.of_counts(config, chosen, n, stats["tokens"])
        most *= 4


def shard_share(most: int) -> int:
    """How many of the first `most` terms one shard holds at most, but for a chance in 10^12: they are dealt by hash."""
    mean = most / SHARDS
    return math.ceil(mean + 8 * math.sqrt(mean) + 12)


def transform(spark: SparkSession, folder: str, model: FeatureModel, corpus: Corpus) -> dict[str, int]:
    """Weigh the blocks in `folder`/count into `folder`/features; returns the sums of FEATURE_STATS."""
    blocks = read_parquet(spark, f"{folder}/count/kind=blocks", BLOCK_COLUMNS)
    if corpus.layout.id or corpus.layout.format == "files":
        blocks = blocks.withColumn("repeats", F.lit(None).cast("array<struct<record:binary,earlier:bigint>>"))
    else:
        blocks = blocks.join(_repeats(blocks), "block", "left")
    schema = features_schema(corpus.id_type, corpus.label, corpus.carried)
    vocabulary = app_folder() / f"vocabulary-{model.id}.table"
    model.table.save(vocabulary)
    with rows_per_batch(spark, 1):
        name = ship(spark, vocabulary)
        settings = (model.config.to_json(), name, model.mean_length, model.unseen_idf, schema.json())
        worker = on_workers(spark, "write_features", *settings)
        columns = blocks.select("terms", "documents", "hashes", "repeats")
        write_cells(columns.mapInArrow(worker, CELLS), f"{folder}/features")
    return add_up(spark, f"{folder}/features", FEATURE_STATS)


def _repeats(blocks: DataFrame) -> DataFrame:
    """For each block, the records that other blocks before it hold too, and how often: rows of block, repeats."""
    records = blocks.select("block", "hashes").mapInArrow(
        on_workers(blocks.sparkSession, "block_records"), "block bigint, record binary, records bigint"
    )
    before = Window.partitionBy("record").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    repeated = records.withColumn("earlier", F.sum("records").over(before)).where("earlier > 0")
    return repeated.groupBy("block").agg(F.collect_list(F.struct("record", "earlier")).alias("repeats"))


def refuse_repeated_ids(rows: DataFrame, corpus: Corpus, shown: int = 3) -> None:
    """Raise Mistake if ids of the features occur more than once; hashes of records do not (see `_repeats`)."""
    if not corpus.layout.id and corpus.layout.format != "files":
        return
    repeated = rows.groupBy("id").count().where("count > 1")
    first = repeated.orderBy(F.desc("count"), "id").limit(shown).collect()
    if first:
        examples = ", ".join(f"{row['id']!r} ({row['count']} times)" for row in first)
        raise Mistake(
            f"--check-ids: {repeated.count()} ids of {corpus.path} occur more than once, such as {examples[:300]}: "
            "make them unique, or leave out --check-ids"
        )
