"""Add and subtract models: spark-submit jobs/merge_models.py --add DAY1 DAY2 --subtract DAY0 --output MODEL [--help]"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

if (Path(__file__).resolve().parents[1] / "udfs").is_dir():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.options import Parser
from jobs.outputs import FileSystem, Target, file_system, refuse_overlap
from jobs.session import Mistake, exit_code, mistakes, reason, spark_session, stop_spark
from jobs.stages import load_model
from jobs.summary import merged
from models.features import FeatureModel
from models.kept import KeptCounts, check
from udfs.records import plain_path


def parser() -> argparse.ArgumentParser:
    """All options."""
    p = Parser("merge_models.py", description="The model of several models' documents together.", allow_abbrev=False)
    models = {"nargs": "+", "action": "extend", "default": [], "metavar": "MODEL"}
    p.add_argument("--add", required=True, help="models whose documents it has", **models)  # type: ignore[arg-type]
    p.add_argument("--subtract", help="models whose documents to take out", **models)  # type: ignore[arg-type]
    p.add_argument("--output", required=True, metavar="DIR", help="where the model goes")
    p.add_argument("--overwrite", action="store_true", help="replace --output if it exists, also if it is a MODEL")
    return p


def main(arguments: list[str]) -> None:
    """Run the job; its summary goes to stdout, everything else to stderr or the log."""
    options = parser().parse_args(arguments)
    target = Target(options.output, "--output", options.overwrite)
    given = [("--add", path) for path in options.add] + [("--subtract", path) for path in options.subtract]
    folders = [(option, file_system(path, option)) for option, path in given]
    for option, fs in folders:
        if fs.root.rstrip("/") != target.path:
            refuse_overlap({option: fs.root, "--output": target.path})
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        kept = [kept_counts(fs, option, scratch / str(k)) for k, (option, fs) in enumerate(folders)]
        added, subtracted = kept[: len(options.add)], kept[len(options.add) :]
        with mistakes():
            check(added, subtracted)
        spark_session("textmill merge models")  # also what a cluster waits for
        with target.staged() as stage:
            for k, (option, fs) in enumerate(folders):
                try:
                    fs.download(f"{fs.root}/counts", scratch / str(k))
                except Exception as error:  # of Java, such as of a file whose check sum is wrong
                    place = plain_path(fs.root)
                    raise Mistake(f"{option} {place}: counts/ is damaged ({reason(error)}): copy it again") from None
            with mistakes():
                model = FeatureModel.of_kept(added, subtracted, scratch / "counts")
            model.save(scratch / "model")
            target.fs.upload(scratch / "model", f"{stage}/model")
            target.swap(f"{stage}/model")
    print(merged(options, model))


def kept_counts(fs: FileSystem, option: str, local: Path) -> KeptCounts:
    """The kept counts of a model folder, to be downloaded to `local`; raises Mistake if it has none."""
    counts, path = load_model(fs, option).counts, plain_path(fs.root)
    if counts is None or not fs.is_dir(f"{fs.root}/counts"):
        raise Mistake(f"{option} {path} has no counts of all its terms: fit it again with --keep-counts")
    return replace(counts, source=local, name=path)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = exit_code(main, sys.argv[1:])
    stop_spark()
    sys.exit(code)
