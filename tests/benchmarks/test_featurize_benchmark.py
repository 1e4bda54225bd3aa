"""The benchmark measures whole process trees, its contestants agree, and its page has the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import featurize
from benchmarks.featurize import DEFAULT, PRESET, SCIKIT_LEARN, SPARK_ML, SPARK_ML_CACHED, Run
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


def pairs_of(cpu: dict[str, float]) -> dict[str, list[tuple[Run, Run]]]:
    """Three runs each, whose start-up takes 40 CPU-seconds and whose rest takes `cpu`, one more in each run."""
    start = Run(reaped=40, sampled=0, java=30, wall=20, memory=1_000_000_000, load=0.5, rows=2_000, entries=10, terms=5)
    return {
        name: [
            (start, replace(start, sampled=40 + seconds + run, java=30 + seconds / 2, wall=100, rows=8_000))
            for run in range(3)
        ]
        for name, seconds in cpu.items()
    }


def test_the_page_has_marginal_figures_and_ratios_with_targets() -> None:
    cpu = {PRESET: 49, DEFAULT: 59, SPARK_ML: 499, SPARK_ML_CACHED: 299, SCIKIT_LEARN: 199}
    page = featurize.report(SAMPLES, pairs_of(cpu))
    assert "| textmill, sklearn preset | 18.0 (17.6–18.4) | 49 % | 90 | 100 | 80 | 1,000 | 10 |" in page
    assert "| sklearn preset / Spark ML | 6.00 | 5.5 | 8 |" in page
    assert "| sklearn preset / scikit-learn on one core | 4.00 | 4 | 5 |" in page
    assert "| default tokenizer / sklearn preset | 0.83 | 0.6 | 0.8 |" in page
    assert page.count("| 0.5 |") == 30
    assert "300.0 and 1,200.0 MB" in page
    assert f"pyspark {featurize.version('pyspark')}" in page


def test_a_page_of_some_contestants_has_their_ratios_only() -> None:
    page = featurize.report(SAMPLES, pairs_of({PRESET: 49, SCIKIT_LEARN: 199}))
    assert "preset / scikit-learn" in page
    assert "preset / Spark ML" not in page


def test_contestants_that_wrote_something_else_are_named() -> None:
    pairs = pairs_of({PRESET: 49, SPARK_ML: 499, SCIKIT_LEARN: 199, DEFAULT: 59})
    assert featurize.disagreements(pairs, 8_000) == []
    small, large = pairs[SPARK_ML][0]
    pairs[SPARK_ML][0] = small, replace(large, entries=11)
    small, large = pairs[SCIKIT_LEARN][0]
    pairs[SCIKIT_LEARN][0] = small, replace(large, rows=7_999)
    wrong = featurize.disagreements(pairs, 8_000)
    assert [line.split(" wrote")[0] for line in wrong] == [SPARK_ML, SCIKIT_LEARN]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [PRESET, SPARK_ML])
def test_contestants_write_the_same_features(name: str, tmp_path: Path) -> None:
    documents = sample(featurize.shipped(tmp_path), tmp_path / "corpus", 1.0)
    ours, peer = (featurize.run(each, documents.folder, tmp_path) for each in (name, SCIKIT_LEARN))
    assert ours.java > 1 > peer.java
    assert ours.cpu > ours.java
    assert ours.memory > peer.memory > 50 << 20
    pairs = {PRESET: [(ours, ours)], SCIKIT_LEARN: [(peer, peer)]}
    assert featurize.disagreements(pairs, documents.documents) == []
    if name == PRESET:
        assert (ours.rows, ours.entries, ours.terms) == (peer.rows, peer.entries, peer.terms)


def test_a_contestant_that_fails_ends_the_benchmark_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)scikit-learn, one core failed on .*FileNotFoundError"):
        featurize.run(SCIKIT_LEARN, tmp_path / "absent", tmp_path)
