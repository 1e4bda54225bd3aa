"""The main job: what it writes, that nothing about its run changes that, and what it does with mistakes."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from scipy.sparse import csr_matrix

from jobs import session, stages, summary
from jobs.featurize import main
from jobs.workers import SHARDS
from models.counts import TermCounts, deal_counts
from models.features import FeatureConfig, FeatureModel, Features, sklearn_preset
from udfs.hashing import hash_sum
from udfs.text import TextConfig, tokenize

ROOT = Path(__file__).parents[2]
EMAILS = ROOT / "tests/data/emails.jsonl.gz"
pytestmark = pytest.mark.usefixtures("spark")


def featurize(*arguments: object) -> int:
    """The job's exit code, run in this process with the session that there is."""
    try:
        return session.exit_code(main, [str(argument) for argument in arguments])
    except SystemExit as stopped:  # argparse
        return int(stopped.code or 0)


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "_manifest.json").read_text("utf-8"))


def written(folder: Path) -> pa.Table:
    """The features in a folder, in order of id."""
    return pq.read_table(sorted(folder.glob("*.parquet"))).sort_by("id")


def matrix(rows: pa.Table, terms: int) -> csr_matrix:
    indices, values = rows["indices"].combine_chunks(), rows["values"].combine_chunks()
    indptr = np.concatenate([[0], np.cumsum(indices.value_lengths().to_numpy())])
    parts = (values.flatten().to_numpy(), indices.flatten().to_numpy(), indptr)
    return csr_matrix(parts, shape=(len(rows), terms))


def assert_same_bits(a: csr_matrix, b: csr_matrix) -> None:
    assert np.array_equal(a.indptr, b.indptr)
    assert np.array_equal(a.indices, b.indices)
    assert np.array_equal(a.data.view(np.int32), b.data.view(np.int32))


def write_parts(table: pa.Table, folder: Path, parts: int) -> Path:
    """The rows, shuffled, as this many Parquet files."""
    folder.mkdir(parents=True)
    order = np.random.default_rng(parts).permutation(len(table))
    for k in range(parts):
        pq.write_table(table.take(order[k::parts]), folder / f"part-{k}.parquet")
    return folder


def write_lines(path: Path, records: list[Any]) -> Path:
    """JSON Lines; bytes are written as they are."""
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def demo(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's run: features/ and model/ of the e-mails, with the default settings."""
    folder = tmp_path_factory.mktemp("demo")
    assert featurize("--input", EMAILS, "--output", folder / "features", "--model", folder / "model") == 0
    return folder


def latest_job(spark: Any) -> int:
    """The number of Spark's last job; it forgets all but the last thousand, so that they can't be counted."""
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(), default=-1)


@pytest.fixture
def conf(spark: Any) -> Iterator[Callable[[str, object], None]]:
    """Set a configuration of the session; undone afterwards."""
    before: dict[str, str] = {}

    def set_to(name: str, value: object) -> None:
        before.setdefault(name, spark.conf.get(name))
        spark.conf.set(name, str(value))

    yield set_to
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def a_file_a_partition(conf: Callable[[str, object], None]) -> None:
    conf("spark.sql.files.openCostInBytes", 128 << 20)


# What is written.


def test_features_are_those_of_the_model_to_the_bit(demo: Path, emails: pa.Table) -> None:
    model = FeatureModel.load(demo / "model")
    rows = written(demo / "features")
    documents = emails.sort_by("id")
    assert rows.column_names == ["id", "label", "indices", "values", "content"]
    assert rows["id"].to_pylist() == documents["id"].to_pylist()
    assert rows["label"].to_pylist() == documents["label"].to_pylist()
    assert_same_bits(matrix(rows, len(model.terms)), model.transform(documents["text"]))


def test_the_model_is_that_of_a_fit_in_memory(demo: Path, emails: pa.Table) -> None:
    assert FeatureModel.load(demo / "model").id == FeatureModel.fit(emails["text"]).id


def test_the_hashes_of_the_demo_are_the_same_with_every_spark(demo: Path) -> None:
    """The id is the README's. `make test-spark35` runs this with Spark 3.5, `make test` with the newest."""
    found = manifest(demo / "features")
    assert f"(id {found['model_id']})" in (ROOT / "README.md").read_text("utf-8")
    assert found["content_hash"] == "dc6639319f3232844b4391a2e88f8581"


def test_the_manifest_adds_up_and_is_true(demo: Path, emails: pa.Table) -> None:
    found, model = manifest(demo / "features"), FeatureModel.load(demo / "model")
    rows = written(demo / "features")
    assert found["documents"] + found["rejects"] + found["blanks"] == found["records"] == len(emails)
    assert found["documents"] == len(rows)
    assert found["repaired"] == 0
    assert found["tokens"] == model.n_tokens
    assert found["terms"] == len(model.terms)
    assert found["entries"] == len(rows["indices"].combine_chunks().flatten())
    assert found["empty"] == sum(not indices for indices in rows["indices"].to_pylist())
    assert found["model_id"] == model.id
    features = matrix(rows, len(model.terms))
    hashes = Features(features.indptr.astype(np.int64), features.indices, features.data).hashes(
        rows["id"].combine_chunks(), rows["label"].combine_chunks()
    )
    assert found["content_hash"] == f"{hash_sum(hashes):032x}"


def test_spark_reads_the_features_and_nothing_else(spark: Any, demo: Path) -> None:
    rows = spark.read.parquet(str(demo / "features"))
    fields = [(field.name, field.dataType.simpleString()) for field in rows.schema.fields]
    assert fields == [
        ("id", "string"),
        ("label", "string"),
        ("indices", "array<int>"),
        ("values", "array<float>"),
        ("content", "binary"),
    ]
    assert rows.count() == manifest(demo / "features")["documents"]


def test_nothing_but_output_and_model_is_left(demo: Path) -> None:
    assert sorted(path.name for path in demo.iterdir()) == ["features", "model"]
    names = [path.name for path in (demo / "features").iterdir() if path.suffix != ".crc"]
    assert all(re.fullmatch(r"part-.*\.parquet|_manifest\.json|_rejects", name) for name in names), names


