"""The last words of the jobs: what was read, what came of it, and what to type next."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from scipy.sparse import csr_matrix

from jobs.outputs import read_parquet
from jobs.tables import PREFIX
from models.classifier import Classifier
from models.features import FeatureModel
from udfs.records import plain_path

SAMPLE = 10_000  # documents from which the top terms are
LABELS = 20  # as many, the most frequent ones, are shown


def summary(
    spark: SparkSession, path: str, options: argparse.Namespace, model: FeatureModel, manifest: dict[str, Any]
) -> str:
    """A page of text: counts, vocabulary, top terms (by label if there is one), where the output is, what is next."""
    documents, tokens = int(manifest["documents"]), int(manifest["tokens"])
    aside = [
        f"{manifest[name]:,} {name.removesuffix('s') if manifest[name] == 1 else name}"
        for name in ("rejects", "blanks", "repaired")
        if manifest[name]
    ]
    known = f"{int(manifest['entries']) / documents:,.1f} of them in a document"
    if manifest["empty"]:
        known += f" ({manifest['empty']:,} {'document holds' if manifest['empty'] == 1 else 'documents hold'} none)"
    lines = [
        "",
        f"documents   {documents:,} of {manifest['records']:,} records" + (f" ({', '.join(aside)})" if aside else ""),
        f"tokens      {tokens:,}, {tokens / documents:,.1f} a document",
        f"vocabulary  {manifest['terms']:,} terms, {known}",
    ]
    if "parts" in manifest:
        parts = ", ".join(f"{number:,} {part}" for part, number in manifest["parts"].items() if number)
        lines.append(f"split       {parts}")
    if "hashed_terms" in manifest:
        hashed, indices = int(manifest["hashed_terms"]), int(manifest["hashed_indices"])
        lines += [
            f"hashed      {hashed:,} terms, in {indices:,} of {model.width:,} indices",
            f"collisions  {hashed - indices:,} terms came upon an index that was taken",
        ]
    top = _top_terms(spark, path, model)
    if top:
        width = max(len(label) for label in top)
        limits = [f"of the first {SAMPLE:,} documents"] * (documents > SAMPLE)
        limits += [f"of the {LABELS} most frequent labels"] * (len(top) == LABELS)
        sampled = f" ({', '.join(limits)})" if limits else ""
        lines += [
            "",
            f"top terms{sampled}",
            *(f"  {label:{width}}  {', '.join(terms)}" for label, terms in top.items()),
        ]
    where = options.model or options.apply
    is_table = options.output.startswith(PREFIX)
    folder = plain_path(path) if is_table else options.output
    rows = f"table({options.output.removeprefix(PREFIX)!r})" if is_table else f"read.parquet({options.output!r})"
    lines += ["", f"features    {options.output}", f"model       {where} (id {model.id})"]
    if "hashed_terms" in manifest:
        lines.append(f"report      {folder}/_hash_report")
    if manifest["rejects"] or manifest["repaired"]:
        lines.append(f"set aside   {folder}/_rejects")
    lines += [
        "",
        "next",
        f"  features of new text    {_submit()} --input NEW --output NEW_FEATURES --apply {where}",
        f"  the rows in PySpark     spark.{rows}",
        f"  in Python, no Spark     models.features.FeatureModel.load({where!r}).transform(pyarrow.array(TEXTS))",
    ]
    return "\n".join(lines)


def merged(options: argparse.Namespace, model: FeatureModel) -> str:
    """The last words of merge_models.py."""
    terms = model.counts.terms if model.counts else 0
    without = f"--add {options.output} --subtract MODEL --output {options.output} --overwrite"
    return "\n".join(
        [
            "",
            f"documents   {model.n:,}",
            f"tokens      {model.n_tokens:,}, {model.n_tokens / model.n:,.1f} a document",
            f"vocabulary  {len(model.terms):,} of {terms:,} terms",
            "",
            f"model       {options.output} (id {model.id})",
            "",
            "next",
            f"  features of new text    {_submit('featurize.py')} --input NEW --output OUT --apply {options.output}",
            f"  leave a part out again  {_submit()} {without}",
        ]
    )


def trained(options: argparse.Namespace, classifier: Classifier, metrics: dict[str, Any]) -> str:
    """The last words of train.py."""
    training, classes = classifier.training, classifier.classes
    left_out = [
        f"{training[name]:,} {what}"
        for name, what in (("without_label", "without a label"), ("repeated", "repeated in another part"))
        if training[name]
    ]
    low, high = metrics["ci95"]
    told = "labels" if classifier.outputs.kind == "labels" else "classes"
    lines = [
        "",
        f"classifier  {classifier.kind}, {len(classes):,} {told}, {classifier.model.features:,} features",
        f"documents   {metrics['n_train']:,} train, {metrics['n_validation']:,} validation, {metrics['n_test']:,} test"
        + (f"; left out: {', '.join(left_out)}" if left_out else ""),
        f"accuracy    {metrics['accuracy']:.4f} (95%: {low:.4f} to {high:.4f}) on the test part",
        f"macro F1    {metrics['macro_f1']:.4f}",
        f"log-loss    {metrics['log_loss']:.4f}",
        "",
    ]
    shown = classes[:LABELS]
    width = max(len(name) for name in [told, *shown])
    lines.append(f"  {told:{width}}  precision  recall      F1  documents")
    for name in shown:
        of = metrics["per_class"][name]
        numbers = f"{of['precision']:9.4f}  {of['recall']:6.4f}  {of['f1']:6.4f}  {of['support']:9,}"
        lines.append(f"  {name:{width}}  {numbers}")
    if len(classes) > LABELS:
        lines.append(f"  and {len(classes) - LABELS:,} more in metrics.json")
    return "\n".join([*lines, "", f"classifier  {options.output}"])


def _submit(name: str | None = None) -> str:
    """How to submit the script that runs, or the one of this name beside it."""
    beside = Path(sys.executable).with_name("spark-submit")
    on_path = not beside.exists() or shutil.which("spark-submit") == str(beside)
    submit = "spark-submit" if on_path else os.path.relpath(beside)
    script = Path(sys.argv[0])
    return f"{submit} {os.path.relpath(script.with_name(name) if name else script)}"


def _top_terms(spark: SparkSession, path: str, model: FeatureModel) -> dict[str, list[str]]:
    rows = read_parquet(spark, path).limit(SAMPLE)
    label = next((name for name in ("label", "labels") if name in rows.columns), None)
    found = rows.select("indices", "values", *([label] if label else [])).collect()
    indptr = np.cumsum([0] + [len(row.indices) for row in found])
    indices = np.fromiter((i for row in found for i in row.indices), np.int32, indptr[-1])
    values = np.fromiter((v for row in found for v in row["values"]), np.float32, indptr[-1])
    matrix = csr_matrix((values, indices, indptr), shape=(len(found), model.width))
    if label:
        given = [[row.label] if label == "label" else row.labels or [] for row in found]
        frequent = Counter(name for names in given for name in names if name is not None).most_common(LABELS)
        shown = dict(frequent)
        return model.top_terms(matrix, [[name for name in names if name in shown] for names in given])
    columns, at = np.unique(indices, return_inverse=True)
    total = np.bincount(at, weights=values)
    return {"all": model.names(columns[np.argsort(-total, kind="stable")[:10]])}
