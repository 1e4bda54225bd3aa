"""The main job against Spark ML and scikit-learn, by marginal cost: make bench-featurize [ARGS="--runs 3"].

Each contestant runs in a process tree of its own on two sizes of the same corpus; what the larger costs more, over what
it holds more, is its cost per MB: starting Spark, compiling and loading do not count. Those that count n-grams of
characters, of which a text has many more, get smaller sizes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.mixed_corpus import Sample, sample

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).parent
CORPORA = ("spam-assassin", "linux")
TERMS = 262_144
PRESET, DEFAULT = "textmill, sklearn preset", "textmill, default"
SPARK_ML, SPARK_ML_CACHED, SCIKIT_LEARN = "Spark ML", "Spark ML, tokens cached", "scikit-learn, one core"
EXPLODE, HASHED = "textmill, sklearn preset, engine explode", "textmill, hashed"
SPARK_ML_HASHED, SPARK_ML_HASHED_CACHED = "Spark ML, hashed", "Spark ML, hashed, tokens cached"
CHARS, SCIKIT_LEARN_CHARS = "textmill, characters", "scikit-learn, characters, one core"
ALIKE = (  # those that write the same features, Textmill first
    (PRESET, SPARK_ML, SPARK_ML_CACHED, SCIKIT_LEARN, EXPLODE),
    (HASHED, SPARK_ML_HASHED, SPARK_ML_HASHED_CACHED),
    (CHARS, SCIKIT_LEARN_CHARS),
)
CONTESTANTS = (PRESET, DEFAULT, *ALIKE[0][1:], *ALIKE[1], *ALIKE[2])
ON_LESS = (CHARS, SCIKIT_LEARN_CHARS)  # text
SHARES, SMALL_SHARES = (0.25, 1.0), (0.025, 0.1)  # of the corpora
TOLERANCE = 0.02  # Java's \w is not quite Python's
LONGEST = "64MB"  # of a document: the kernel has headers of 24
MEMORY = "6g"  # of the Spark driver's heap
# What docs/featurize.md advises: the job's Java only moves bytes. Spark ML's computes, and needs the second compiler.
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Target:
    """A ratio of MB per CPU-second: one contestant over the best of others, what it must be and what it should be."""

    name: str
    of: str
    over: tuple[str, ...]
    must: str = "–"
    goal: str = "–"


TARGETS = (
    Target("sklearn preset / Spark ML", PRESET, (SPARK_ML, SPARK_ML_CACHED), "5.5", "8"),
    Target("sklearn preset / scikit-learn on one core", PRESET, (SCIKIT_LEARN,), "4", "5"),
    Target("default tokenizer / sklearn preset", DEFAULT, (PRESET,), "0.6", "0.8"),
    Target("engine explode / Spark ML", EXPLODE, (SPARK_ML, SPARK_ML_CACHED)),
    Target("hashed / Spark ML's hashing", HASHED, (SPARK_ML_HASHED, SPARK_ML_HASHED_CACHED), "4", "6"),
    Target("characters / scikit-learn on one core", CHARS, (SCIKIT_LEARN_CHARS,)),
)


@dataclass(frozen=True)
class Run:
    """One run: CPU time had in two ways, Java's part of it, wall (seconds), memory (bytes), load, what it wrote."""

    reaped: float
    sampled: float
    java: float
    wall: float
    memory: int
    python: int
    load: float
    rows: int
    entries: int
    terms: int

    @property
    def cpu(self) -> float:
        """CPU seconds: both ways can only miss some (process_cost.py says what)."""
        return max(self.reaped, self.sampled)


Pair = tuple[Run, Run]  # at the smaller and the larger size
Sizes = tuple[Sample, Sample]