def test_the_summary_tells_what_was_done(
    demo: Path,
    emails: pa.Table,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["elsewhere/entry.py"])
    assert featurize("--input", EMAILS, "--output", tmp_path / "out", "--apply", demo / "model") == 0
    said = capsys.readouterr().out
    assert f"{len(emails):,} of {len(emails):,} records" in said
    assert f"{manifest(demo / 'features')['tokens']:,}" in said
    for word in (
        "vocabulary",
        "ham",
        "spam",
        "next",
        "spark-submit elsewhere/entry.py",
        str(tmp_path / "out"),
        str(demo / "model"),
    ):
        assert word in said, word


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (
            "--ngrams 1,2 --stop-words zh --min-df 2 --max-df 0.5 --max-features 2000 --norm l1",
            FeatureConfig(ngrams=(1, 2), min_df=2, max_df=0.5, max_features=2000, norm="l1", stop_words=("zh",)),
        ),
        (
            "--preset sklearn --ngrams 1,2 --sublinear-tf --idf plain --max-features none",
            sklearn_preset(FeatureConfig(ngrams=(1, 2), sublinear_tf=True, idf="plain", max_features=None)),
        ),
        (
            "--preset sklearn --tokenizer char_wb --ngrams 1,3 --features bm25 --bm25-k1 0.9 --bm25-b 0.4",
            sklearn_preset(
                FeatureConfig(
                    features="bm25", ngrams=(1, 3), bm25_k1=0.9, bm25_b=0.4, text=TextConfig(tokenizer="char_wb")
                )
            ),
        ),
        (
            "--features onehot --tokenizer whitespace --unicode NFKC --no-lowercase --min-df 0.01",
            FeatureConfig(
                features="onehot",
                min_df=0.01,
                text=TextConfig(tokenizer="whitespace", unicode="NFKC", lowercase=False),
            ),
        ),
    ],
)
def test_options_mean_what_the_configuration_says(
    options: str, config: FeatureConfig, chinese: pa.Table, tmp_path: Path
) -> None:
    from dataclasses import replace

    from udfs.text import stop_words

    if config.stop_words:
        config = replace(config, stop_words=tuple(stop_words("zh", config.text)))
    source = ROOT / "tests/data/libreoffice_help_zh.jsonl.gz"
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, *options.split()) == 0
    expected = FeatureModel.fit(chinese["text"], config)
    model = FeatureModel.load(tmp_path / "model")
    assert model.config == expected.config
    assert model.id == expected.id
    documents = chinese.sort_by("id")
    assert_same_bits(matrix(written(tmp_path / "out"), len(model.terms)), expected.transform(documents["text"]))


def test_hashed_features_are_those_of_spark_mls_hashing_and_idf(spark: Any, emails: pa.Table, tmp_path: Path) -> None:
    from pyspark.ml.feature import IDF, HashingTF

    some = emails.slice(0, 200)
    source = write_parts(some, tmp_path / "in", 2)
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    options = ("--hash", 1000, "--idf", "ml", "--norm", "none", "--ngrams", "1,1")
    assert featurize("--input", source, *outputs, *options) == 0
    rows = list(zip(some["id"].to_pylist(), tokenize(some["text"]).to_pylist(), strict=True))
    cut = spark.createDataFrame(rows, "id string, tokens array<string>")
    counted = HashingTF(inputCol="tokens", outputCol="tf", numFeatures=1000).transform(cut)
    weighed = IDF(inputCol="tf", outputCol="features").fit(counted).transform(counted)
    theirs = {row.id: row.features for row in weighed.select("id", "features").collect()}
    ours = written(tmp_path / "out")
    assert len(ours) == len(theirs) == 200
    for id, indices, values in zip(*(ours[name].to_pylist() for name in ("id", "indices", "values")), strict=True):
        assert indices == theirs[id].indices.tolist()
        np.testing.assert_allclose(values, theirs[id].values, rtol=1e-6)


