"""train.py against XGBoost alone, XGBoost on Spark and scikit-learn: make bench-train [ARGS="--runs 3"].

Speed: one binary task, the same features, bins, depth, rounds and threads for all; what Spark costs to start is taken
off. Quality: macro F1 of linear and boosted classifiers on the fixed splits of public corpora.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix

from benchmarks.featurize import HERE, ROOT, machine, versions

SETTINGS = {
    "depth 6, 64 bins, 50 rounds": {"depth": 6, "max_bin": 64, "rounds": 50, "eta": 0.3},
    "depth 3, 8 bins, 150 rounds": {"depth": 3, "max_bin": 8, "rounds": 150, "eta": 0.5},
}
NATIVE, ONE, TWO = "native XGBoost, one process", "train.py, 1 worker", "train.py, 2 workers"
PEER, PEER_SPARSE, START = "SparkXGBClassifier, default", "SparkXGBClassifier, sparse", "Spark's start"
CONTESTANTS = (START, NATIVE, ONE, TWO, PEER_SPARSE, PEER)
CORPORA = ("spam-assassin", "20news", "r52", "thucnews")
FEATURES = ("--ngrams", "1,2", "--min-df", "2")
SEEDS = (0, 1, 2)


class Run(NamedTuple):
    """CPU and wall seconds of the whole process tree, the largest Python process (bytes), log-loss on the test part."""

    cpu: float
    wall: float
    memory: int
    loss: float


def submit(scratch: Path, *options: str) -> list[str]:
    """spark-submit on two cores."""
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", "--driver-memory", "4g"]
    conf = [f"spark.local.dir={scratch / 'spark'}", "spark.ui.enabled=false", "spark.log.level=ERROR", *options]
    return command + [part for setting in conf for part in ("--conf", setting)]


def documents(name: str, data: Path) -> pa.Table:
    """id, text, label and split of a corpus, as its page has it."""
    with (data / f"{name}.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    if name == "spam-assassin":  # easy-ham-1 and spam-1 are for training
        parts = ["train" if row["group"] in ("easy-ham-1", "spam-1") else "test" for row in rows]
    elif name == "thucnews":  # 80 to 20, by a fixed shuffle
        order = list(range(len(rows)))
        random.Random(0).shuffle(order)
        chosen = {*order[: len(rows) * 8 // 10]}
        parts = ["train" if number in chosen else "test" for number in range(len(rows))]
    else:
        parts = [row["id"].split("-")[0] for row in rows]
    columns = {key: [row[key] for row in rows] for key in ("id", "text", "label")}
    return pa.table({**columns, "split": parts})


def featurized(table: pa.Table, place: Path, *options: str) -> Path:
    """Features of documents, with their split."""
    place.mkdir(parents=True)
    pq.write_table(table, place / "in.parquet")
    job = ["--input", str(place / "in.parquet"), "--output", str(place / "features"), "--model", str(place / "model")]
    call([*submit(place), str(ROOT / "jobs/featurize.py"), *job, "--split", "column:split", *options], place / "log")
    return place / "features"


def call(command: list[str], log: Path) -> None:
    """Run a command; SystemExit with the end of what it said if it fails."""
    with log.open("a") as lines:
        if subprocess.run(command, stdout=lines, stderr=subprocess.STDOUT, cwd=ROOT).returncode:
            raise SystemExit(f"{' '.join(command)[:300]} failed:\n{log.read_text()[-3000:]}")


def matrix(rows: pa.Table, width: int) -> csr_matrix:
    """The rows' features."""
    indices, values = rows["indices"].combine_chunks(), rows["values"].combine_chunks()
    offsets = np.concatenate([[0], np.cumsum(indices.value_lengths().to_numpy())])
    return csr_matrix((values.flatten().to_numpy(), indices.flatten().to_numpy(), offsets), shape=(len(rows), width))


