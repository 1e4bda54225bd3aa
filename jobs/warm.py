"""Compile every kernel that the workers use, by running their stages on a few documents: python -m jobs.warm."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.barrier import spill
from jobs.train_workers import pack_rows, rank_rows
from jobs.workers import MAGIC, Cells, count, first_terms, keep_counts, unpack_counts, write_features
from models.boosted import BoostedConfig, cut_values, merge_summaries, summarise, train
from models.counts import join_counts
from models.features import FeatureConfig, FeatureModel
from models.rows import Outputs
from udfs import hive
from udfs.functions import compile_kernels
from udfs.records import Layout
from udfs.text import TextConfig

TEXT = ("The cat's  hat. Ça va? ΟΔΟΣ İ", "", "数据 한글 क्षि a\u0301\u200d \U0001f600 e\u0301\n\n3.14")
CONFIGS = (
    FeatureConfig(ngrams=(1, 2), stop_words=("the",), sublinear_tf=True),
    FeatureConfig(text=TextConfig(unicode="NFKC", tokenizer="whitespace", strip_accents=True)),
    FeatureConfig(text=TextConfig(unicode="none", tokenizer="sklearn")),
    FeatureConfig(hash_size=1000),
    FeatureConfig(text=TextConfig(keep_urls=True, emoji=True)),
    FeatureConfig(text=TextConfig(tokenizer="char"), ngrams=(1, 2)),
    FeatureConfig(text=TextConfig(tokenizer="char_wb"), ngrams=(3, 3)),
    FeatureConfig(text=TextConfig(tokenizer="regex", pattern=r"\w+")),
)
OUTPUTS = (Outputs("binary", 2), Outputs("classes", 3), Outputs("labels", 2))
SCHEMA = '{"type":"struct","fields":[{"name":"id"},{"name":"indices"},{"name":"values"}]}'


def files(cells: Cells) -> dict[str, pa.Table]:
    """The Parquet files in a stage's cells by kind, as Spark would write them."""
    parts: dict[str, bytes] = {}
    for batch in cells:
        kind, cell = batch["kind"][0].as_py(), batch["cell"][0].as_buffer().to_pybytes()
        parts[kind] = parts.get(kind, b"") + cell + MAGIC
    # One thread: a process that ends while those of Arrow's pool still do may abort (arrow issue 34314).
    return {kind: pq.ParquetFile(pa.BufferReader(part)).read(use_threads=False) for kind, part in parts.items()}


def run(text: tuple[str, ...], config: FeatureConfig, scratch: Path) -> pa.Table:
    """Count, fit and transform a few lines of text as the job does, in this process and without Spark."""
    lines = {"bytes": [line.encode() for line in text], "source": ["-"] * len(text), "start": [0] * len(text)}
    batches = iter([pa.record_batch(lines)])
    counted = files(count(batches, 0, config.to_json(), Layout("text").to_json(), with_tokens=True))
    blocks, dealt = counted["blocks"], counted["dealt"]
    shards = first_terms(iter(dealt.to_batches()), 0, 1, len(text), None)
    files(keep_counts(iter(dealt.to_batches()), 0))
    terms = join_counts([unpack_counts(shard["terms"][0]) for shard in shards])
    model = FeatureModel.of_counts(config, terms, len(text), 0)
    model.table.save(scratch / "vocabulary.table")
    repeats = pa.nulls(blocks.num_rows, pa.list_(pa.struct([("record", pa.binary()), ("earlier", pa.int64())])))
    with_repeats = blocks.append_column("repeats", repeats).to_batches()
    settings = (config.to_json(), str(scratch / "vocabulary.table"), model.mean_length, model.unseen_idf, SCHEMA)
    return files(write_features(iter(with_repeats), 0, *settings))["features"]


def run_boosted(features: pa.Table, outputs: Outputs, scratch: Path) -> None:
    """Train on the features of a few lines as a rank does, on rows that are mapped into memory."""
    number = np.arange(len(features)) % outputs.classes
    label = pa.array([[str(each)] if outputs.kind == "labels" else str(each) for each in number])
    content = pa.array([bytes(16)] * len(features), pa.binary())
    columns = {"id": features["id"], "label": label, "content": content, "part": pa.array(0 * number, pa.int32())}
    table = pa.table({**columns, "indices": features["indices"], "values": features["values"]}).combine_chunks()
    width = 1 + max(index.as_py() for index in pc.list_flatten(table["indices"]))
    classes = [str(each) for each in range(outputs.classes)]
    given = {"classes": classes, "many": outputs.kind == "labels", "width": width, "keys": [0], "weights": None}
    cells = pack_rows(iter(table.to_batches()), 0, json.dumps(given))
    rows = rank_rows(spill(cells, scratch / f"{outputs.kind}.arrow"), 0, outputs, width)
    cuts = cut_values(merge_summaries([summarise(rows, width, 8)], 8), 8)
    train(BoostedConfig(rounds=1), outputs, rows, cuts)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for config in CONFIGS:
            features = run(TEXT, config, Path(folder))
            compile_kernels(config.text)
        for outputs in OUTPUTS:
            run_boosted(features, outputs, Path(folder))
    hive.transform(io.BytesIO(b"41\t4142\n"), io.BytesIO(), hive.parser().parse_args(["tokens"]))
