"""Tokenising in Spark SQL by our function, by built-ins and by a row UDF; and what a frequent term does to tasks.

make bench-sql [ARGS="--runs 3"]. Rates are marginal, as in featurize.py: each contestant runs in a process tree of its
own on two sizes of the same corpus.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

if __name__ == "__main__":  # by spark-submit, which puts only this folder on sys.path
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.featurize import HERE, MEMORY, ROOT, SHARES, SMALL_SHARES, fetched, machine, versions
from benchmarks.mixed_corpus import Sample, sample

OURS, BUILT_IN, ROW_UDF = "tokenize, ours", "split, built in", "row UDF in Python"
QUERIES = {  # over documents (id, text)
    OURS: "SELECT count(*), sum(length(t.token.token)) FROM documents LATERAL VIEW explode(tokenize(text)) t AS token",
    BUILT_IN: "SELECT count(*), sum(length(t.token)) FROM documents "
    "LATERAL VIEW explode(split(lower(text), '[^a-z0-9]+')) t AS token",
    ROW_UDF: "SELECT count(*), sum(length(t.token)) FROM documents LATERAL VIEW explode(words(text)) t AS token",
}
TASKS = 8
# The document frequencies of all tokens, of which one more is in 90 % of the documents.
FREQUENT = """
    SELECT d.id, t.token.token AS term FROM documents d LATERAL VIEW explode(tokenize(d.text)) t AS token
    UNION ALL
    SELECT id, 'thefrequentterm' AS term FROM documents WHERE crc32(id) % 10 < 9
