"""The relational engine: terms as rows, counted, joined with the vocabulary and regrouped by Spark's own operators.

No worker holds a vocabulary, only the most frequent terms of it. The features are those of the other engine, bit by
bit: both tokenise, choose the vocabulary and weigh with the same code.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.outputs import FileSystem, read_parquet, write_cells
from jobs.session import on_workers
from jobs.workers import CELLS, TERM_COLUMNS
from models.features import FeatureModel

FREQUENT = 10_000  # terms that go to all workers: in a join by term, the few of them would make most of the rows


def exploded(spark: SparkSession, folder: str) -> DataFrame:
    """The terms in a count's folder, a row for each document and term: block, row, term, tf."""
    lists = read_parquet(spark, f"{folder}/kind=terms", TERM_COLUMNS)
    return lists.selectExpr("block", "row", "inline(arrays_zip(term, tf))")


def sum_terms(spark: SparkSession, terms: DataFrame, folder: str) -> None:
    """Sum df and cf of each term in rows of block, row, term, tf, and deal the sums to shards in a folder of cells."""
    sums = terms.groupBy("term").agg(F.count("*").alias("df"), F.sum("tf").alias("cf"))
    write_cells(sums.mapInArrow(on_workers(spark, "deal_terms"), CELLS), folder, append=True)


def join_vocabulary(terms: DataFrame, vocabulary: DataFrame, documents: DataFrame, model: FeatureModel) -> DataFrame:
    """The documents of each block (row -1), then their entries by row and index, in columns as write_joined takes them.

    terms: block, row, term, tf. vocabulary: what write_vocabulary wrote. documents: block, documents.
    """
    frequent = F.broadcast(vocabulary.where("frequent"))
    of_few = terms.join(frequent, "term")
    others = terms.join(frequent, "term", "left_anti")
    if model.config.hash_size:  # no index is left out
        index = F.substring("term", 2, 10).cast("int")
        of_others = others.join(vocabulary, "term", "left").withColumn("index", index)
        of_others = of_others.fillna({"idf": model.unseen_idf})
    else:
        of_others = others.join(vocabulary.where("NOT frequent"), "term")
    entries = [each.select("block", "row", "index", "tf", "idf") for each in (of_few, of_others)]
    whole = documents.withColumn("row", F.lit(-1)).unionByName(
        entries[0].unionByName(entries[1]), allowMissingColumns=True
    )
    return whole.repartition("block").sortWithinPartitions("block", "row", "index")


def write_vocabulary(model: FeatureModel, path: str, most: int) -> None:
    """Write term, index, idf, and whether the term is one of so many in most documents."""
    frequent = np.zeros(len(model.df), bool)
    frequent[np.argsort(-model.df, kind="stable")[:most]] = True
    columns = {
        "term": model.terms.cast(pa.string()),
        "index": pa.array(model.indices.astype(np.int32)),
        "idf": model.idf,
        "frequent": frequent,
    }
    with TemporaryDirectory() as scratch:
        pq.write_table(pa.table(columns), Path(scratch) / "vocabulary.parquet", row_group_size=1 << 17)
        FileSystem(path).upload(Path(scratch) / "vocabulary.parquet", path)