def test_the_hash_report_lists_the_terms_of_each_index_and_changes_nothing_else(
    chinese: pa.Table, tmp_path: Path, a_file_a_partition: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """With jieba and a user dictionary, so that their words come out of Spark as without it, too."""
    some = chinese.slice(0, 120)
    source = write_parts(some, tmp_path / "in", 3)
    (tmp_path / "words.txt").write_text("对话框编辑器 9999 n\nBasic IDE\n", "utf-8")
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    options = ("--tokenizer", "jieba", "--user-dict", tmp_path / "words.txt", "--ngrams", "1,2")
    assert featurize("--input", source, *outputs, *options, "--hash", 5000, "--hash-report") == 0
    text = TextConfig(tokenizer="jieba", user_dict=(("对话框编辑器", 9999), ("basic ide", None)))
    expected = FeatureModel.fit(some["text"], FeatureConfig(text=text, ngrams=(1, 2), hash_size=5000))
    model = FeatureModel.load(tmp_path / "model")
    assert model.id == expected.id
    features = matrix(written(tmp_path / "out"), 5000)
    assert_same_bits(features, model.transform(some.sort_by("id")["text"]))

    whole = FeatureModel.fit(some["text"], FeatureConfig(text=text, ngrams=(1, 2), max_features=None))
    assert {"对话框编辑器", "basic ide"} <= {*whole.terms.to_pylist()}
    by_index: dict[int, list[tuple[int, str, int]]] = {}
    for term, df, cf in zip(whole.terms.to_pylist(), whole.df.tolist(), whole.cf.tolist(), strict=True):
        by_index.setdefault(mmh3.hash(term, 42) % 5000, []).append((-cf, term, df))
    rows = pq.read_table(sorted((tmp_path / "out/_hash_report").glob("*.parquet"))).sort_by("index").to_pylist()
    assert rows == [
        {
            "index": index,
            "terms": [term for _, term, _ in sorted(terms)],
            "df": [df for _, _, df in sorted(terms)],
            "cf": [-cf for cf, _, _ in sorted(terms)],
            "collisions": len(terms) - 1,
        }
        for index, terms in sorted(by_index.items())
    ]
    found = manifest(tmp_path / "out")
    terms = len(whole.terms)
    assert (found["hashed_terms"], found["hashed_indices"], found["terms"]) == (terms, len(rows), len(rows))
    said = capsys.readouterr().out
    assert f"hashed      {terms:,} terms, in {len(rows):,} of 5,000 indices\n" in said
    assert f"collisions  {terms - len(rows):,} terms" in said


@pytest.fixture
def forty_documents(tmp_path: Path, a_file_a_partition: None) -> Callable[[list[str]], Path]:
    """Lays out 40 documents that share the words, each once, and hold "often" twice."""

    def lay_out(words: list[str]) -> Path:
        mixed = np.random.default_rng(5).permutation(words)
        texts = [" ".join(mixed[k::40]) + " often often" for k in range(40)]
        return write_parts(pa.table({"id": pa.array(range(40)), "text": texts}), tmp_path / "in", 3)

    return lay_out


def first_terms(source: Path, tmp_path: Path, size: int) -> list[str]:
    """The vocabulary of `size` terms that the job chooses."""
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model", "--overwrite")
    assert featurize("--input", source, *outputs, "--max-features", size) == 0
    return FeatureModel.load(tmp_path / "model").terms.to_pylist()


def test_ties_at_the_edge_of_the_vocabulary_go_by_term(
    tmp_path: Path, forty_documents: Callable[[list[str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several tasks, as in a corpus of millions of terms."""
    monkeypatch.setattr(stages, "TASK_TERMS", 1000)
    source = forty_documents([f"w{i:05}" for i in range(6000)])
    for size in (1, 11, 3000):
        assert first_terms(source, tmp_path, size) == ["often", *(f"w{i:05}" for i in range(size - 1))]


def test_a_vocabulary_is_right_even_if_all_its_terms_fall_to_one_shard(
    tmp_path: Path, forty_documents: Callable[[list[str]], Path]
) -> None:
    words = pa.array([f"w{i:05}" for i in range(60_000)], pa.large_string())
    none = np.zeros(len(words), np.int64)
    one_shard = deal_counts(TermCounts(words, none, none), SHARDS)[7].terms.to_pylist()
    assert len(one_shard) > 150 > 4 * stages.shard_share(100)
    assert first_terms(forty_documents(one_shard), tmp_path, 100) == ["often", *sorted(one_shard)[:99]]


# Nothing about a run changes the result.


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_any_number_of_partitions_gives_the_same_hashes(
    parts: int, spark: Any, demo: Path, emails: pa.Table, tmp_path: Path, a_file_a_partition: None
) -> None:
    source = write_parts(emails, tmp_path / "in", parts)
    assert spark.read.parquet(str(source)).rdd.getNumPartitions() == parts
    assert featurize("--input", source, "--output", tmp_path / "out", "--model", tmp_path / "model") == 0
    assert manifest(tmp_path / "out") == manifest(demo / "features")
    assert json.loads((tmp_path / "model/manifest.json").read_text()) == json.loads(
        (demo / "model/manifest.json").read_text()
    )


@pytest.mark.parametrize("size", [100, 10_000, 0])
def test_any_arrow_batch_size_gives_the_same_hashes(
    size: int, demo: Path, tmp_path: Path, conf: Callable[[str, object], None]
) -> None:
    conf("spark.sql.execution.arrow.maxRecordsPerBatch", size)
    assert featurize("--input", EMAILS, "--output", tmp_path / "out", "--model", tmp_path / "model") == 0
    assert manifest(tmp_path / "out") == manifest(demo / "features")


def test_batches_of_one_row_give_the_same_hashes(
    emails: pa.Table, tmp_path: Path, conf: Callable[[str, object], None]
) -> None:
    source = write_parts(emails.slice(0, 150), tmp_path / "in", 1)
    found = []
    for size in (1, 10_000):
        conf("spark.sql.execution.arrow.maxRecordsPerBatch", size)
        outputs = ("--output", tmp_path / f"out-{size}", "--model", tmp_path / f"model-{size}")
        assert featurize("--input", source, *outputs) == 0
        found.append(manifest(tmp_path / f"out-{size}"))
    assert found[0] == found[1]
    assert found[0]["documents"] == 150


def test_a_worker_that_is_killed_once_in_every_stage_changes_nothing(
    demo: Path, emails: pa.Table, tmp_path: Path, a_file_a_partition: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker function of the job runs as it is, but its process dies after its first output, on first attempt."""
    real, deaths = stages.on_workers, tmp_path / "deaths"
    deaths.mkdir()

    def dying(spark: Any, function: str, *settings: Any) -> Any:
        run, mark = real(spark, function, *settings), str(deaths / function)

        def run_and_die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            for batch in run(batches):
                yield batch
                task = TaskContext.get()
                if task and task.attemptNumber() == 0 and task.partitionId() == 0:
                    Path(mark).touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        return run_and_die

    monkeypatch.setattr(stages, "on_workers", dying)
    source = write_parts(emails, tmp_path / "in", 2)
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, "--keep-counts") == 0
    names = sorted(path.name for path in deaths.iterdir())
    assert {"count", "first_terms", "keep_counts", "write_features"} <= set(names)
    assert manifest(tmp_path / "out") == manifest(demo / "features")
    assert FeatureModel.load(tmp_path / "model").id == FeatureModel.load(demo / "model").id
    kept = FeatureModel.fit(emails["text"], keep_counts=True).counts
    assert kept
    assert json.loads((tmp_path / "model/manifest.json").read_text())["counts"] == kept.summary
    assert len(pq.read_table(tmp_path / "model/counts")) == kept.terms


ON_A_TERMINAL = [sys.executable, "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"]


def submission(*arguments: object, master: str) -> tuple[list[str], dict[str, str]]:
    """The command of a spark-submit from the environment that runs the tests, and its environment variables."""
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    command = [Path(sys.executable).parent / "spark-submit", "--master", master, "--conf", "spark.ui.enabled=false"]
    return [str(part) for part in (*command, *arguments)], settings


def submit(*arguments: object, cwd: Path, master: str, terminal: bool = False) -> subprocess.CompletedProcess[str]:
    """spark-submit in a process of its own; on a terminal if wanted."""
    command, settings = submission(*arguments, master=master)
    return subprocess.run(
        [*(ON_A_TERMINAL if terminal else []), *command],
        cwd=cwd,
        env=settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )


def test_a_cluster_with_nothing_but_the_zip_gives_the_same_hashes(demo: Path, tmp_path: Path) -> None:
    """Two executors, another working directory, and the entry point without the code beside it."""
    shutil.copy(ROOT / "jobs/featurize.py", tmp_path / "entry.py")
    shutil.copy(session.archive(), tmp_path / "code.zip")
    done = submit(
        *("--py-files", "code.zip", "entry.py"),
        *("--input", EMAILS, "--output", "out", "--model", "model"),
        cwd=tmp_path,
        master="local-cluster[2,1,1024]",
    )
    assert done.returncode == 0, done.stderr
    assert manifest(tmp_path / "out") == manifest(demo / "features")
    assert FeatureModel.load(tmp_path / "model").id == FeatureModel.load(demo / "model").id
    assert "documents" in done.stdout
    assert "\tat " not in done.stderr  # a Java stack trace


# --apply and --overwrite.


def test_apply_gives_the_features_of_the_fit_and_leaves_the_model_alone(demo: Path, tmp_path: Path) -> None:
    before = snapshot(demo / "model")
    assert featurize("--input", EMAILS, "--output", tmp_path / "out", "--apply", demo / "model") == 0
    assert manifest(tmp_path / "out") == manifest(demo / "features")
    assert written(tmp_path / "out").equals(written(demo / "features"))
    assert snapshot(demo / "model") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_apply_to_other_text_is_the_transform_of_the_model(demo: Path, chinese: pa.Table, tmp_path: Path) -> None:
    source = write_parts(chinese.slice(0, 200), tmp_path / "in", 2)
    assert featurize("--input", source, "--output", tmp_path / "out", "--apply", demo / "model") == 0
    model = FeatureModel.load(demo / "model")
    expected = model.transform(chinese.slice(0, 200).sort_by("id")["text"])
    assert_same_bits(matrix(written(tmp_path / "out"), len(model.terms)), expected)
    assert manifest(tmp_path / "out")["model_id"] == model.id


def test_documents_without_a_known_term_are_counted(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("the\nщебетанье\n\n,;\n", "utf-8")
    assert featurize("--input", tmp_path / "in.txt", "--output", tmp_path / "out", "--apply", demo / "model") == 0
    assert "(3 documents hold none)" in capsys.readouterr().out
    assert manifest(tmp_path / "out")["empty"] == 3


SMALL: list[Any] = [{"id": f"d{i}", "text": text} for i, text in enumerate(["a b c", "b c", "c"])]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Three documents as JSON Lines."""
    return write_lines(tmp_path / "in/small.jsonl", SMALL)


def test_overwrite_replaces_output_and_model(small: Path, tmp_path: Path) -> None:
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", small, *outputs) == 0
    (tmp_path / "out/stray.parquet").write_bytes(b"from an earlier run")
    assert featurize("--input", small, *outputs, "--features", "count", "--overwrite") == 0
    model = FeatureModel.load(tmp_path / "model")
    assert model.config.features == "count"
    assert manifest(tmp_path / "out")["model_id"] == model.id
    assert not (tmp_path / "out/stray.parquet").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "model", "out"]


def failing(tmp_path: Path, small: Path) -> dict[str, tuple[list[object], int]]:
    """Runs that fail, and their exit codes."""
    rejects = write_lines(tmp_path / "bad/rejects.jsonl", [*SMALL, b"no json"])
    torn = tmp_path / "bad/torn.jsonl.gz"
    lines = b"".join(json.dumps({"id": f"d{i}", "text": f"word{i * 7919} b"}).encode() + b"\n" for i in range(20_000))
    torn.write_bytes(gzip.compress(lines)[:-5000])
    return {
        "rejects": (["--input", rejects], 3),
        "torn": (["--input", torn], 2),
        "no term": (["--input", small, "--min-df", "3", "--max-df", "0.1"], 2),
        "nothing": (["--input", write_lines(tmp_path / "bad/blank.jsonl", [b"", b"  "])], 2),
    }


@pytest.mark.parametrize("case", ["rejects", "torn", "no term", "nothing"])
def test_a_failed_run_leaves_the_old_output_as_it_was(
    case: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", small, *outputs) == 0
    arguments, expected = failing(tmp_path, small)[case]
    before, names = snapshot(tmp_path), sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    code = featurize(*arguments, *outputs, "--overwrite")
    assert snapshot(tmp_path) == before
    assert sorted(tmp_path.rglob("*")) == names  # no stage left
    said = capsys.readouterr()
    assert said.out == ""
    one_clear_line(said.err)
    assert code == expected


def some_bytes_zeroed(content: bytes) -> bytes:
    return content[:10] + bytes(20) + content[30:]


@pytest.mark.parametrize(
    ("name", "damage", "remedy"),
    [
        ("a. b%20.txt.gz", lambda content: gzip.compress(content)[:-30], "--salvage"),
        ("a. b%20.txt.bz2", lambda content: bz2.compress(content, 1)[:-30], "--salvage"),
        ("a. b%20.csv.gz", lambda content: gzip.compress(b"text\n" + content)[:-30], "--salvage"),
        ("a. b%20.parquet", some_bytes_zeroed, "leave it out"),
        ("a. b%20.parquet", lambda content: content[:-30], "leave it out"),
    ],
)
def test_a_truncated_or_damaged_file_is_named(
    name: str, damage: Callable[[bytes], bytes], remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{i} {i * i * 7919}" for i in range(80_000)]
    bad = tmp_path / "in" / name
    bad.parent.mkdir()
    if name.endswith(".parquet"):
        for path, rows in ((bad, 80_000), (bad.with_name("ok.parquet"), 1)):
            pq.write_table(pa.table({"text": lines[:rows]}), path)
        bad.write_bytes(damage(bad.read_bytes()))
    else:
        bad.write_bytes(damage("".join(line + "\n" for line in lines).encode()))
        bad.with_name("ok.csv" if ".csv" in name else "ok.txt").write_bytes(b"text\n")
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", bad.parent, *outputs) == 2
    line = one_clear_line(capsys.readouterr().err)
    unnamed = f"error: --input {bad.parent}: a compressed file is truncated or damaged ("  # by Spark 3.5
    old = pyspark.__version__.startswith("3.") and remedy == "--salvage" and ".txt" in name
    assert line.startswith(unnamed if old else f"error: --input {bad} is truncated or damaged (")
    assert remedy in line
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_reasons_that_differ_in_a_number_only_are_told_as_one(tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join("x" * size + "\n" for size in (5, 60, 70, 80)))
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, "--max-document-bytes", 50) == 3
    assert "(3 x such as 60 bytes of text, above the limit of 50)" in one_clear_line(capsys.readouterr().err)


def test_files_whose_columns_have_different_types_are_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, texts in (("a", ["a"]), ("b", [1])):
        write_parts(pa.table({"id": ["x"], "text": texts}), tmp_path / "in" / name, 1)
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", tmp_path / "in", *outputs) == 2
    assert re.search(
        r"column text is (string|bigint) in .*part-0.parquet, but", one_clear_line(capsys.readouterr().err)
    )


# Records of every kind.


REJECT_COLUMNS = [
    ("source", "string"),
    ("position", "bigint"),
    ("reason", "string"),
    ("kind", "string"),
    ("bytes", "binary"),
]


def test_rejects_blanks_and_repairs_add_up_and_are_kept(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [{"id": f"d{i}", "text": "a b"} for i in range(200)]
    bad = [b"{", b'{"id": "x"', b"", b" ", b'{"id": "r", "text": "caf\xe9 a"}', b'{"id": 7, "text": ["a"]}']
    source = write_lines(tmp_path / "in.jsonl", [*good, *bad])
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, "--max-rejects", "5%") == 0
    found = manifest(tmp_path / "out")
    assert found["records"] == 206
    assert found["blanks"] == 2
    assert found["repaired"] == 1
    assert found["documents"] + found["rejects"] + found["blanks"] == 206
    aside = spark.read.parquet(str(tmp_path / "out/_rejects"))
    fields = [(field.name, field.dataType.simpleString()) for field in aside.schema.fields]
    assert fields == REJECT_COLUMNS
    rows = {row.position: row for row in aside.collect()}
    assert sorted(rows) == [200, 201, 204, 205]
    assert {row.kind for position, row in rows.items() if position != 204} == {"reject"}
    assert (rows[204].kind, bytes(rows[204].bytes)) == ("repaired", bad[4])
    assert bytes(rows[200].bytes) == b"{"
    assert all(row.reason and row.source.endswith("in.jsonl") for row in rows.values())
    assert found["rejects"] == 3
    ids = written(tmp_path / "out")["id"].to_pylist()
    assert len(ids) == found["documents"] == 201
    assert "r" in ids
    assert "(3 rejects, 2 blanks, 1 repaired)" in capsys.readouterr().out


def test_rejects_can_be_read_where_there_are_none(spark: Any, demo: Path) -> None:
    aside = spark.read.parquet(str(demo / "features/_rejects"))
    fields = [(field.name, field.dataType.simpleString()) for field in aside.schema.fields]
    assert fields == REJECT_COLUMNS
    assert aside.count() == 0


@pytest.mark.parametrize(("limit", "code"), [("1.9%", 3), ("2%", 0), ("0.02", 0), ("0%", 3), ("100%", 0)])
def test_max_rejects_is_a_share_that_may_be_reached(
    limit: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{"id": i, "text": "a"} for i in range(49)] + [b"{"])
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, "--max-rejects", limit) == code
    assert (tmp_path / "out").exists() == (code == 0)
    if code:
        assert f"1 of 50 records (2.00%) of {source} were rejected" in one_clear_line(capsys.readouterr().err)


def test_salvage_keeps_what_is_before_the_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{i} {i * i * 7919}" for i in range(60_000)]
    torn = gzip.compress("".join(line + "\n" for line in lines).encode())[:-30_000]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt.gz").write_bytes(torn)
    (tmp_path / "in/b.txt").write_bytes(b"b\n")
    arguments = ("--input", tmp_path / "in", "--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize(*arguments) == 2
    assert "keep what is before the damage with --salvage" in one_clear_line(capsys.readouterr().err)
    assert featurize(*arguments, "--salvage") == 0
    found = manifest(tmp_path / "out")
    assert (found["rejects"], found["records"] - found["documents"]) == (1, 1)
    assert "(1 reject)" in capsys.readouterr().out
    (row,) = pq.read_table(sorted((tmp_path / "out/_rejects").glob("*.parquet"))).to_pylist()
    assert (row["source"], row["kind"]) == (str(tmp_path / "in/a.txt.gz"), "reject")
    assert row["position"] == found["records"] - 2
    assert lines[row["position"]].encode().startswith(row["bytes"])
    kept = [line.encode() for line in lines[: row["position"]]]
    assert written(tmp_path / "out")["id"].to_pylist() == sorted(expected_ids([*kept, b"b"]))


@pytest.mark.parametrize("ids", [["a", "b", "a", "c", "b", "a"], [7, 8, 7, 9, 8, 7]])
def test_check_ids_refuses_repeated_ids_and_names_some(
    ids: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], a_file_a_partition: None
) -> None:
    source = write_parts(pa.table({"id": ids, "text": ["x"] * 6}), tmp_path / "in", 3)
    arguments = ("--input", source, "--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize(*arguments) == 0  # without it they are kept
    assert written(tmp_path / "out")["id"].to_pylist() == sorted(ids)
    before = snapshot(tmp_path)
    capsys.readouterr()
    assert featurize(*arguments, "--overwrite", "--check-ids") == 2
    line = one_clear_line(capsys.readouterr().err)
    assert f"2 ids of {source} occur more than once, such as {ids[0]!r} (3 times), {ids[1]!r} (2 times): make" in line
    assert snapshot(tmp_path) == before
    source = write_parts(pa.table({"id": ids[1:4], "text": ["x"] * 3}), tmp_path / "unique", 2)
    assert featurize("--input", source, *arguments[2:], "--overwrite", "--check-ids") == 0


def test_check_ids_has_nothing_to_look_for_among_hashes(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "in.txt").write_text("a\na\nb\n")
    jobs = []
    for option in ((), ("--check-ids",)):
        outputs = ("--output", tmp_path / f"out{len(option)}", "--model", tmp_path / f"model{len(option)}")
        before = latest_job(spark)
        assert featurize("--input", tmp_path / "in.txt", *outputs, *option) == 0
        jobs.append(latest_job(spark) - before)
    assert jobs[0] == jobs[1]


def test_what_parquet_has_no_type_for_is_carried_as_it_is_stored(spark: Any, tmp_path: Path) -> None:
    from datetime import timedelta

    columns = {"duration": pa.array([timedelta(1), None]), "nothing": pa.nulls(2)}
    source = write_parts(pa.table({"id": ["a", "b"], "text": ["x", "y"], **columns}), tmp_path / "in", 1)
    assert featurize("--input", source, "--output", tmp_path / "out", "--model", tmp_path / "model") == 0
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("id").select(*columns).collect()
    assert [tuple(row) for row in rows] == [(86_400_000_000, None), (None, None)]


LINES = ["one", "two", "", "one", "zwei drei", "one", "", "two", "two words", "é", "e\u0301"]


def expected_ids(records: list[bytes]) -> list[str]:
    """The definition: the hash in hex, and -k for the k-th repetition."""
    seen: Counter[str] = Counter()
    found = []
    for record in records:
        name = mmh3.mmh3_x64_128_digest(record).hex()
        found.append(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


@pytest.mark.parametrize("files", [1, 4])
def test_lines_without_an_id_are_named_by_their_hash(files: int, tmp_path: Path, a_file_a_partition: None) -> None:
    """Equal lines get -1, -2, …: the same ids whatever file and partition they are in."""
    (tmp_path / "in").mkdir()
    for k in range(files):
        (tmp_path / f"in/{k}.txt").write_bytes("".join(line + "\n" for line in LINES[k::files]).encode())
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", tmp_path / "in", *outputs) == 0
    ids = written(tmp_path / "out")["id"].to_pylist()
    assert ids == sorted(expected_ids([line.encode() for line in LINES]))


def test_rows_without_an_id_are_the_same_for_any_partitioning(tmp_path: Path, a_file_a_partition: None) -> None:
    texts = ["a b", "c", "a b", None, "", "a b", "c", None]
    table = pa.table({"text": pa.array(texts), "label": ["x", "y", "x", "x", "x", "y", "y", "x"]})
    found = []
    for parts in (1, 3, 8):
        source = write_parts(table, tmp_path / f"in-{parts}", parts)
        outputs = ("--output", tmp_path / f"out-{parts}", "--model", tmp_path / "model", "--overwrite")
        assert featurize("--input", source, *outputs) == 0
        rows = written(tmp_path / f"out-{parts}")
        ids = rows["id"].to_pylist()
        assert all(re.fullmatch(r"[0-9a-f]{32}(-[1-9][0-9]*)?", name) for name in ids)
        assert len(set(ids)) == len(texts)
        found.append((ids, rows["label"].to_pylist(), manifest(tmp_path / f"out-{parts}")["content_hash"]))
    assert found[0] == found[1] == found[2]


def test_repeats_are_counted_across_blocks_of_a_partition(tmp_path: Path, conf: Callable[[str, object], None]) -> None:
    """A block holds about 16 MB of text: here are four, in one partition."""
    conf("spark.sql.files.maxPartitionBytes", 1 << 30)
    line = "repeated words " * 600
    texts = [line if k % 10 == 0 else f"{k} {line}" for k in range(6000)]
    (tmp_path / "in.txt").write_text("".join(text + "\n" for text in texts), "utf-8")
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", tmp_path / "in.txt", *outputs, "--features", "count") == 0
    rows = written(tmp_path / "out")
    assert rows["id"].to_pylist() == sorted(expected_ids([text.encode() for text in texts]))
    assert FeatureModel.load(tmp_path / "model").df.max() == 6000


@pytest.mark.parametrize(
    ("labels", "name", "expected"),
    [
        (pa.array(["ham", "spam", None]), "label", ["ham", "spam", None]),
        (pa.array([1, -2, None], pa.int32()), "label", ["1", "-2", None]),
        (pa.array([1, 9007199254740993, None], pa.int64()), "label", ["1", "9007199254740993", None]),
        (pa.array([True, False, None]), "label", ["true", "false", None]),
        (pa.array([["a", "b"], [], None], pa.list_(pa.string())), "labels", [["a", "b"], [], None]),
    ],
)
def test_labels_of_every_type(
    labels: pa.Array, name: str, expected: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"id": ["d0", "d1", "d2"], "text": ["a b", "b", "c"], "topic": labels})
    source = write_parts(table, tmp_path / "in", 1)
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, "--label", "topic") == 0
    rows = written(tmp_path / "out")
    assert rows.column_names == ["id", name, "indices", "values", "content"]
    assert rows[name].to_pylist() == expected
    shown = re.findall(r"^  (\S+) +[abc]\b", capsys.readouterr().out, re.MULTILINE)
    assert shown == sorted({label for given in expected if given for label in ([given] if name == "label" else given)})


def test_the_summary_shows_the_most_frequent_labels(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "LABELS", 2)
    model = FeatureModel.fit(pa.array(["a", "b", "c"]))
    columns = {"indices": pa.array([[0], [1], [2]], pa.list_(pa.int32())), "values": [[1.0]] * 3}
    pq.write_table(pa.table({"labels": [["x", "y"], ["z", "x"], ["z"]], **columns}), tmp_path / "rows.parquet")
    assert summary._top_terms(spark, str(tmp_path), model) == {"x": ["a", "b"], "z": ["b", "c"]}


def test_large_integer_ids_survive_nulls_and_other_columns_are_carried_along(spark: Any, tmp_path: Path) -> None:
    """Case arrow-03: through pandas, 2^53 + 1 beside a null would come back as 2^53."""
    from datetime import UTC, date
    from decimal import Decimal

    odd = ["a.b", "", "`", "``", "nul\0", "line\n", "start", "0"]
    table = pa.table(
        {
            "number": pa.array([9007199254740993, None, 5], pa.int64()),
            "text": ["a", "b", None],
            "id": pa.array([9007199254740993, -(1 << 63), (1 << 63) - 1], pa.int64()),
            "nested": pa.array([{"x": [1, None]}, None, {"x": []}], pa.struct([("x", pa.list_(pa.int32()))])),
            "price": pa.array([Decimal("1.10"), None, Decimal("-2.00")], pa.decimal128(9, 2)),
            "day": pa.array([date(1969, 12, 31), None, date(2026, 11, 30)]),
            "at": pa.array([datetime(2026, 11, 30, 1, 2, 3, 456789, UTC), None, None], pa.timestamp("us", "UTC")),
            "raw": pa.array([b"\xff\x00", None, b""]),
            **{name: ["x", None, "z"] for name in odd},
        }
    )
    source = write_parts(table, tmp_path / "in", 1)
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs) == 0
    rows = spark.read.parquet(str(tmp_path / "out"))
    before = spark.read.parquet(str(source))
    carried = ["number", "nested", "price", "day", "at", "raw", *odd]
    assert rows.columns == ["id", "indices", "values", "content", *carried]
    assert [rows.schema[name].dataType for name in ["id", *carried]] == [
        before.schema[name].dataType for name in ["id", *carried]
    ]
    quoted = [f"`{name.replace('`', '``')}`" for name in ["id", *carried]]
    assert rows.select(*quoted).orderBy("id").collect() == before.select(*quoted).orderBy("id").collect()


def test_dictionary_encoded_text_is_read_as_its_strings(tmp_path: Path) -> None:
    """Case arrow-06: each file has a dictionary of its own, in which the same number is another word."""
    (tmp_path / "in").mkdir()
    for k, texts in enumerate([["a", "b", None, "a"], ["b", "c", "b", None]]):
        table = pa.table({"id": [f"{k}-{i}" for i in range(4)], "text": pa.array(texts).dictionary_encode()})
        pq.write_table(table, tmp_path / f"in/{k}.parquet")
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model", "--features", "count")
    assert featurize("--input", tmp_path / "in", *outputs) == 0
    model = FeatureModel.load(tmp_path / "model")
    assert list(zip(model.terms.to_pylist(), model.cf.tolist(), strict=True)) == [("a", 2), ("b", 3), ("c", 1)]
    assert written(tmp_path / "out")["indices"].to_pylist() == [[0], [1], [], [0], [1], [2], [1], []]


def test_partitions_without_a_row_do_no_harm(tmp_path: Path, a_file_a_partition: None) -> None:
    """Case arrow-07."""
    table = pa.table({"id": ["only"], "text": ["a b a"]})
    source = write_parts(table, tmp_path / "in", 4)
    assert len(list(source.iterdir())) == 4
    assert featurize("--input", source, "--output", tmp_path / "out", "--model", tmp_path / "model") == 0
    assert written(tmp_path / "out")["id"].to_pylist() == ["only"]


def test_names_with_commas_brackets_and_spaces_are_taken_literally(tmp_path: Path) -> None:
    folder = tmp_path / "a,b [1] {x} %20 é"
    source = write_lines(folder / "in [2],*.jsonl", SMALL)
    write_lines(folder / "in 2x.jsonl", [{"id": "other", "text": "z"}])
    outputs = ("--output", folder / "out,[1] y", "--model", folder / "model {1}")
    assert featurize("--input", source, *outputs) == 0
    assert written(folder / "out,[1] y")["id"].to_pylist() == ["d0", "d1", "d2"]
    assert featurize("--input", source, "--output", folder / "again?", "--apply", folder / "model {1}") == 0
    assert manifest(folder / "again?") == manifest(folder / "out,[1] y")


# Mistakes.


def one_clear_line(stderr: str) -> str:
    """The error line of a job, which must be all that it said."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    assert len(lines) == 1, stderr
    line = lines[0]
    assert not re.search(r"Traceback|Exception|java\.|org\.apache|py4j|\bat [a-z.]+\(|NoneType", line), line
    assert len(line) < 600
    return line


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--colour red", "--colour red (--help"),
        ("--outpu x", "unrecognized arguments: --outpu x: did you mean --output?"),
        ("--n-grams=2 --maxfeatures 5", "did you mean --ngrams, --max-features?"),
        ("--features tf-idf", "tf-idf"),
        ("--ngrams 2,1", "(2, 1)"),
        ("--ngrams 1,2,3", "1,2,3"),
        ("--ngrams one", "one"),
        ("--ngrams 0", "0"),
        ("--min-df 0", "min-df"),
        ("--min-df 1.5", "1.5"),
        ("--min-df many", "many"),
        ("--max-df -1", "max-df"),
        ("--max-features 0", "0"),
        ("--max-features all", "all"),
        ("--max-rejects 101%", "101%"),
        ("--max-rejects nan", "nan"),
        ("--max-document-bytes 16XB", "16XB"),
        ("--max-document-bytes 0", "'0' is not a size from 1 to 1GB"),
        ("--max-rejects 2", "'2' is not a percentage from 0% to 100%, or a share from 0 to 1"),
        ("--max-features 0", "'0' is not a number of at least 1, or none"),
        ("--user-dict absent", "--user-dict is for --tokenizer jieba"),
        ("--tokens T --tokenizer char_wb", "--tokens keeps words and their places, which tokenizer char_wb has not"),
        ("--max-document-bytes 1025MB", "1025MB"),
        ("--norm max", "max"),
        ("--idf bm25", "bm25"),
        ("--features count --idf plain", "idf"),
        ("--features onehot --sublinear-tf", "sublinear-tf"),
        ("--tokenizer regex", "pattern"),
        ("--pattern [a-z]+", "pattern"),
        ("--tokenizer regex --pattern [a-z", "[a-z"),
        ("--stop-words klingon", "klingon"),
        ("--preset sklearn --tokenizer word", "--tokenizer"),
        ("--preset gensim", "gensim"),
        ("--preset sklearn --emoji", "--emoji"),
        ("--hash-report", "--hash N"),
        ("--tokenizer whitespace --keep-urls", "keep-urls"),
        ("--tokenizer jieba --user-dict nosuch.txt", "nosuch.txt"),
        ("--user-dict LICENSE", "user-dict"),
        ("--format xml", "xml"),
        ("--output s3a://bucket/features", "--output s3a://bucket/features is in an object store"),
        ("--text body", "body"),
        ("--id key", "key"),
        ("--label topic", "topic"),
        ("--label text", "asked for twice"),
        ("--id TEXT", "asked for twice"),
        ("--apply nosuch://host/model", "--model"),
        (f"--stop-words {'the,' * 100}and", "'the' is neither a file nor a language"),
        ("--tokenizer regex --pattern a{99999999999}", "a{99999999999}"),
        ("--apply MODEL", "--model"),
        ("--apply MODEL --keep-counts", "leave out --model, --keep-counts"),
        ("stray", "stray"),
        ("--stop-words=", "--stop-words is empty"),
        ("--text=", "--text is empty"),
        ("--apply=", "--apply is empty"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_2(
    options: str, told: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", small, *outputs, *options.split()) == 2
    said = capsys.readouterr()
    assert told in one_clear_line(said.err)
    assert said.out == ""
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("options", "code"), [("--colour red", 2), ("--min-df 1.5", 2), ("--max-rejects 0%", 3)])
def test_an_error_in_json_has_the_same_words(
    options: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "in é.jsonl", [*SMALL, b"{"])
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    said = []
    for given in ([], ["--log-json"]):
        assert featurize("--input", source, *outputs, *options.split(), *given) == code
        said.append(one_clear_line(capsys.readouterr().err))
    found = json.loads(said[1])
    assert sorted(found) == ["exit_code", "level", "message", "time"]
    assert (found["level"], found["exit_code"], f"error: {found['message']}") == ("ERROR", code, said[0])
    assert said[1].isascii()  # stderr may have any encoding


@pytest.fixture
def untouched(spark: Any, conf: Callable[[str, object], None]) -> Callable[[], bool]:
    """Whether the job has not asked for a session so far: it would set the session's time zone."""
    conf("spark.sql.session.timeZone", "Asia/Tokyo")
    return lambda: spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--input IN/absent.jsonl --output OUT --model MODEL", "absent.jsonl"),
        ("--input IN/empty --output OUT --model MODEL", "empty"),
        ("--input IN/zero.jsonl --output OUT --model MODEL", "zero.jsonl"),
        ("--input IN/mixed --output OUT --model MODEL", "--format"),
        ("--input IN/unknown.xyz --output OUT --model MODEL", "--format"),
        ("--input IN/not.parquet --output OUT --model MODEL", "not.parquet"),
        ("--input IN/numbers.parquet --output OUT --model MODEL", "text"),
        ("--input IN/small.jsonl --output OUT", "--model"),
        ("--input IN/small.jsonl --model MODEL", "--output"),
        ("--output OUT --model MODEL", "--input"),
        ("--input IN/small.jsonl --output OUT --apply IN", "IN"),
        ("--input IN/small.jsonl --output OUT --apply IN/absent", "absent"),
        ("--input IN/small.jsonl --output IN/small.jsonl --model MODEL --overwrite", "is a file"),
        ("--input IN/small.jsonl --output IN/small.jsonl/out --model MODEL", "small.jsonl"),
        ("--input IN/mixed --format jsonl --output IN/mixed/out --model MODEL", "lies in"),
        ("--input IN/small.jsonl --output IN --model MODEL --overwrite", "lies in"),
        ("--input IN/small.jsonl --output OUT --model OUT/model", "lies in"),
        ("--input IN/small.jsonl --output OUT --model OUT", "lies in"),
        ("--input IN/small.jsonl --output OUT --model IN/small.jsonl/model", "small.jsonl"),
        ("--input nosuch://host/in --output OUT --model MODEL", "nosuch"),
        ("--input IN/small.jsonl --output OUT --apply nosuch://host/model", "nosuch"),
        ("--input IN/link/mixed --format jsonl --output IN --model MODEL --overwrite", "lies in"),
        ("--input IN/mixed --format jsonl --output IN/link/mixed --model MODEL --overwrite", "lies in"),
        ("--input IN/mixed --format jsonl --output IN/link/mixed/out --model MODEL", "lies in"),
        ("--input IN/small.jsonl --output nosuch://host/out --model MODEL", "nosuch"),
    ],
)
def test_a_mistake_in_a_path_is_one_clear_line_and_exit_2(
    arguments: str,
    told: str,
    small: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    untouched: Callable[[], bool],
) -> None:
    """And told before a session starts, unless Spark has to look at columns for it."""
    (tmp_path / "in/empty").mkdir()
    (tmp_path / "in/zero.jsonl").touch()
    write_lines(tmp_path / "in/mixed/a.jsonl", SMALL)
    write_lines(tmp_path / "in/mixed/b.csv", [b"text", b"a"])
    write_lines(tmp_path / "in/unknown.xyz", SMALL)
    (tmp_path / "in/link").symlink_to(tmp_path / "in")
    write_lines(tmp_path / "in/not.parquet", SMALL)
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "in/numbers.parquet")
    before = snapshot(tmp_path)
    places = {"IN": tmp_path / "in", "OUT": tmp_path / "out", "MODEL": tmp_path / "model"}
    filled = [re.sub("IN|OUT|MODEL", lambda name: str(places[name[0]]), part) for part in arguments.split()]
    assert featurize(*filled) == 2
    said = capsys.readouterr()
    assert re.sub("IN|OUT|MODEL", lambda name: str(places[name[0]]), told) in one_clear_line(said.err)
    assert said.out == ""
    assert snapshot(tmp_path) == before
    assert untouched() == ("numbers.parquet" not in arguments)


@pytest.mark.parametrize("option", ["--output", "--model"])
def test_a_place_that_cannot_be_written_is_told_before_the_text_is_read(
    option: str, small: Path, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    job = latest_job(spark)
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    places = {"--output": tmp_path / "new/out", "--model": tmp_path / "new/model", option: tmp_path / "file/deep/x"}
    assert featurize("--input", small, *[part for pair in places.items() for part in pair]) == 2
    assert one_clear_line(capsys.readouterr().err).startswith(f"error: {option}: cannot write beside")
    assert sorted(tmp_path.rglob("*")) == before
    assert latest_job(spark) == job
    assert featurize("--input", small, "--output", tmp_path / "out", "--model", tmp_path / "model") == 0
    assert latest_job(spark) > job


@pytest.mark.parametrize("exists", ["--output", "--model"])
def test_an_output_that_exists_is_refused_before_anything_is_read(
    exists: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], untouched: Callable[[], bool]
) -> None:
    places = {"--output": tmp_path / "out", "--model": tmp_path / "model"}
    places[exists].mkdir()
    (places[exists] / "precious").write_text("mine")
    arguments = [part for pair in places.items() for part in pair]
    assert featurize("--input", tmp_path / "absent", *arguments) == 2
    line = one_clear_line(capsys.readouterr().err)
    assert exists in line
    assert "--overwrite" in line
    assert snapshot(tmp_path) == {f"{places[exists].name}/precious": b"mine"}
    assert untouched()


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (["!!!", "\u200d\u0301", ""], ""),
        (["\u3000 \t"], "--tokenizer whitespace"),
        (["the and", "The"], "--stop-words en"),
        (["abc"], "--tokenizer regex --pattern \\d"),
    ],
)
def test_a_corpus_without_a_term_is_a_mistake_that_is_told(
    texts: list[str], options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "in.txt", [text.encode() for text in texts])
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, *options.split()) == 2
    assert "no term is left in" in one_clear_line(capsys.readouterr().err)
    assert snapshot(tmp_path) == {"in.txt": source.read_bytes()}


def test_a_share_of_rejects_that_is_just_allowed_is_allowed(tmp_path: Path) -> None:
    lines = [b'{"text": "fine"}'] * 71 + [b"{"] * 29
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model", "--overwrite")
    source = write_lines(tmp_path / "in.jsonl", lines)
    assert featurize("--input", source, *outputs, "--max-rejects", "29%") == 0
    assert featurize("--input", source, *outputs, "--max-rejects", "28.99%") == 3


def test_a_model_that_was_changed_is_refused(demo: Path, small: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.copytree(demo / "model", tmp_path / "model")
    changed = json.loads((tmp_path / "model/config.json").read_text())
    changed["features"]["norm"] = "l1"
    (tmp_path / "model/config.json").write_text(json.dumps(changed))
    assert featurize("--input", small, "--output", tmp_path / "out", "--apply", tmp_path / "model") == 2
    line = one_clear_line(capsys.readouterr().err)
    assert "changed" in line
    assert str(tmp_path / "model") in line  # the folder that was given, not a copy of it


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert featurize("--help") == 0
    said = capsys.readouterr().out
    for option in ("--input", "--apply", "--preset", "--max-rejects", "--stop-words", "--overwrite"):
        assert option in said


NOISE = r"WARNING: Using incubator modules|Using Spark.s default log4j profile|Setting Spark log level|" + (
    r".*WARN (Utils|NativeCodeLoader):|[0-9/]+ [0-9:]+ INFO|[0-9:]{8} count:"
)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [(["--min-df", "x"], 2, "--min-df"), (["--max-rejects", "0%"], 3, "1 of 4 records")],
)
def test_spark_submit_says_one_line_without_java(options: list[str], code: int, told: str, tmp_path: Path) -> None:
    """Beside what Spark says before a job can quieten it. A driver's stderr comes out of spark-submit's stdout."""
    source = write_lines(tmp_path / "in.jsonl", [*SMALL, b"{"])
    outputs = ("--output", "out", "--model", "model")
    done = submit(ROOT / "jobs/featurize.py", "--input", source, *outputs, *options, cwd=tmp_path, master="local[1]")
    assert done.returncode == code, done.stderr
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not re.match(NOISE, line)]
    assert told in one_clear_line("\n".join(lines))
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("python", "told"),
    [("/nowhere/python", "PYSPARK_PYTHON /nowhere/python cannot be"), ("bare/bin/python", "has no pyarrow: install")],
)
def test_a_python_that_workers_cannot_use_is_one_clear_line(python: str, told: str, tmp_path: Path) -> None:
    if python.startswith("bare"):
        venv.create(tmp_path / "bare", with_pip=False)
        python = str(tmp_path / python)
    source = write_lines(tmp_path / "in.jsonl", SMALL)
    outputs = ("--output", "out", "--model", "model")
    command, settings = submission(ROOT / "jobs/featurize.py", "--input", source, *outputs, master="local[1]")
    done = subprocess.run(
        command, cwd=tmp_path, env={**settings, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not re.match(NOISE, line)]
    assert told in one_clear_line("\n".join(lines))
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()


def living(session: int) -> dict[int, str]:
    """The processes of a session, zombies aside, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, _, its = folder.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and state != "Z":
                found[int(folder.name)] = folder.joinpath("cmdline").read_text().replace("\0", " ")
    return found


def wait_until(what: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("options", [[], ["--log-json"]])
def test_ctrl_c_while_the_imports_run_is_one_line(options: list[str], tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, ROOT / "jobs/featurize.py", *options], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: "libarrow" in Path(f"/proc/{job.pid}/maps").read_text())
    job.send_signal(signal.SIGINT)
    said = job.communicate(timeout=60)[1]
    line = f"error: {json.loads(said)['message']}\n" if options else said
    assert line == "error: interrupted; the old output is as it was\n"
    assert job.returncode == 130


@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_is_one_line_and_leaves_nothing_behind(whole_group: bool, tmp_path: Path) -> None:
    """As the terminal sends it, to spark-submit and all that it started, or to the driver's Python alone."""
    block = "".join(f"w{i * 7919} a b c {i % 977} d e\n" for i in range(40_000))
    with (tmp_path / "in.txt").open("w") as file:
        file.writelines([block] * 40)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/precious").write_text("mine")
    outputs = ("--output", "out", "--model", "model", "--overwrite")
    command, settings = submission(ROOT / "jobs/featurize.py", "--input", "in.txt", *outputs, master="local[1]")
    job = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: [*tmp_path.glob(".out.stage/run-*/count/_temporary/0/_temporary/*/kind=blocks/*")])
    if whole_group:
        os.killpg(job.pid, signal.SIGINT)
    else:
        python = [pid for pid, line in living(job.pid).items() if re.match(r"\S*python\S* \S*featurize.py", line)]
        os.kill(python[0], signal.SIGINT)
    said = job.communicate(timeout=60)[0]
    assert job.returncode == 130, said
    lines = [line for line in said.splitlines() if not re.match(NOISE, line)]
    assert one_clear_line("\n".join(lines)) == "error: interrupted; the old output is as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out"]
    assert snapshot(tmp_path / "out") == {"precious": b"mine"}
    wait_until(lambda: not living(job.pid), 10)


