"""Text to features: spark-submit jobs/featurize.py --input corpus/ --output features/ --model model/ [--help]"""

from __future__ import annotations

import os
import signal
import sys


def interrupted(*_: object) -> None:
    """Ctrl-C while the imports run, which takes seconds: a line in place of a traceback."""
    os.write(2, b"error: interrupted; the old output is as it was\n")
    os._exit(130)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupted)

import tempfile
from contextlib import nullcontext
from pathlib import Path

if (Path(__file__).resolve().parents[1] / "udfs").is_dir():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.corpus import Corpus, find_input, open_corpus, reading
from jobs.options import check_options, feature_config, parser
from jobs.outputs import Target, file_system, move_parquet, read_parquet, refuse_overlap
from jobs.progress import progress
from jobs.schemas import check, features_schema
from jobs.session import Mistake, TooManyRejects, exit_code, no_task_left, spark_session, stop_spark
from jobs.stages import count, fit, load_model, refuse_repeated_ids, reject_reasons, transform
from jobs.summary import summary
from jobs.workers import HASH_PARTS
from models.features import FeatureModel
from udfs.records import REJECTS


def main(arguments: list[str]) -> None:
    """Run the job; its summary goes to stdout, everything else to stderr or the log."""
    options = parser().parse_args(arguments)
    check_options(options)
    config = feature_config(options)
    output = Target(options.output, "--output", options.overwrite)
    model_target = Target(options.model, "--model", options.overwrite) if options.model else None
    found = find_input(options.input, options.format, options.salvage)
    applied = file_system(options.apply, "--apply") if options.apply else None
    own = {"--output": output.path, "--model": model_target.path if model_target else None}
    refuse_overlap({"--input": found.fs.root, "--apply": applied.root if applied else None, **own})
    model = load_model(applied) if applied else None
    config = model.config if model else config
    spark = spark_session("textmill featurize")
    corpus = open_corpus(spark, found, options.text, options.id, options.label, options.max_document_bytes)

    model_staged = model_target.staged() if model_target else nullcontext("")
    with output.staged() as stage, model_staged as model_stage, no_task_left(spark):
        with progress(spark, "count"), reading():
            counted = count(spark, stage, config, corpus)
        if counted["rejects"] > options.max_rejects * counted["records"] * (1 + 1e-9):  # 29% of 100 are 29
            raise TooManyRejects(too_many(counted, options.max_rejects, corpus, reject_reasons(spark, stage)))
        if not counted["documents"]:
            raise Mistake(
                f"--input {corpus.path} holds no documents: {counted['records']} records, {counted['blanks']} blank, "
                f"{counted['rejects']} rejected"
            )
        if model is None:
            with progress(spark, "fit", counted["documents"]):
                model = fit(spark, stage, config, counted)
        with progress(spark, "transform", counted["documents"]):
            written = transform(spark, stage, model, corpus)

        features = f"{stage}/output"
        move_parquet(output.fs, f"{stage}/features/kind=features", features)
        if not move_parquet(output.fs, f"{stage}/count/kind=rejects", f"{features}/_rejects"):
            output.fs.write_parquet(f"{features}/_rejects/part-empty.parquet", REJECTS.empty_table())
        rows = read_parquet(spark, features)
        check(rows, features_schema(corpus.id_type, corpus.label, corpus.carried))
        if options.check_ids:
            refuse_repeated_ids(rows, corpus)
        if not rows.count() == written["documents"] == counted["documents"]:
            raise RuntimeError(f"{rows.count()} rows were written, {counted['documents']} documents were read")
        manifest = manifest_of(model, counted, written)
        output.fs.write_json(f"{features}/_manifest.json", manifest)
        if model_target:
            with tempfile.TemporaryDirectory() as scratch:
                model.save(Path(scratch) / "model")
                model_target.fs.upload(Path(scratch) / "model", f"{model_stage}/model")
                model_target.swap(f"{model_stage}/model")
        output.swap(features)
    print(summary(spark, output.path, options, model, manifest))


def too_many(counted: dict[str, int], limit: float, corpus: Corpus, reasons: str) -> str:
    """The line that says how many records were rejected, and why."""
    rejects, records = counted["rejects"], counted["records"]
    return (
        f"{rejects} of {records} records ({100 * rejects / records:.2f}%) of {corpus.path} were rejected, more than "
        f"--max-rejects {100 * limit:g}% allows: mend the input or raise the limit ({reasons})"
    )


def manifest_of(model: FeatureModel, counted: dict[str, int], written: dict[str, int]) -> dict[str, int | str]:
    """What _manifest.json says: counts of committed rows, the model's id, and the content hash of the rows."""
    names = ("records", "documents", "rejects", "blanks", "repaired", "tokens")
    content = sum(written[name] << 32 * part for part, name in enumerate(HASH_PARTS)) % (1 << 128)
    return {
        **{name: counted[name] for name in names},
        "terms": len(model.terms),
        "entries": written["entries"],
        "empty": written["empty"],
        "model_id": model.id,
        "content_hash": f"{content:032x}",
    }


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = exit_code(main, sys.argv[1:])
    stop_spark()
    sys.exit(code)