def part(features: Path, name: str) -> pa.Table:
    rows = ds.dataset(sorted(features.glob("*.parquet")), format="parquet")
    return rows.to_table(["label", "indices", "values"], filter=ds.field("split") == name)


# -- speed ------------------------------------------------------------------------------------------------------------


def run(name: str, given: dict[str, Any], test: tuple[csr_matrix, np.ndarray], workplace: Path) -> Run:
    """One contestant."""
    import xgboost
    from sklearn.metrics import log_loss

    with tempfile.TemporaryDirectory(dir=workplace) as folder:
        scratch = Path(folder)
        out = scratch / "out.ubj"
        told = json.dumps({**given, "out": str(out), "sparse": name == PEER_SPARSE})
        peers = str(HERE / "train_peers.py")
        ours = [str(ROOT / "jobs/train.py"), "--features", given["features"], "--output", str(scratch / "classifier")]
        ours += ["--kind", "boosted", "--workers", "2" if name == TWO else "1", "--memory", "64GB"]
        ours += [f"--{key.replace('_', '-')}={given[key]}" for key in ("depth", "max_bin", "rounds", "eta")]
        command = {
            NATIVE: [sys.executable, peers, "native", told],
            START: [*submit(scratch), peers, "start", told],
            ONE: [*submit(scratch), *ours],
            TWO: [*submit(scratch), *ours],
        }.get(name, [*submit(scratch, "spark.task.cpus=2"), peers, "spark-xgb", told])
        call([sys.executable, str(HERE / "process_cost.py"), str(scratch / "cost.json"), *command], scratch / "log")
        cost = json.loads((scratch / "cost.json").read_text())
        if cost["code"]:
            raise SystemExit(f"{name} failed:\n{(scratch / 'log').read_text()[-3000:]}")
        loss = float("nan")
        if name in (ONE, TWO):
            loss = json.loads((scratch / "classifier/metrics.json").read_text())["log_loss"]
        elif name != START:
            booster = xgboost.Booster(model_file=out)
            loss = log_loss(test[1], booster.predict(xgboost.DMatrix(test[0], missing=0.0)))
        return Run(max(cost["reaped"], cost["sampled"]), cost["wall"], cost["python"], loss)


