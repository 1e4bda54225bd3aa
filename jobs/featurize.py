"""Text to features: spark-submit jobs/featurize.py --input corpus/ --output features/ --model model/ [--help]"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

if (Path(__file__).resolve().parents[1] / "udfs").is_dir():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.logs import OPTION, error_line


def interrupted(*_: object) -> None:
    """Ctrl-C while the imports run, which takes seconds: a line in place of a traceback."""
    os.write(2, error_line("interrupted; the old output is as it was", 130, OPTION in sys.argv).encode() + b"\n")
    os._exit(130)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupted)

from jobs.catalog import TableTarget, open_output
from jobs.corpus import Corpus, find_input, open_corpus, reading
from jobs.options import asked_split, check_options, feature_config, parser, refuse_character_tokens
from jobs.outputs import Target, file_system, refuse_overlap, run_key
from jobs.partitions import (
    partition_column,
    refuse_other_columns,
    refuse_other_output,
    refuse_other_split,
    refuse_other_values,
    replace_partitions,
)
from jobs.progress import progress
from jobs.session import Mistake, TooManyRejects, exit_code, no_task_left, spark_session, stop_spark, uninterrupted
from jobs.stages import (
    count,
    divide,
    fit,
    keep_tokens,
    load_model,
    refuse_repeated_ids,
    reject_reasons,
    tell_finished,
    transform,
)
from jobs.summary import summary


def main(arguments: list[str]) -> None:
    """Run the job; its summary goes to stdout, everything else to stderr or the log."""
    options = parser().parse_args(arguments)
    check_options(options)
    config = feature_config(options)
    output = open_output(options)
    model_target = Target(options.model, "--model", options.overwrite) if options.model else None
    tokens_target = Target(options.tokens, "--tokens", options.overwrite) if options.tokens else None
    found = find_input(options.input, options.format, options.glob, options.where, options.salvage)
    applied = file_system(options.apply, "--apply") if options.apply else None
    own = {"--output": output.path, "--model": model_target.path if model_target else None}
    own["--tokens"] = tokens_target.path if tokens_target else None
    refuse_overlap({"--apply": applied.root if applied else None, **own}, found.folders)
    model = load_model(applied) if applied else None
    config = model.config if model else config
    refuse_character_tokens(options, config)
    adds = refuse_other_output(output, options, model)
    split = asked_split(options, model)
    if adds and not (split and split.by == "time" and not split.cutoffs):
        refuse_other_split(output, split)
    key = run_key(vars(options), config.to_json(), model.id if model else "", found.listing) if found.listing else ""
    spark = spark_session("textmill featurize")
    corpus = open_corpus(spark, found, options.text, options.id, options.label, options.max_document_bytes, split)
    refuse_overlap(own, corpus.folders)
    column = partition_column(corpus, options.partition_by) if options.partition_by else None
    if column and adds:
        refuse_other_columns(spark, output, corpus, column)
    if isinstance(output, TableTarget):
        output.expect(corpus, column, options, model)

    model_staged = model_target.staged(key) if model_target else nullcontext("")
    tokens_staged = tokens_target.staged(key) if tokens_target else nullcontext("")
    with model_staged, tokens_staged, output.staged(key) as stage, no_task_left(spark):
        tell_finished(output, model_target, tokens_target)
        with progress(spark, "count") as done, reading(corpus.path, options.where):
            counted = count(spark, output, config, corpus, options)
            done["documents"] = counted["documents"]
        if counted["rejects"] > options.max_rejects * counted["records"] * (1 + 1e-9):  # 29% of 100 are 29
            raise TooManyRejects(too_many(counted, options.max_rejects, corpus, reject_reasons(spark, stage)))
        if not counted["documents"]:
            raise Mistake(
                f"--input {corpus.path} holds no documents: {counted['records']} records, {counted['blanks']} blank, "
                f"{counted['rejects']} rejected"
            )
        split, parts, fitted = corpus.split, None, counted
        if split:
            with progress(spark, "split", counted["documents"]), reading(corpus.path, options.where):
                split, parts = divide(spark, output, corpus, split, options)
            fitted = training(parts)
            if adds:
                refuse_other_split(output, split)
        if model_target:
            if not fitted["documents"]:
                raise Mistake(f"--split {options.split} leaves no document to the training part: give it a larger one")
            with progress(spark, "fit", fitted["documents"]):
                model = fit(spark, output, model_target, config, fitted, options.keep_counts, split)
        assert model is not None  # --model or --apply
        if tokens_target:
            with progress(spark, "tokens", counted["documents"]), reading(corpus.path, options.where):
                keep_tokens(spark, output, tokens_target, corpus)
        with progress(spark, "transform", counted["documents"]), reading(corpus.path, options.where):
            manifest = transform(spark, output, model, corpus, counted, column, options, split, parts)
        if options.check_ids:
            refuse_repeated_ids(spark, output, corpus)
        if column and adds:
            refuse_other_values(spark, output, f"{stage}/output", column)
        with uninterrupted():
            if model_target:
                model_target.swap(f"{model_target.stage}/model")
            if tokens_target:
                tokens_target.swap(f"{tokens_target.stage}/tokens")
            if adds:
                replace_partitions(output, f"{stage}/output", manifest)
            else:
                output.swap(f"{stage}/output")
    print(json.dumps(manifest) if options.log_json else summary(spark, output.rows, options, model, manifest))


def training(parts: dict[str, int]) -> dict[str, int]:
    """What a model is fitted on, of a split: documents, tokens and dealt terms."""
    return {"documents": parts["train_documents"], "tokens": parts["train_tokens"], "dealt_terms": parts["dealt_terms"]}


def too_many(counted: dict[str, int], limit: float, corpus: Corpus, reasons: str) -> str:
    """The line that says how many records were rejected, and why."""
    rejects, records = counted["rejects"], counted["records"]
    return (
        f"{rejects} of {records} records ({100 * rejects / records:.2f}%) of {corpus.path} were rejected, more than "
        f"--max-rejects {100 * limit:g}% allows: mend the input or raise the limit ({reasons})"
    )


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = exit_code(main, sys.argv[1:])
    stop_spark()
    sys.exit(code)
