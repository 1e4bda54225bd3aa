"""How memory and CPU time grow with the corpus, the vocabulary, a frequent term and the files: make bench-scaling.

Runs the main job in local-cluster mode, where driver and executors are processes of their own, and writes a dated page.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.featurize import HERE, ROOT, fetched, machine, versions
from benchmarks.mixed_corpus import sample
from benchmarks.process_cost import Process, descendants, proportional_set_size

SHARES = (0.125, 0.5, 1.0)  # of the mixed corpus
NEW_TERMS = 20_000_000
TOKENS = 100  # in a document of the synthetic corpus, half of them new terms
COMMON = 0.9  # the share of its documents that hold "common"
FILES = 300_000  # of 2 KB
FOLDER = 1_000  # of them
EXECUTOR = 1024  # MB of heap
MASTER = f"local-cluster[2,1,{EXECUTOR}]"
ROLES = {  # by what the command line holds
    "driver, Java": "org.apache.spark.deploy.SparkSubmit",
    "executor, Java": "CoarseGrainedExecutorBackend",
    "worker, Python": "pyspark.daemon",
    "driver, Python": "jobs/featurize.py",
}


@dataclass(frozen=True)
class Run:
    """CPU seconds, the peak memory of one process of each role in bytes, and of each stage its tasks' seconds."""

    cpu: float
    memory: dict[str, int]
    tasks: dict[str, list[float]]


class Peaks(threading.Thread):
    """Samples the memory (PSS) of all descendants: the highest that one process of each role had."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.memory = dict.fromkeys(ROLES, 0)
        self._cpu: dict[Process, float] = {}

    def run(self) -> None:
        """Sample twice a second until `done`."""
        while not self.done.wait(0.5):
            found = descendants(os.getpid())
            self._cpu.update(found)
            for process in found:
                if role := _role(process.pid):
                    self.memory[role] = max(self.memory[role], proportional_set_size(process.pid))

    def cpu(self) -> float:
        """CPU seconds of all processes, when they were last seen."""
        return sum(self._cpu.values())


def _role(pid: int) -> str | None:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has ended
        return None
    return next((role for role, mark in ROLES.items() if mark in line), None)


def run(source: Path, workplace: Path, *options: str) -> Run:
    """Run the job on a corpus; SystemExit with the end of what it said if it fails."""
    with tempfile.TemporaryDirectory(dir=workplace) as scratch:
        events, log = Path(scratch) / "events", Path(scratch) / "log"
        events.mkdir()
        command = [str(Path(sys.executable).parent / "spark-submit"), "--master", MASTER, "--driver-memory", "1g"]
        for setting in (
            f"spark.local.dir={scratch}/spark", "spark.ui.enabled=false", "spark.eventLog.enabled=true",
            f"spark.eventLog.dir={events}", "spark.eventLog.compress=false", "spark.eventLog.rolling.enabled=false",
        ):  # fmt: skip
            command += ["--conf", setting]
        outputs = ["--output", f"{scratch}/out", "--model", f"{scratch}/model", "--max-document-bytes", "64MB"]
        command += [str(ROOT / "jobs/featurize.py"), "--input", str(source), *outputs, *options]
        peaks = Peaks()
        peaks.start()
        with log.open("w") as lines:
            code = subprocess.call(command, stdout=lines, stderr=subprocess.STDOUT, cwd=scratch)
        peaks.done.set()
        peaks.join()
        if code:
            raise SystemExit(f"the job failed on {source} {options}:\n{log.read_text()[-3000:]}")
        return Run(peaks.cpu(), peaks.memory, task_seconds(next(events.iterdir())))


def task_seconds(log: Path) -> dict[str, list[float]]:
    """The run times of the tasks of each stage of an event log, by the stage's number."""
    seconds: dict[str, list[float]] = {}
    with log.open() as lines:
        for line in lines:
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                seconds.setdefault(str(event["Stage ID"]), []).append(event["Task Metrics"]["Executor Run Time"] / 1000)
    return seconds


def slowest(one: Run) -> str:
    """The longest task of the stage whose tasks differ most, beside that stage's median; stages of 4 tasks or more."""
    stages = [each for each in one.tasks.values() if len(each) >= 4 and max(each) > 1]
    if not stages:
        return "no stage of 4 tasks with one of more than 1 s"
    worst = max(stages, key=lambda each: max(each) / max(0.1, statistics.median(each)))
    return f"{max(worst):.1f} s, median {statistics.median(worst):.1f} s of {len(worst)}"