def speed(options: argparse.Namespace, workplace: Path) -> list[str]:
    """The page's lines about CPU time and memory."""
    table = documents("20news", options.data)
    label = ["yes" if name.startswith("comp.") else "no" for name in table["label"].to_pylist()]
    table = table.set_column(2, "label", pa.array(label))
    features = featurized(table, workplace / "speed", *FEATURES, "--max-features", "14374")
    width = json.loads((features / "_manifest.json").read_text())["width"]
    train, test = part(features, "train"), part(features, "test")
    truth = np.array([name == "yes" for name in test["label"].to_pylist()])
    vectors = workplace / "vectors"
    told = {"features": str(features), "width": width, "vectors": str(vectors)}
    prepare = [str(HERE / "train_peers.py"), "vectors", json.dumps({**told, "out": str(vectors)})]
    call([*submit(workplace), *prepare], workplace / "log")
    entries = matrix(train, width).nnz
    lines = [
        f"20 Newsgroups as given, `comp.*` against the rest, words and pairs of words: {len(train):,} x {width:,}, "
        f"{entries:,} entries to train on; two threads, no validation part. Medians of {options.runs} interleaved "
        "runs, in brackets lowest and highest. CPU time is of the whole process tree, user and system; net is without "
        "what Spark costs to start and to read the ids. Memory is the proportional set size of the largest Python "
        "process.",
        "",
    ]
    for setting, values in SETTINGS.items():
        runs: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
        for number in range(options.runs):
            for name in CONTESTANTS:
                runs[name].append(run(name, {**told, **values}, (matrix(test, width), truth), workplace))
                print(f"{setting}, run {number + 1}: {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
        start = statistics.median(each.cpu for each in runs[START])
        native = statistics.median(each.cpu for each in runs[NATIVE])
        lines += [f"**{setting}**", "", "| | CPU-s | net CPU-s | / native | wall, s | memory, MB | test log-loss |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for name, each in runs.items():
            cpu = [one.cpu for one in each]
            net = statistics.median(cpu) - (0 if name in (START, NATIVE) else start)
            wall, memory = (statistics.median(one[place] for one in each) for place in (1, 2))
            lines.append(
                f"| {name} | {statistics.median(cpu):.1f} ({min(cpu):.1f}–{max(cpu):.1f}) | {net:.1f} "
                f"| {net / native:.2f} | {wall:.1f} | {memory / 1e6:,.0f} | {each[0].loss:.4f} |"
            )
        lines.append("")
    return lines


# -- quality ----------------------------------------------------------------------------------------------------------


def quality(options: argparse.Namespace, workplace: Path) -> list[str]:
    """The page's lines about macro F1."""
    from sklearn.metrics import f1_score
    from sklearn.svm import LinearSVC

    lines = [
        f"Macro F1 on the test part, words and pairs of words in at least two documents, tf-idf; seeds {SEEDS}: lowest "
        "to highest where they differ. LinearSVC is scikit-learn's on the same features, in this process.",
        "",
        "| corpus | train | test | classes | linear | boosted | LinearSVC |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in options.corpora:
        table = documents(name, options.data)
        features = featurized(table, workplace / name, *FEATURES)
        width = json.loads((features / "_manifest.json").read_text())["width"]
        train, test = part(features, "train"), part(features, "test")
        cells = []
        for kind in ("linear", "boosted"):
            found = []
            for seed in SEEDS:
                out = workplace / name / f"{kind}-{seed}"
                job = ["--features", str(features), "--output", str(out), "--kind", kind, "--seed", str(seed)]
                call([*submit(workplace / name), str(ROOT / "jobs/train.py"), *job], workplace / name / "log")
                found.append(json.loads((out / "metrics.json").read_text())["macro_f1"])
            cells.append(shown(found))
        labels, truth = (each["label"].to_pylist() for each in (train, test))
        judged = []
        for seed in SEEDS:
            judge = LinearSVC(random_state=seed).fit(matrix(train, width), labels)
            judged.append(f1_score(truth, judge.predict(matrix(test, width)), average="macro"))
        lines.append(
            f"| {name} | {len(train):,} | {len(test):,} | {len({*labels})} | {' | '.join([*cells, shown(judged)])} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    return [*lines, ""]


def shown(numbers: list[float]) -> str:
    low, high = f"{min(numbers):.4f}", f"{max(numbers):.4f}"
    return low if low == high else f"{low}–{high}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=3, help="how often each contestant runs")
    p.add_argument("--only", choices=("speed", "quality"), help="one of the two parts")
    p.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA), help="of the quality")
    p.add_argument("--data", type=Path, default=ROOT / "data", help="where the corpora are, or are fetched to")
    p.add_argument("--page", type=Path, default=HERE / f"train-{date.today()}.md", help="what to write")
    options = p.parse_args()
    if not all((options.data / f"{name}.jsonl").is_file() for name in CORPORA):
        fetch = [sys.executable, "-m", "benchmarks.fetch_data", str(options.data.resolve()), "--only", *CORPORA]
        subprocess.run(fetch, cwd=ROOT, check=True)
    lines = [f"# train and its peers, {date.today()}", "", f"{machine()}. {versions()}. Load {os.getloadavg()}.", ""]
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "quality":
            lines += ["## Speed", "", *speed(options, Path(folder))]
        if options.only != "speed":
            lines += ["## Quality", "", *quality(options, Path(folder))]
    options.page.write_text("\n".join([*lines, "Rerun: `make bench-train`.", ""]), "utf-8")


if __name__ == "__main__":
    main()
