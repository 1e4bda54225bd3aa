"""Features to a classifier: spark-submit jobs/train.py --features features/ --output classifier/ [--help]"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

if (Path(__file__).resolve().parents[1] / "udfs").is_dir():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.corpus import reading
from jobs.options import Parser, converts, refuse_empty
from jobs.outputs import Target, refuse_overlap, run_key
from jobs.progress import progress
from jobs.session import Mistake, exit_code, no_task_left, spark_session, stop_spark, uninterrupted
from jobs.summary import trained
from jobs.training import (
    OPTION,
    Plan,
    Training,
    balanced,
    evaluate,
    find_classes,
    open_features,
    open_rows,
    outputs_of,
    train,
    upload,
)
from models.linear import SOLVERS, LinearConfig

OF_BOOSTED = (
    "rounds", "depth", "eta", "max_bin", "subsample", "colsample", "l2", "min_child_weight", "early_stopping",
    "checkpoint_every",
)  # fmt: skip
OF_LINEAR = ("solver", "C", "max_iter")


def memory(text: str) -> int:
    """A number of bytes, with KB, MB, GB or TB (1024) if wanted."""
    match = re.fullmatch(r"(\d+)([KMGT]B)?", text)
    if not match or not int(match[1]):
        raise ValueError
    return int(match[1]) << {None: 0, "KB": 10, "MB": 20, "GB": 30, "TB": 40}[match[2]]


def workers(text: str) -> int:
    """A number of at least 1."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def port(text: str) -> int:
    """A port's number."""
    if not 1 <= int(text) <= 65535:
        raise ValueError
    return int(text)


MEMORY = converts(memory, "a size such as 512MB or 4GB")
WORKERS = converts(workers, "a number of at least 1")
PORT = converts(port, "a port from 1 to 65535")


def parser() -> argparse.ArgumentParser:
    """All options. Those of a kind default to None, so that the other kind can refuse them."""
    p = Parser("train.py", description="A classifier of features that featurize --split wrote.", allow_abbrev=False)
    p.add_argument(
        "--features",
        required=True,
        nargs="+",
        action="extend",
        metavar="[NAME=]DIR",
        help="what featurize --split wrote; several sets of the same documents are joined by id",
    )
    p.add_argument("--output", required=True, metavar="DIR", help="where the classifier goes")
    p.add_argument("--overwrite", action="store_true", help="replace --output if it exists")
    p.add_argument("--kind", choices=("linear", "boosted"), default="linear", help="default: linear")
    p.add_argument("--label", metavar="COLUMN", help="the column with the label or labels (default: label or labels)")
    p.add_argument("--weights", metavar="COLUMN", help="a column with the weight of each document")
    p.add_argument(
        "--class-weight",
        choices=("balanced", "none"),
        default="none",
        help="balanced: all classes weigh the same (default: none)",
    )
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of random choices (default: 0)")
    p.add_argument(
        "--workers", type=WORKERS, default=1, metavar="N", help="tasks that train together; the model is the same"
    )
    p.add_argument(
        "--memory", type=MEMORY, default=1 << 30, metavar="SIZE", help="of boosted's rows; above it on disk (1GB)"
    )
    p.add_argument("--port", type=PORT, default=0, metavar="N", help="where the driver listens for workers")
    p.add_argument("--log-json", action="store_true", help="log lines and the metrics as JSON objects, one a line")
    b = p.add_argument_group("boosted trees (--kind boosted)")
    b.add_argument("--rounds", type=int, metavar="N", help="most rounds (default: 150)")
    b.add_argument("--depth", type=int, metavar="N", help="of a tree (default: 3)")
    b.add_argument("--eta", type=float, metavar="ETA", help="learning rate (default: 0.5)")
    b.add_argument("--max-bin", type=int, metavar="N", help="bins of a feature's values (default: 8)")
    b.add_argument("--subsample", type=float, metavar="SHARE", help="of documents, drawn for a round (default: 1)")
    b.add_argument("--colsample", type=float, metavar="SHARE", help="of features, drawn for a tree (default: 1)")
    b.add_argument("--l2", type=float, metavar="L2", help="regularisation of leaves (default: 1)")
    b.add_argument("--min-child-weight", type=float, metavar="W", help="least sum of hessians of a leaf (default: 1)")
    b.add_argument(
        "--early-stopping",
        type=int,
        metavar="N",
        help="stop after N rounds without a better validation (default: 0, never)",
    )
    b.add_argument("--checkpoint-every", type=int, metavar="N", help="rounds (default: 50)")
    n = p.add_argument_group("linear classifiers (--kind linear)")
    n.add_argument("--solver", choices=SOLVERS, help="of scikit-learn (default: svc)")
    n.add_argument("--c", dest="C", type=float, metavar="C", help="the inverse of the penalty (default: 1)")
    n.add_argument("--max-iter", type=int, metavar="N", help="most iterations (default: 1000)")
    return p