def command(name: str, source: Path, scratch: Path) -> list[str]:
    """The command line of a contestant that reads `source` and writes scratch/out."""
    out = scratch / "out"
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", "--driver-memory", MEMORY]
    for setting in (f"spark.local.dir={scratch / 'spark'}", "spark.ui.enabled=false", "spark.log.level=ERROR"):
        submit += ["--conf", setting]
    job = ["--input", str(source), "--output", str(out), "--model", str(scratch / "model")]
    job = [str(ROOT / "jobs/featurize.py"), *job, "--max-document-bytes", LONGEST]
    most, explode = ["--max-features", str(TERMS)], [*submit, *job, "--engine", "explode"]
    job = [*submit, "--driver-java-options", FIRST_COMPILER, *job]
    peer = [str(source), str(out), str(TERMS)]
    spark_ml = [*submit, str(HERE / "peers.py"), "spark-ml", *peer]
    scikit_learn = [sys.executable, str(HERE / "peers.py"), "scikit-learn", *peer]
    return {
        DEFAULT: [*job, *most],
        PRESET: [*job, *most, "--preset", "sklearn"],
        EXPLODE: [*explode, *most, "--preset", "sklearn"],
        SPARK_ML: spark_ml,
        SPARK_ML_CACHED: [*spark_ml, "cached"],
        SCIKIT_LEARN: scikit_learn,
        HASHED: [*job, "--hash", str(TERMS), "--preset", "sklearn"],
        SPARK_ML_HASHED: [*spark_ml, "hashed"],
        SPARK_ML_HASHED_CACHED: [*spark_ml, "hashed", "cached"],
        CHARS: [*job, *most, "--preset", "sklearn", "--tokenizer", "char", "--ngrams", "3,5"],
        SCIKIT_LEARN_CHARS: [*scikit_learn, "characters"],
    }[name]