def test_what_fails_after_ctrl_c_does_not_hide_it(capsys: pytest.CaptureFixture[str]) -> None:
    def job(_: list[str]) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("Answer from Java side is empty")

    assert session.exit_code(job, []) == 130
    assert one_clear_line(capsys.readouterr().err) == "error: interrupted; the old output is as it was"


def test_the_log_as_json_is_all_that_a_job_says(tmp_path: Path) -> None:
    """Also on a terminal, where there would be live progress: log lines, and the manifest in place of the summary."""
    write_lines(tmp_path / "in/small.jsonl", SMALL)
    write_lines(tmp_path / "in/_hidden.jsonl", SMALL)
    outputs = ("--output", "out", "--model", "model", "--log-json")
    done = submit(
        *(ROOT / "jobs/featurize.py", "--input", "in", *outputs), cwd=tmp_path, master="local[1]", terminal=True
    )
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if not re.match(NOISE, line)]
    *log, last = [json.loads(line) for line in lines]
    assert last == manifest(tmp_path / "out")
    assert [(each["level"], each.get("stage"), each.get("documents")) for each in log] == [
        ("WARNING", None, None),
        ("INFO", "count", 3),
        ("INFO", "fit", 3),
        ("INFO", "transform", 3),
    ]
    assert log[0]["message"].startswith("input: 1 hidden")
    assert all(each["seconds"] > 0 for each in log[1:])
    for each in log:
        assert datetime.fromisoformat(each["time"]).utcoffset() == timedelta(0)


def test_spark_submit_shows_live_progress_on_a_terminal(tmp_path: Path) -> None:
    """Though spark-submit puts a pipe between the driver's Python and the terminal."""
    outputs = ("--output", "out", "--model", "model")
    done = submit(
        *(ROOT / "jobs/featurize.py", "--input", EMAILS, *outputs), cwd=tmp_path, master="local[1]", terminal=True
    )
    assert done.returncode == 0, done.stdout
    # subprocess's text mode has turned the carriage return into a line feed
    assert re.search(r"\n\x1b\[Kcount  [\d,]+ documents  [\d,]+/s", done.stdout), done.stdout