"""
PARTIAL = {
    "partial aggregation": "SELECT term, count(*) AS cf FROM terms GROUP BY term",
    # Rows that lie with their like already are added up once, so each row is shuffled.
    "without": "SELECT term, count(*) AS cf "
    f"FROM (SELECT /*+ REPARTITION({TASKS}, term) */ term FROM terms) GROUP BY term",
}


@dataclass(frozen=True)
class Run:
    """CPU and wall seconds of a process tree, and the tokens it counted."""

    cpu: float
    wall: float
    tokens: int


def job(name: str, source: Path) -> None:
    """What runs inside of spark-submit: one query, or both ways to add up a frequent term."""
    from pyspark.sql import functions as F

    from jobs.session import spark_session
    from udfs.spark import register

    spark = spark_session("textmill benchmark")
    spark.read.parquet(str(source)).createOrReplaceTempView("documents")
    if name == ROW_UDF:
        pattern = re.compile(r"\w+")
        spark.udf.register("words", F.udf(lambda text: pattern.findall(text.lower()), "array<string>"))
    else:
        register(spark)
    if name in QUERIES:
        print(json.dumps({"tokens": spark.sql(QUERIES[name]).collect()[0][0]}))
        return
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # which would merge or split the tasks
    spark.conf.set("spark.sql.shuffle.partitions", TASKS)
    spark.sql(FREQUENT).createOrReplaceTempView("terms")
    for way, text in PARTIAL.items():
        spark.sparkContext.setJobDescription(way)
        spark.sql(text).write.format("noop").mode("overwrite").save()


def submit(name: str, source: Path, *settings: str) -> list[str]:
    """The command line of a job."""
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", "--driver-memory", MEMORY]
    for setting in ("spark.ui.enabled=false", "spark.log.level=ERROR", *settings):
        command += ["--conf", setting]
    return [*command, str(ROOT / "benchmarks/sql.py"), "--job", name, str(source)]


def run(name: str, source: Path, workplace: Path) -> Run:
    """Run a contestant and measure it; SystemExit with the end of what it said if it fails."""
    with tempfile.TemporaryDirectory(dir=workplace) as scratch:
        result = Path(scratch) / "cost.json"
        measured = [sys.executable, str(HERE / "process_cost.py"), str(result), *submit(name, source)]
        done = subprocess.run(measured, capture_output=True, text=True, cwd=scratch)
        cost = json.loads(result.read_text())
        if cost["code"]:
            raise SystemExit(f"{name} failed on {source}:\n{done.stderr[-3000:]}")
        tokens = json.loads(done.stdout.splitlines()[-1])["tokens"]
        return Run(max(cost["reaped"], cost["sampled"]), cost["wall"], tokens)


def task_seconds(source: Path, workplace: Path) -> dict[str, list[float]]:
    """The run times of the tasks that add up terms after the shuffle, each way."""
    with tempfile.TemporaryDirectory(dir=workplace) as scratch:
        log = ("spark.eventLog.enabled=true", f"spark.eventLog.dir=file:{scratch}", "spark.eventLog.compress=false")
        done = subprocess.run(submit("frequent", source, *log), capture_output=True, text=True, cwd=scratch)
        if done.returncode:
            raise SystemExit(f"the frequent term failed:\n{done.stderr[-3000:]}")
        events = [json.loads(line) for file in Path(scratch).rglob("events*") if file.is_file() for line in file.open()]
    of_stage: dict[int, str] = {}
    for event in events:
        if event["Event"] == "SparkListenerJobStart":
            way = event["Properties"].get("spark.job.description")
            of_stage |= {max(event["Stage IDs"]): way} if way in PARTIAL else {}
    seconds: dict[str, list[float]] = {way: [] for way in PARTIAL}
    for event in events:
        if event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in of_stage:
            seconds[of_stage[event["Stage ID"]]].append(event["Task Metrics"]["Executor Run Time"] / 1000)
    return seconds


def report(small: Sample, large: Sample, pairs: dict[str, list[tuple[Run, Run]]], tasks: dict[str, list[float]]) -> str:
    """The page."""
    more = large.documents - small.documents
    rates = {name: [more / (b.cpu - a.cpu) for a, b in each] for name, each in pairs.items()}
    best = {name: statistics.median(each) for name, each in rates.items()}
    return "\n".join(
        [
            f"# Tokenising in Spark SQL, {date.today()}",
            "",
            f"{machine()}. {versions()}.",
            "",
            f"E-mails and Linux sources, mixed by hash: {small.bytes / 1e6:,.0f} and {large.bytes / 1e6:,.0f} MB of "
            f"text ({small.documents:,} and {large.documents:,} documents), read from Parquet; tokens are exploded and "
            f"counted. local[2]. Rows (documents) per CPU-second are "
            f"marginal, as in the page of featurize. Medians of {len(next(iter(pairs.values())))} interleaved runs, in "
            "brackets the lowest and the highest. The three find different tokens: ours normalises and knows all "
            'scripts, `split` takes ASCII letters and digits, the row UDF is `re.findall(r"\\w+", text.lower())`. '
            "Rerun: `make bench-sql`.",
            "",
            "| | rows/CPU-s | ours / this | tokens |",
            "|---|---|---|---|",
            *(
                f"| {name} | {best[name]:,.0f} ({min(each):,.0f}–{max(each):,.0f}) | {best[OURS] / best[name]:.2f} "
                f"| {pairs[name][0][1].tokens:,} |"
                for name, each in rates.items()
            ),
            "",
            f"A term in 90 % of the documents: all tokens of the larger corpus and that term, added up in {TASKS} "
            "tasks after a shuffle by term. Seconds of these tasks, sorted:",
            "",
            "| | shortest | median | longest | all |",
            "|---|---|---|---|---|",
            *(
                f"| {way} | {min(each):.2f} | {statistics.median(each):.2f} | {max(each):.2f} "
                f"| {', '.join(f'{one:.2f}' for one in sorted(each))} |"
                for way, each in tasks.items()
            ),
            "",
        ]
    )


def main() -> None:
    """Run every contestant, print the page and write it."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=3, help="how often each contestant runs at each size")
    p.add_argument("--small", action="store_true", help="about 30 and 120 MB of text, not 300 and 1,200")
    p.add_argument("--data", type=Path, default=ROOT / "data", help="where the corpora are, or are fetched to")
    p.add_argument("--page", type=Path, default=HERE / f"sql-{date.today()}.md", help="what to write")
    p.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    options = p.parse_args()
    if options.job:
        job(options.job[0], Path(options.job[1]))
        return
    bench = options.data / "bench"
    bench.mkdir(parents=True, exist_ok=True)
    small, large = (
        sample(fetched(options.data), bench / f"mixed-{share:g}", share)
        for share in (SMALL_SHARES if options.small else SHARES)
    )
    with tempfile.TemporaryDirectory(dir=bench) as scratch:
        pairs: dict[str, list[tuple[Run, Run]]] = {name: [] for name in QUERIES}
        for number in range(1, options.runs + 1):
            for name in QUERIES:
                pairs[name].append((run(name, small.folder, Path(scratch)), run(name, large.folder, Path(scratch))))
                print(f"run {number}: {name}: {pairs[name][-1]}", file=sys.stderr, flush=True)
        page = report(small, large, pairs, task_seconds(large.folder, Path(scratch)))
    print(page)
    options.page.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