def written(out: Path) -> tuple[int, int, int]:
    """The rows that a contestant wrote, their entries, and how many terms these are of."""
    rows = entries = 0
    seen = np.zeros(TERMS, bool)
    for path in [out] if out.is_file() else sorted(out.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            column = "indices" if "indices" in file.schema_arrow.names else "features.indices"
            for batch in file.iter_batches(4096, columns=[column], use_threads=False):
                lists = batch.column(0)
                lists = lists.field("indices") if pa.types.is_struct(lists.type) else lists
                indices = lists.flatten().to_numpy()
                rows, entries = rows + len(lists), entries + len(indices)
                seen[indices] = True
    return rows, entries, int(seen.sum())


def run(name: str, source: Path, workplace: Path) -> Run:
    """Run a contestant and measure it; SystemExit with the end of what it said if it fails."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=workplace) as scratch:
        result, log = Path(scratch) / "cost.json", Path(scratch) / "log"
        measured = [sys.executable, str(HERE / "process_cost.py"), str(result), *command(name, source, Path(scratch))]
        with log.open("w") as lines:
            subprocess.run(measured, stdout=lines, stderr=subprocess.STDOUT, cwd=scratch, check=True)
        cost = json.loads(result.read_text())
        if cost.pop("code"):
            raise SystemExit(f"{name} failed on {source}:\n{log.read_text()[-3000:]}")
        return Run(
            **cost, load=load, **dict(zip(("rows", "entries", "terms"), written(Path(scratch) / "out"), strict=True))
        )


def run_all(sizes: dict[str, Sizes], runs: int, workplace: Path) -> dict[str, list[Pair]]:
    """Run all contestants at both of their sizes, one after the other, and all again for each of the runs."""
    pairs: dict[str, list[Pair]] = {name: [] for name in sizes}
    for number in range(1, runs + 1):
        for name, samples in sizes.items():
            small, large = (run(name, each.folder, workplace) for each in samples)
            pairs[name].append((small, large))
            for each, one in zip(samples, (small, large), strict=True):
                print(f"run {number}: {name} on {megabytes(each)} MB: {one}", file=sys.stderr, flush=True)
    return pairs


def megabytes(sample: Sample) -> str:
    """The size of its text."""
    return f"{sample.bytes / 1e6:,.1f}"


def rates(pairs: list[Pair], samples: Sizes) -> list[float]:
    """MB per CPU-second of each run, marginal."""
    more = (samples[1].bytes - samples[0].bytes) / 1e6
    return [more / (large.cpu - small.cpu) for small, large in pairs]


def corpora(sizes: dict[str, Sizes]) -> str:
    """How much text there was, and for whom where not all had the same."""
    by_size: dict[Sizes, list[str]] = {}
    for name, samples in sizes.items():
        by_size.setdefault(samples, []).append(name)
    return "; ".join(
        f"{megabytes(small)} and {megabytes(large)} MB of UTF-8 text "
        f"({small.documents:,} and {large.documents:,} documents)"
        + (f" for {', '.join(names)}" if len(by_size) > 1 and names[0] in ON_LESS else "")
        for (small, large), names in by_size.items()
    )


def report(sizes: dict[str, Sizes], pairs: dict[str, list[Pair]]) -> str:
    """The page: machine, versions, method, figures, ratios against their targets, and every single run."""
    runs = max(len(each) for each in pairs.values())
    return "\n".join(
        [
            f"# featurize and its peers, {date.today()}",
            "",
            f"{machine()}. {versions()}.",
            "",
            f"E-mails (spam-assassin) and Linux 6.1 sources, mixed by hash: {corpora(sizes)}, read from and written to "
            f"Parquet. TF-IDF, fitted and applied, over the most frequent {TERMS:,} terms, or hashed to as many "
            f"indices. Spark runs as local[2] with a driver heap of {MEMORY}, Textmill's Java with `{FIRST_COMPILER}` "
            "(Spark ML's is slower with it, and the engine explode runs without); scikit-learn on one core without "
            r"Spark. Spark ML is RegexTokenizer (`(?U)\w\w+`, lower case), CountVectorizer or HashingTF, and IDF. "
            "Characters are n-grams of 3 to 5 across words.",
            "",
            "MB per CPU-second is marginal: how much more text the larger corpus holds over how much more CPU time, "
            "user and system, the whole process tree takes; start-up does not count, and Textmill's kernels had been "
            "compiled before. CPU time is the larger of what the kernel adds up for a process that reaps all others, "
            "which lacks Python workers whose daemon ignores their end, and of the last that was seen of each process, "
            "looking five times a second. Documents a second are by wall time on the larger corpus, start-up included. "
            "Memory is the peak of the summed proportional set sizes there, sampled each second. Medians of "
            f"{runs} interleaved run{'s' * (runs > 1)}, in brackets the lowest and the highest. Java "
            "is the JVM's share of the marginal CPU time. Rerun: `make bench-featurize`.",
            "",
            "| | MB/CPU-s | Java | CPU-s | wall, s | documents/s | memory, MB | entries |",
            "|---|---|---|---|---|---|---|---|",
            *(figures(name, each, sizes[name]) for name, each in pairs.items()),
            "",
            "| MB/CPU-s | measured | must | goal |",
            "|---|---|---|---|",
            *ratios(sizes, pairs),
            "",
            "Every run; load is the machine's average over the minute before, other work included:",
            "",
            "| | run | MB | CPU-s | wall, s | memory, MB | load |",
            "|---|---|---|---|---|---|---|",
            *(
                f"| {name} | {number} | {megabytes(each)} | {one.cpu:.1f} | {one.wall:.1f} "
                f"| {one.memory / 1e6:,.0f} | {one.load:.1f} |"
                for name, all_runs in pairs.items()
                for number, pair in enumerate(all_runs, 1)
                for each, one in zip(sizes[name], pair, strict=True)
            ),
            "",
        ]
    )


def figures(name: str, pairs: list[Pair], samples: Sizes) -> str:
    """A contestant's line."""
    each = rates(pairs, samples)
    java = statistics.median((large.java - small.java) / (large.cpu - small.cpu) for small, large in pairs)
    cpu, wall, memory = (statistics.median(getattr(pair[1], of) for pair in pairs) for of in ("cpu", "wall", "memory"))
    return (
        f"| {name} | {statistics.median(each):.1f} ({min(each):.1f}–{max(each):.1f}) | {100 * java:.0f} % | {cpu:.0f} "
        f"| {wall:.0f} | {samples[1].documents / wall:,.0f} | {memory / 1e6:,.0f} | {pairs[0][1].entries:,} |"
    )


def ratios(sizes: dict[str, Sizes], pairs: dict[str, list[Pair]]) -> list[str]:
    """A line for each target whose contestants ran."""
    rate = {name: statistics.median(rates(each, sizes[name])) for name, each in pairs.items()}
    return [
        f"| {target.name} | {rate[target.of] / max(rate[name] for name in target.over):.2f} "
        f"| {target.must} | {target.goal} |"
        for target in TARGETS
        if {target.of, *target.over} <= rate.keys()
    ]


def machine() -> str:
    """The CPU, the cores, the memory and the kernel."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}"


def versions() -> str:
    """Of Python, Java and the packages that matter."""
    home = os.environ.get("JAVA_HOME")
    said = subprocess.run([f"{home}/bin/java" if home else "java", "-version"], capture_output=True, text=True).stderr
    java = said.split('"')[1] if '"' in said else "of unknown version"
    packages = ("pyspark", "pyarrow", "numpy", "numba", "scikit-learn", "xgboost-cpu")
    return ", ".join(
        [f"Python {platform.python_version()}", f"Java {java}", *(f"{name} {version(name)}" for name in packages)]
    )


def disagreements(sizes: dict[str, Sizes], pairs: dict[str, list[Pair]]) -> list[str]:
    """What contestants of the same features did not write alike: all rows, and about as many entries and terms."""
    wrong = []
    for names in ALIKE:
        largest = {name: pairs[name][0][1] for name in names if name in pairs}
        if names[0] not in largest:
            continue
        ours = largest[names[0]]
        wrong += [
            f"{name} wrote {theirs.rows} rows, {theirs.entries} entries of {theirs.terms} terms; "
            f"{sizes[name][1].documents} documents were read and {names[0]} wrote {ours.entries} entries of "
            f"{ours.terms} terms"
            for name, theirs in largest.items()
            if theirs.rows != sizes[name][1].documents
            or not math.isclose(theirs.entries, ours.entries, rel_tol=TOLERANCE)
            or not math.isclose(theirs.terms, ours.terms, rel_tol=TOLERANCE)
        ]
    return wrong


def fetched(data: Path) -> list[Path]:
    """The corpora's JSONL files in `data`, fetched where they are missing."""
    sources = [data / f"{name}.jsonl" for name in CORPORA]
    if not all(source.is_file() for source in sources):
        fetch = [sys.executable, "-m", "benchmarks.fetch_data", str(data.resolve()), "--only", *CORPORA]
        subprocess.run(fetch, cwd=ROOT, check=True)
    return sources


def shipped(workplace: Path) -> list[Path]:
    """The tests' e-mails as a JSONL file."""
    target = workplace / "emails.jsonl"
    with gzip.open(ROOT / "tests/data/emails.jsonl.gz") as packed:
        target.write_bytes(packed.read())
    return [target]


def arguments() -> argparse.Namespace:
    """The options."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=3, help="how often each contestant runs at each size")
    p.add_argument("--small", action="store_true", help="about 30 and 120 MB of text, not 300 and 1,200")
    p.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="NAME")
    p.add_argument("--data", type=Path, default=ROOT / "data", help="where the corpora are, or are fetched to")
    p.add_argument("--page", type=Path, help="what to write (benchmarks/featurize-DATE.md)")
    p.add_argument("--check", action="store_true", help="run once on the tests' e-mails and see that outputs agree")
    return p.parse_args()


def main() -> None:
    """Lay out the corpora, run every contestant, print the page and write it."""
    options = arguments()
    bench = options.data / "bench"
    if not options.check:
        bench.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=None if options.check else bench) as scratch:
        workplace = Path(scratch)
        if options.check:
            sources, shares, fewer, bench = shipped(workplace), SHARES, SHARES, workplace
        else:
            sources, shares, fewer = fetched(options.data), SMALL_SHARES if options.small else SHARES, SMALL_SHARES
            for name in [name for name in options.only if name.startswith("textmill")]:  # fills numba's cache
                run(name, sample(sources, bench / "mixed-0.01", 0.01).folder, workplace)
        of = {share: sample(sources, bench / f"mixed-{share:g}", share) for share in {*shares, *fewer}}
        usual, less = ((of[one], of[other]) for one, other in (shares, fewer))
        sizes = {name: less if name in ON_LESS else usual for name in options.only}
        pairs = run_all(sizes, 1 if options.check else options.runs, workplace)
    page = report(sizes, pairs)
    print(page)
    if options.page or not options.check:
        (options.page or HERE / f"featurize-{date.today()}.md").write_text(page, "utf-8")
    if wrong := disagreements(sizes, pairs):
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