def synthetic(folder: Path, terms: int) -> Path:
    """A corpus of as many distinct terms that occur once each, with as many tokens of 100,000 others by Zipf's law."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    half, files = TOKENS // 2, 20
    documents = terms // half // files
    for part in range(files):
        first = part * documents * half
        new = pa.array(np.arange(first, first + documents * half)).cast(pa.string())
        common = rng.random(documents) < COMMON
        known = (rng.zipf(1.3, (documents, half)) % 100_000).astype(np.int64)
        known[common, 0] = -1
        names = pa.array(known.reshape(-1)).cast(pa.string())
        column = [[f"n{x}" for x in new.to_pylist()], ["common" if x == "-1" else f"k{x}" for x in names.to_pylist()]]
        text = [" ".join(column[0][i : i + half] + column[1][i : i + half]) for i in range(0, documents * half, half)]
        ids = pa.array(np.arange(part * documents, (part + 1) * documents))
        pq.write_table(pa.table({"id": ids, "text": text}), folder / f"part-{part}.parquet", row_group_size=4096)
    return folder


def in_files(folder: Path, source: Path, files: int) -> tuple[Path, Path]:
    """E-mails in pieces of 1.5 to 2.5 KB: each as a file, a thousand in a folder, and as lines of 100 files.

    They begin anew, a little later, where there are not enough.
    """
    with source.open() as lines:
        text = " ".join(" ".join(json.loads(line)["text"].split()) for line in lines)
    small, large = folder / "small", folder / "large"
    large.mkdir(parents=True)
    with ExitStack() as opened:
        hundred = [opened.enter_context((large / f"{part}.txt").open("w")) for part in range(100)]
        at = 0
        for number in range(files):
            if number % FOLDER == 0:
                (small / f"{number // FOLDER:04}").mkdir(parents=True)
            if at + 2500 > len(text):
                at = number % 997
            piece = text[at : at + 1500 + number * 7919 % 1000]
            at += 2003
            (small / f"{number // FOLDER:04}/{number:07}.txt").write_text(piece)
            hundred[number % 100].write(piece + "\n")
    return small, large


def report(grown: dict[float, tuple[float, Run]], many: dict[str, Run], terms: int, split: dict[str, Run]) -> str:
    """The page."""
    sizes = list(grown)
    head = "| | " + " | ".join(f"{grown[share][0] / 1e6:,.0f} MB" for share in sizes) + " |"
    ratio = grown[sizes[-1]][1].cpu / grown[sizes[0]][1].cpu
    small, large = split.values()
    lines = [
        f"# How featurize scales, {date.today()}", "", f"{machine()}. {versions()}.", "",
        f"The job in {MASTER} with a driver heap of 1 GB. Memory is the peak of the proportional set size of one "
        "process of its kind, sampled twice a second; Java's counts the heap that it took, of what it may. Rerun: "
        "`make bench-scaling`.", "",
        "## The corpus grows", "",
        "E-mails and Linux sources mixed, read from Parquet, tf-idf with the default tokenizer.", "",
        head, "|---" * (len(sizes) + 1) + "|",
        "| CPU-s | " + " | ".join(f"{grown[share][1].cpu:.0f}" for share in sizes) + " |",
        *(
            f"| {role}, MB | " + " | ".join(f"{grown[share][1].memory[role] / 1e6:,.0f}" for share in sizes) + " |"
            for role in ROLES
        ),
        "", f"{sizes[-1] / sizes[0]:.0f} times the documents take {ratio:.1f} times the CPU time, start-up included.",
        "",
        "## The vocabulary grows", "",
        f"{terms:,} terms that occur once and as many tokens of 100,000 others by Zipf's law; {100 * COMMON:.0f} % of "
        "the documents hold one of them; `--max-features 1000000`.", "",
        "| | CPU-s | " + " | ".join(f"{role}, MB" for role in ROLES) + " | slowest task |",
        "|---" * (len(ROLES) + 3) + "|",
        *(
            f"| {name} | {one.cpu:.0f} | " + " | ".join(f"{one.memory[role] / 1e6:,.0f}" for role in ROLES)
            + f" | {slowest(one)} |"
            for name, one in many.items()
        ),
        "",
        "## The files grow in number", "",
        "The same pieces of e-mails, about 2 KB each, a file each and as lines of files.", "",
        "| | CPU-s | " + " | ".join(f"{role}, MB" for role in ROLES) + " |",
        "|---" * (len(ROLES) + 2) + "|",
        *(
            f"| {name} | {one.cpu:.0f} | " + " | ".join(f"{one.memory[role] / 1e6:,.0f}" for role in ROLES) + " |"
            for name, one in split.items()
        ),
        "", f"The ratio is {small.cpu / large.cpu:.2f}, start-up included.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Lay out the corpora, run the job on each, print the page and write it."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, default=ROOT / "data", help="where the corpora are, or are fetched to")
    p.add_argument("--new-terms", type=int, default=NEW_TERMS, help="of the synthetic corpus")
    p.add_argument("--files", type=int, default=FILES, help="small ones")
    p.add_argument("--page", type=Path, help="what to write (benchmarks/scaling-DATE.md)")
    options = p.parse_args()
    bench = options.data / "bench"
    bench.mkdir(parents=True, exist_ok=True)
    grown: dict[float, tuple[float, Run]] = {}
    with tempfile.TemporaryDirectory(dir=bench) as scratch:
        workplace = Path(scratch)
        for share in SHARES:
            corpus = sample(fetched(options.data), bench / f"mixed-{share:g}", share)
            grown[share] = corpus.bytes, run(corpus.folder, workplace)
            print(share, grown[share], file=sys.stderr, flush=True)
        source = synthetic(workplace / "synthetic", options.new_terms)
        many = {}
        for engine in ("kernel", "explode"):
            many[engine] = run(source, workplace, "--max-features", "1000000", "--engine", engine)
            print(engine, many[engine], file=sys.stderr, flush=True)
        small, large = in_files(workplace / "files", fetched(options.data)[0], options.files)
        files = {
            f"{options.files:,} files": run(small, workplace, "--format", "files"),
            "100 files": run(large, workplace),
        }
        print(files, file=sys.stderr, flush=True)
    page = report(grown, many, options.new_terms, files)
    print(page)
    (options.page or HERE / f"scaling-{date.today()}.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