def training_config(options: argparse.Namespace) -> Any:
    """The configuration that the options ask for; raises Mistake for a bad value or an option of the other kind."""
    own, other = (OF_LINEAR, OF_BOOSTED) if options.kind == "linear" else (OF_BOOSTED, OF_LINEAR)
    foreign = [name for name in other if getattr(options, name) is not None]
    if foreign:
        names = ", ".join("--" + name.replace("_", "-").lower() for name in foreign)
        raise Mistake(f"{names} is not for --kind {options.kind}: leave it out, or choose the other kind")
    given = {name: getattr(options, name) for name in own if getattr(options, name) is not None}
    try:
        if options.kind == "linear":
            if options.workers > 1:
                raise Mistake("--workers is for --kind boosted: a linear classifier is trained by one; leave it out")
            return LinearConfig(**given, seed=options.seed)
        from models.boosted import BoostedConfig

        return BoostedConfig(**given, seed=options.seed)
    except Mistake:
        raise
    except ValueError as error:
        name = str(error).split()[0]
        said = str(error).replace(f"{name} is", "--" + name.replace("_", "-").lower(), 1)
        raise Mistake(said) from None


def main(arguments: list[str]) -> None:
    """Run the job; its summary goes to stdout, everything else to stderr or the log."""
    options = parser().parse_args(arguments)
    refuse_empty(options)
    config = training_config(options)
    output = Target(options.output, "--output", options.overwrite)
    features = open_features(options.features)
    refuse_overlap({**{f"{OPTION} {each.name}": each.fs.root for each in features}, "--output": output.path})
    of_run = {name: value for name, value in vars(options).items() if name not in ("workers", "memory", "port")}
    key = run_key(of_run, *(json.dumps(each.manifest) for each in features))
    spark = spark_session("textmill train")
    given = ", ".join(each.path for each in features)
    with output.staged(key), no_task_left(spark), reading(given, option=OPTION):
        with progress(spark, "read"):
            labelled = open_rows(spark, output, features, options.label, options.weights)
            classes = find_classes(labelled, options.kind)
        if options.class_weight == "balanced" and labelled.many:
            raise Mistake("--class-weight balanced is for documents of one class each: leave it out")
        weights = balanced(classes) if options.class_weight == "balanced" else None
        plan = Plan(
            config, outputs_of(classes, labelled.many), classes, weights, options.workers, options.memory, options.port
        )
        training = Training(output, plan)
        with progress(spark, "train", classes.of_parts["train"], training.line):
            classifier = train(spark, output, labelled, plan, training)
        with progress(spark, "evaluate", classes.of_parts["test"]):
            metrics = evaluate(spark, classifier, labelled)
        with output.step("classifier") as folder:
            upload(output.fs, classifier, folder, metrics)
        with uninterrupted():
            output.swap(f"{output.stage}/classifier")
    print(json.dumps(metrics) if options.log_json else trained(options, classifier, metrics))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = exit_code(main, sys.argv[1:])
    stop_spark()
    sys.exit(code)
