"""The main job against Spark ML and scikit-learn, by marginal cost: make bench-featurize [ARGS="--runs 3"].

Each contestant runs in a process tree of its own on two sizes of the same corpus; what the larger costs more, over what
it holds more, is its cost per MB: starting Spark, compiling and loading do not count.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
TERMS = 262_144
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), ("label", pa.string())])
CORPORA = ("spam-assassin", "linux")
PR_SET_CHILD_SUBREAPER = 36
MUST = {"sklearn preset / Spark ML": 5.5, "sklearn preset / scikit-learn": 4.0, "default / sklearn preset": 0.6}
GOAL = {"sklearn preset / Spark ML": 8.0, "sklearn preset / scikit-learn": 5.0, "default / sklearn preset": 0.8}


@dataclass(frozen=True)
class Cost:
    """What one run took: CPU seconds of the whole process tree, wall seconds, peak proportional set size in MB."""

    cpu: float
    wall: float
    memory: float


def documents(data: Path) -> Iterator[dict[str, str]]:
    """E-mails and kernel sources mixed: each corpus in order, dealt out by their share of the bytes."""
    files = [data / f"{name}.jsonl" for name in CORPORA]
    sizes = [file.stat().st_size for file in files]
    streams = [open(file, encoding="utf-8") for file in files]  # noqa: SIM115 (closed with the process)
    read = [0] * len(files)
    while streams:
        at = min(range(len(streams)), key=lambda i: read[i] / sizes[i])
        line = streams[at].readline()
        if not line:
            del streams[at], sizes[at], read[at]
            continue
        read[at] += len(line.encode())
        record = json.loads(line)
        yield {name: record.get(name) or "" for name in SCHEMA.names}


def corpus(data: Path, name: str, share: float, parts: int = 10) -> tuple[Path, int, int]:
    """A Parquet corpus of a content-chosen share of all documents; returns its folder, documents and bytes of text."""
    folder = data / "bench" / name
    note = folder / "_size.json"
    if not note.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        chosen: list[list[dict[str, str]]] = [[] for _ in range(parts)]
        count = size = 0
        for document in documents(data):
            mark = int.from_bytes(hashlib.blake2b(document["id"].encode(), digest_size=8).digest(), "big")
            if mark / 2**64 < share:
                chosen[mark % parts].append(document)
                count, size = count + 1, size + len(document["text"].encode())
        for number, rows in enumerate(chosen):
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
            pq.write_table(table, folder / f"part-{number}.parquet", compression="snappy", row_group_size=4096)
        note.write_text(json.dumps([count, size]))
    count, size = json.loads(note.read_text())
    return folder, count, size


def measure(command: list[str], scratch: Path) -> Cost:
    """Run a command to its end and account for its whole tree, workers that left it included.

    This process, forked for the purpose, is the tree's reaper, so that the kernel adds every process's time to it.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        started, peak, stop = time.monotonic(), [0.0], threading.Event()
        watcher = threading.Thread(target=_watch, args=(os.getpid(), peak, stop))
        watcher.start()
        with open(scratch / "log", "w") as log:
            code = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=scratch).wait()
        wall = time.monotonic() - started
        stop.set()
        watcher.join()
        deadline = time.monotonic() + 30
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                if time.monotonic() > deadline:
                    for left in _tree(os.getpid())[1:]:
                        os.kill(left, signal.SIGKILL)
                time.sleep(0.05)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(write, json.dumps([code, used.ru_utime + used.ru_stime, wall, peak[0]]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as result:
        code, cpu, wall, memory = json.loads(result.read())
    os.waitpid(child, 0)
    if code:
        raise SystemExit(f"{' '.join(command[:4])} … failed:\n" + (scratch / "log").read_text()[-3000:])
    return Cost(cpu, wall, memory)


def _tree(root: int) -> list[int]:
    """A process and its descendants, by /proc."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents[int(entry)] = int(stat.rsplit(")", 1)[1].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _watch(root: int, peak: list[float], stop: threading.Event) -> None:
    while not stop.wait(1.0):
        total = 0
        for pid in _tree(root)[1:]:
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        peak[0] = max(peak[0], total / 1024)


def command(name: str, source: Path, scratch: Path) -> list[str]:
    """The command line of a contestant on a corpus."""
    out = str(scratch / "out")
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", "--driver-memory", "6g"]
    submit += ["--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR"]
    job = [*submit, str(ROOT / "jobs/featurize.py"), "--input", str(source), "--output", out]
    job += ["--model", str(scratch / "model"), "--overwrite", "--max-features", str(TERMS)]
    here = str(Path(__file__))
    return {
        "textmill, sklearn preset": [*job, "--preset", "sklearn"],
        "textmill, default": job,
        "Spark ML": [*submit, here, "spark-ml", str(source), out, "uncached"],
        "Spark ML, tokens cached": [*submit, here, "spark-ml", str(source), out, "cached"],
        "scikit-learn, one core": [sys.executable, here, "scikit-learn", str(source), out],
    }[name]


CONTESTANTS = (
    "textmill, sklearn preset", "textmill, default", "Spark ML", "Spark ML, tokens cached", "scikit-learn, one core",
)  # fmt: skip


def spark_ml(source: str, out: str, caching: str) -> None:
    """RegexTokenizer with scikit-learn's tokens, CountVectorizer and IDF; id, label and features to Parquet."""
    from pyspark import StorageLevel
    from pyspark.ml.feature import IDF, CountVectorizer, RegexTokenizer
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("spark-ml").getOrCreate()
    text = spark.read.parquet(source)
    cut = RegexTokenizer(inputCol="text", outputCol="tokens", pattern=r"(?U)\w\w+", gaps=False, toLowercase=True)
    tokens = cut.transform(text).select("id", "label", "tokens")
    if caching == "cached":
        tokens = tokens.persist(StorageLevel.MEMORY_AND_DISK)
    counts = CountVectorizer(inputCol="tokens", outputCol="counts", vocabSize=TERMS).fit(tokens).transform(tokens)
    weighed = IDF(inputCol="counts", outputCol="features").fit(counts).transform(counts)
    weighed.select("id", "label", "features").write.mode("overwrite").parquet(out)
    spark.stop()


def scikit_learn(source: str, out: str) -> None:
    """TfidfVectorizer on one core; ids, labels and rows as lists to Parquet."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    table = pq.read_table(source, use_threads=False)
    matrix = TfidfVectorizer(max_features=TERMS).fit_transform(table["text"].to_pylist())
    matrix.sort_indices()
    offsets = pa.array(matrix.indptr.astype("int32"))
    lists = {
        "indices": pa.ListArray.from_arrays(offsets, pa.array(matrix.indices.astype("int32"))),
        "values": pa.ListArray.from_arrays(offsets, pa.array(matrix.data.astype("float32"))),
    }
    pq.write_table(pa.table({"id": table["id"], "label": table["label"], **lists}), out)


def main() -> None:
    """Fetch and lay out the corpora, run every contestant, print the table and write the page."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--data", type=Path, default=ROOT / "data")
    p.add_argument("--sizes", type=float, nargs=2, default=(0.25, 1.0), help="shares of the corpus")
    p.add_argument("--page", type=Path, default=ROOT / f"benchmarks/featurize-{date.today()}.md")
    options = p.parse_args()
    if not all((options.data / f"{name}.jsonl").is_file() for name in CORPORA):
        subprocess.run(
            [sys.executable, str(ROOT / "benchmarks/fetch_data.py"), "--only", *CORPORA], cwd=ROOT, check=True
        )
    sizes = [corpus(options.data, f"share-{share:g}", share) for share in options.sizes]
    costs: dict[str, list[list[Cost]]] = {name: [[], []] for name in CONTESTANTS}
    loads = []
    for run in range(options.runs):
        for name in CONTESTANTS:
            for which, (source, _, _) in enumerate(sizes):
                loads.append(os.getloadavg()[0])
                with tempfile.TemporaryDirectory(dir=options.data / "bench") as scratch:
                    cost = measure(command(name, source, Path(scratch)), Path(scratch))
                costs[name][which].append(cost)
                print(
                    f"run {run + 1}  {name:26} {source.name:10} {cost.cpu:8.1f} CPU-s {cost.wall:8.1f} s "
                    f"{cost.memory:8.0f} MB",
                    flush=True,
                )
    page = report(sizes, costs, loads)
    print(page)
    options.page.write_text(page, "utf-8")


def report(sizes: list[tuple[Path, int, int]], costs: dict[str, list[list[Cost]]], loads: list[float]) -> str:
    """The dated page: machine, method, table, ratios against the targets."""
    (_, _, small), (_, many, large) = sizes
    rate, rows = {}, []
    for name, (at_small, at_large) in costs.items():
        marginal = [b.cpu - a.cpu for a, b in zip(at_small, at_large, strict=True)]
        rate[name] = (large - small) / 1e6 / statistics.median(marginal)
        wall = statistics.median(cost.wall for cost in at_large)
        memory = statistics.median(cost.memory for cost in at_large)
        spread = " ".join(f"{(large - small) / 1e6 / m:.1f}" for m in sorted(marginal))
        cpu = statistics.median(cost.cpu for cost in at_large)
        rows.append(f"| {name} | {rate[name]:.1f} ({spread}) | {cpu:.0f} | {many / wall:,.0f} | {memory:,.0f} |")
    ours = rate["textmill, sklearn preset"]
    ratios = {
        "sklearn preset / Spark ML": ours / max(rate["Spark ML"], rate["Spark ML, tokens cached"]),
        "sklearn preset / scikit-learn": ours / rate["scikit-learn, one core"],
        "default / sklearn preset": rate["textmill, default"] / ours,
    }
    cpu_info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in cpu_info if line.startswith("model name")), platform.machine())
    versions = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numba", "scikit-learn"))
    return "\n".join([
        f"# featurize against its peers, {date.today()}",
        "",
        f"{model}, {os.cpu_count()} cores, {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, {versions}. Load average before the runs: "
        f"{min(loads):.1f} to {max(loads):.1f}.",
        "",
        f"Spam-assassin e-mails and Linux 6.1 sources mixed, {small / 1e6:,.0f} and {large / 1e6:,.0f} MB of text "
        f"({many:,} documents), Parquet in and out, local[2], vocabulary of {TERMS:,}. MB per CPU-second is marginal, "
        "the difference in text over the difference in CPU time of the whole process tree (user and system), so that "
        f"start-up does not count; the median of {len(loads) // (2 * len(costs))} runs, all runs in brackets. "
        "Documents a second are by wall time at the larger size, start-up included. Memory is the peak of the "
        "proportional set sizes of all processes, sampled each second. Rerun: `make bench-featurize`.",
        "",
        "| | MB per CPU-second | CPU-s, larger size | documents/s | memory, MB |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "| ratio of MB per CPU-second | measured | must | goal |",
        "|---|---|---|---|",
        *(f"| {name} | {value:.2f} | {MUST[name]:g} | {GOAL[name]:g} |" for name, value in ratios.items()),
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["spark-ml"]:
        spark_ml(*sys.argv[2:])
    elif sys.argv[1:2] == ["scikit-learn"]:
        scikit_learn(*sys.argv[2:])
    else:
        main()
