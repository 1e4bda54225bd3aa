"""The benchmark measures whole process trees, its contestants agree, and its page has the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import featurize
from benchmarks.featurize import (
    ALIKE,
    CHARS,
    DEFAULT,
    HASHED,
    PRESET,
    SCIKIT_LEARN,
    SCIKIT_LEARN_CHARS,
    SPARK_ML,
    SPARK_ML_CACHED,
    SPARK_ML_HASHED,
    SPARK_ML_HASHED_CACHED,
    Run,
)
from benchmarks.mixed_corpus import Sample, sample

BURN = "import time\nwhile time.process_time() < 1: pass"
DAEMON = f"""
import os, subprocess, sys
if not os.fork():
    os.setsid()
    if not os.fork():
        memory = b"x" * (200 << 20)
        subprocess.run([sys.executable, "-c", {BURN!r}])
        {BURN.replace(chr(10), chr(10) + " " * 8)}
    os._exit(0)
os.wait()
sys.exit(3)
"""


def measure(tmp_path: Path, program: str) -> dict[str, float]:
    result = tmp_path / "cost.json"
    script = str(featurize.HERE / "process_cost.py")
    subprocess.run([sys.executable, script, str(result), sys.executable, "-c", program], check=True)
    return json.loads(result.read_text())


def test_a_daemon_that_outlives_its_command_is_counted(tmp_path: Path) -> None:
    cost = measure(tmp_path, DAEMON)
    assert cost["code"] == 3
    assert 2 <= cost["reaped"] < 4


def test_a_worker_whose_daemon_ignores_its_end_is_counted(tmp_path: Path) -> None:
    worker = f"{BURN}\ntime.sleep(0.5)"  # as pyspark's: idle before it ends
    program = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"subprocess.Popen([sys.executable, '-c', {worker!r}]).wait()"
    )
    cost = measure(tmp_path, program)
    assert cost["reaped"] < 0.5  # the reason for looking as well
    assert 0.95 <= cost["sampled"] < 2


def test_memory_is_that_of_all_processes(tmp_path: Path) -> None:
    program = (
        "import os, time\nmemory = bytearray(os.urandom(1 << 20) * 100)\nchild = os.fork()\n"
        "own = bytearray(memory) if not child else None\ntime.sleep(3)"
    )
    cost = measure(tmp_path, program)
    assert 200 << 20 <= cost["memory"] < 280 << 20  # the first 100 MiB are shared, and counted once
    assert cost["wall"] >= 3


def test_a_smaller_sample_is_the_beginning_of_a_larger_one_in_mixed_order(tmp_path: Path) -> None:
    sources = featurize.shipped(tmp_path)
    small, large = (sample(sources, tmp_path / f"{share}", share) for share in (0.25, 1.0))
    some, all_ids = (pq.read_table(each.folder)["id"].to_pylist() for each in (small, large))
    lines = [json.loads(line) for line in sources[0].read_bytes().splitlines()]
    assert sorted(all_ids) == sorted(line["id"] for line in lines)
    assert some == all_ids[: len(some)]
    assert 0.2 < len(some) / len(all_ids) < 0.3
    assert all_ids != [line["id"] for line in lines]
    assert large.bytes == sum(len(line["text"].encode()) for line in lines)
    assert (small.documents, large.documents) == (len(some), len(all_ids))
    written = (large.folder / "part-0.parquet").stat().st_mtime_ns
    assert sample(sources, large.folder, 1.0) == large
    assert (large.folder / "part-0.parquet").stat().st_mtime_ns == written


SAMPLES = (Sample(Path("small"), 2_000, 300_000_000), Sample(Path("large"), 8_000, 1_200_000_000))
FEWER = (Sample(Path("a"), 200, 30_000_000), Sample(Path("b"), 8_000, 120_000_000))


def sizes_of(names: Iterable[str]) -> dict[str, featurize.Sizes]:
    return {name: FEWER if name in featurize.ON_LESS else SAMPLES for name in names}


def pairs_of(cpu: dict[str, float]) -> dict[str, list[tuple[Run, Run]]]:
    """Three runs each, whose start-up takes 40 CPU-seconds and whose rest takes `cpu`, one more in each run."""
    start = Run(
        reaped=40, sampled=0, java=30, wall=20, memory=10**9, python=1, load=0.5, rows=2_000, entries=10, terms=5
    )
    return {
        name: [
            (start, replace(start, sampled=40 + seconds + run, java=30 + seconds / 2, wall=100, rows=8_000))
            for run in range(3)
        ]
        for name, seconds in cpu.items()
    }


def test_the_page_has_marginal_figures_and_ratios_with_targets() -> None:
    cpu = {PRESET: 49, DEFAULT: 59, SPARK_ML: 499, SPARK_ML_CACHED: 299, SCIKIT_LEARN: 199}
    cpu |= {HASHED: 29, SPARK_ML_HASHED: 179, SPARK_ML_HASHED_CACHED: 149, CHARS: 89, SCIKIT_LEARN_CHARS: 449}
    page = featurize.report(sizes_of(cpu), pairs_of(cpu))
    assert "| textmill, sklearn preset | 18.0 (17.6–18.4) | 49 % | 90 | 100 | 80 | 1,000 | 10 |" in page
    assert "| sklearn preset / Spark ML | 6.00 | 5.5 | 8 |" in page
    assert "| sklearn preset / scikit-learn on one core | 4.00 | 4 | 5 |" in page
    assert "| default tokenizer / sklearn preset | 0.83 | 0.6 | 0.8 |" in page
    assert "| hashed / Spark ML's hashing | 5.00 | 4 | 6 |" in page
    assert "| characters / scikit-learn on one core | 5.00 | – | – |" in page
    assert page.count("| 0.5 |") == 60
    assert page.count(f"| {CHARS} | 1 | 30.0 |") == page.count(f"| {CHARS} | 1 | 120.0 |") == 1
    assert "300.0 and 1,200.0 MB of UTF-8 text (2,000 and 8,000 documents); 30.0 and 120.0 MB" in page
    assert f"(200 and 8,000 documents) for {CHARS}, {SCIKIT_LEARN_CHARS}, read" in page
    assert f"pyspark {featurize.version('pyspark')}" in page


def test_a_page_of_some_contestants_has_their_ratios_only() -> None:
    cpu = {PRESET: 49, SCIKIT_LEARN: 199}
    page = featurize.report(sizes_of(cpu), pairs_of(cpu))
    assert "preset / scikit-learn" in page
    assert "preset / Spark ML" not in page
    assert " for " not in page.split("mixed by hash")[1].split("read from")[0]


@pytest.mark.parametrize("names", ALIKE)
def test_contestants_that_wrote_something_else_are_named(names: tuple[str, ...]) -> None:
    pairs = pairs_of(dict.fromkeys([*featurize.CONTESTANTS], 99))
    sizes = sizes_of(pairs)
    assert featurize.disagreements(sizes, pairs) == []
    small, large = pairs[names[1]][0]
    pairs[names[1]][0] = small, replace(large, entries=11)
    small, large = pairs[names[-1]][0]
    pairs[names[-1]][0] = small, replace(large, rows=7_999)
    wrong = featurize.disagreements(sizes, pairs)
    assert [line.split(" wrote")[0] for line in wrong] == list(dict.fromkeys((names[1], names[-1])))


def test_every_contestant_has_a_command() -> None:
    assert sorted(featurize.CONTESTANTS) == sorted({DEFAULT, *(name for names in ALIKE for name in names)})
    commands = [featurize.command(name, Path("in"), Path("scratch")) for name in featurize.CONTESTANTS]
    assert len({tuple(command) for command in commands}) == len(featurize.CONTESTANTS)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", [(PRESET, SCIKIT_LEARN), (CHARS, SCIKIT_LEARN_CHARS), (HASHED, SPARK_ML_HASHED)])
def test_contestants_write_the_same_features(names: tuple[str, str], tmp_path: Path) -> None:
    documents = sample(featurize.shipped(tmp_path), tmp_path / "corpus", 1.0)
    ours, peer = (featurize.run(each, documents.folder, tmp_path) for each in names)
    assert ours.cpu > ours.java > 1
    assert ours.memory > 50 << 20
    assert (peer.java > 1) == (names[1] == SPARK_ML_HASHED)
    sizes = dict.fromkeys(names, (documents, documents))
    assert featurize.disagreements(sizes, {names[0]: [(ours, ours)], names[1]: [(peer, peer)]}) == []
    if names[0] == PRESET:
        assert (ours.rows, ours.entries, ours.terms) == (peer.rows, peer.entries, peer.terms)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_check_of_all_contestants_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.featurize", "--check", "--page", str(tmp_path / "page.md")]
    done = subprocess.run(command, cwd=featurize.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.md").read_text("utf-8")
    assert all(f"| {name} | 1 |" in page for name in featurize.CONTESTANTS)


def test_a_contestant_that_fails_ends_the_benchmark_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)scikit-learn, one core failed on .*FileNotFoundError"):
        featurize.run(SCIKIT_LEARN, tmp_path / "absent", tmp_path)
