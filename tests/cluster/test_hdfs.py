"""The main job on HDFS: names, what users of other libraries ran into, and what HDFS refuses: a clear line for each."""

from __future__ import annotations

import bz2
import gzip
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.outputs import FileSystem
from tests.cluster.processes import ROOT, Cluster, cluster
from tests.jobs.test_cases_input import case, rows
from tests.jobs.test_corpus import COMPRESSED, mistake, texts, write
from tests.jobs.test_failures import small_disk
from tests.jobs.test_featurize import EMAILS, featurize, one_clear_line

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def fs(spark: Any, hadoop: Cluster) -> FileSystem:
    return FileSystem(f"{hadoop.hdfs}/")


@pytest.fixture
def put(fs: FileSystem, hadoop: Cluster, tmp_path: Path) -> Callable[[dict[str, bytes]], str]:
    """Put files into a new folder of HDFS; returns its address."""
    folders = iter(range(99))

    def put(files: dict[str, bytes]) -> str:
        place = f"{hadoop.hdfs}/{tmp_path.name}/{next(folders)}"
        for name, content in files.items():
            write(tmp_path / "local" / name, content)
            fs.mkdirs(f"{place}/{name}".rpartition("/")[0])
            fs.upload(tmp_path / "local" / name, f"{place}/{name}")
        return place

    return put


def manifest(fs: FileSystem, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = fs.read_json(f"{folder}/_manifest.json")
    return found


# Names.


@pytest.mark.parametrize(
    "name", ["with space", "语料", "100%25", "%2e%2e", "a,b{c}[d]*?", "dt=2026-11-30", "+&#'\"!", "\\"]
)
def test_names_of_folders_files_outputs_and_models_are_literal(
    name: str, fs: FileSystem, put: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = put({f"{name}/{name}.txt": b"a b\na\n", "other/x.txt": b"c\n"})
    told = ("--input", f"{place}/{name}", "--output", f"{place}/{name}.out", "--model", f"{place}/{name}.model")
    assert featurize(*told) == 0, capsys.readouterr().err
    assert featurize(*told, "--overwrite") == 0
    assert manifest(fs, f"{place}/{name}.out")["documents"] == 2
    assert fs.names(place) == sorted([name, f"{name}.out", f"{name}.model", "other"])
    applied = (
        "--input",
        f"{place}/{name}/{name}.txt",
        "--output",
        f"{place}/again",
        "--apply",
        f"{place}/{name}.model",
    )
    assert featurize(*applied) == 0
    assert manifest(fs, f"{place}/again")["content_hash"] == manifest(fs, f"{place}/{name}.out")["content_hash"]


def test_outputs_may_lie_in_the_root(fs: FileSystem, put: Callable[..., str], hadoop: Cluster) -> None:
    place = put({"in.txt": b"a b\n"})
    outputs = ("--output", f"{hadoop.hdfs}/root-out", "--model", f"{hadoop.hdfs}/root-model")
    assert featurize("--input", f"{place}/in.txt", *outputs) == 0
    assert featurize("--input", f"{place}/in.txt", *outputs, "--overwrite") == 0
    assert {"root-out", "root-model"} <= set(fs.names(f"{hadoop.hdfs}/"))
    assert not [name for name in fs.names(f"{hadoop.hdfs}/") if name.startswith(".")]


def test_a_colon_is_no_part_of_a_name_on_hdfs(put: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    place = put({"in.txt": b"a\n"})
    for given in (
        ("--input", f"{place}/10:30", "--output", f"{place}/out", "--model", f"{place}/model"),
        ("--input", f"{place}/in.txt", "--output", f"{place}/10:30", "--model", f"{place}/model"),
    ):
        assert featurize(*given) == 2
        assert re.search(r"10:30.*(colon|valid|exist)", one_clear_line(capsys.readouterr().err))


# The handed cases.


def test_a_path_is_literal_and_no_pattern(spark: Any, put: Callable[..., str]) -> None:
    given, expected = case("hdfs-01")
    place = put({name: content.encode() for name, content in given["files"].items()})
    assert [rows(spark, f"{place}/{name}") for name in given["read"]] == [[content] for content in expected["content"]]


def test_hidden_and_unfinished_files_are_left_out_and_reported(
    spark: Any, put: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    given, expected = case("hdfs-03")
    place = put({name: name.encode() for name in given["files"]})
    with caplog.at_level(logging.WARNING, "textmill"):
        assert texts(spark, place, form="text") == sorted(expected["read"])
    assert f"{len(expected['skipped_and_reported'])} hidden or unfinished files are left out" in caplog.text
    assert "hidden from Spark by its name" in mistake(spark, f"{place}/_a.txt", form="text")


def test_what_is_read_is_never_overwritten_and_a_failure_leaves_the_old(
    spark: Any, fs: FileSystem, put: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    given, expected = case("hdfs-05")
    lines = [f'{{"id": {i}, "text": "t{i}"}}\n'.encode() for i in range(given["cases"][1]["existing_rows"])]
    place = put({"P/a.jsonl": b"".join(lines), "bad/a.txt.gz": gzip.compress(os.urandom(100_000))[:-30]})
    own = ("--input", f"{place}/P", "--output", f"{place}/P", "--model", f"{place}/m", "--overwrite")
    assert featurize(*own) == 2
    assert "lies in" in one_clear_line(capsys.readouterr().err)
    places = ("--output", f"{place}/out", "--model", f"{place}/m")
    assert featurize("--input", f"{place}/P", *places) == 0
    assert featurize("--input", f"{place}/bad", *places, "--overwrite") == 2
    assert manifest(fs, f"{place}/out")["documents"] == expected["rows_after"][1]
    assert fs.names(place) == ["P", "bad", "m", "out"]


def test_every_member_of_a_compressed_file_is_read_and_a_truncated_one_is_an_error(
    spark: Any, put: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    given, expected = case("hdfs-06")
    members = [bytes.fromhex(member) for member in given["gz"]["members_hex"]]
    for suffix, compress in ((".gz", gzip.compress), (".bz2", bz2.compress), (".zst", COMPRESSED[".zst"])):
        whole = put({f"a.txt{suffix}": b"".join(map(compress, members))})
        assert rows(spark, f"{whole}/a.txt{suffix}") == expected["lines"][0]
        cut = put({f"a.txt{suffix}": compress(b"".join(b"%d\n" % (i * 7919) for i in range(9999)))[:-30]})
        assert featurize("--input", cut, "--output", f"{whole}/out", "--model", f"{whole}/m") == 2
        assert "truncated or damaged" in one_clear_line(capsys.readouterr().err)
    assert "is compressed by" in mistake(spark, put({"noext": gzip.compress(b"a\n" * 9)}), form="text")


def test_lines_end_at_lf_and_malformed_ones_are_kept_aside(spark: Any, fs: FileSystem, put: Callable[..., str]) -> None:
    given, expected = case("hdfs-08")
    place = put({"a.jsonl": "".join(line + "\n" for line in given["lines"]).encode()})
    options = ("--output", f"{place}/out", "--model", f"{place}/m", "--max-rejects", "100%")
    assert featurize("--input", f"{place}/a.jsonl", *options) == 0
    found = manifest(fs, f"{place}/out")
    assert (found["rejects"], found["blanks"], found["records"]) == (expected["bad_lines"], 1, len(given["lines"]))
    given, expected = case("hdfs-09")
    also = put({"a.txt": bytes.fromhex(given["also"]["bytes_hex"])})
    assert rows(spark, f"{also}/a.txt") == expected["also_lf_records"]


# What HDFS refuses.


AS_ANOTHER = """
import sys

sys.path.insert(0, sys.argv[1])
from jobs.featurize import main
from jobs.session import exit_code

place = sys.argv[2]
own = ("--output", f"{place}/alice/o")
for arguments in (
    ("--input", f"{place}/in.txt", "--output", f"{place}/out", "--model", f"{place}/model"),
    ("--input", f"{place}/secret", *own, "--model", f"{place}/alice/m"),
    ("--input", f"{place}/in.txt", *own, "--apply", f"{place}/secret"),
):
    print(exit_code(main, list(arguments)))
"""


def test_permission_denied_is_one_line(
    fs: FileSystem, put: Callable[..., str], hadoop: Cluster, tmp_path: Path
) -> None:
    place = put({"in.txt": b"a\n", "secret/in.txt": b"a\n"})
    path = place.removeprefix(hadoop.hdfs)
    fs.mkdirs(f"{place}/alice")
    hadoop.web("PUT", f"{path}/alice", "SETOWNER", owner="alice")
    hadoop.web("PUT", f"{path}/secret", "SETPERMISSION", permission="700")
    (tmp_path / "as_another.py").write_text(AS_ANOTHER)
    done = subprocess.run(
        [sys.executable, tmp_path / "as_another.py", ROOT, place], capture_output=True, text=True, timeout=300,
        env={**os.environ, "HADOOP_USER_NAME": "alice", "PYSPARK_SUBMIT_ARGS": "--master local[1] pyspark-shell"},
    )  # fmt: skip
    assert done.stdout.split() == ["2", "2", "2"], done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 3
    for line in lines:
        assert "Permission denied: user=alice" in one_clear_line(line)


@pytest.fixture
def safe_mode(hadoop: Cluster) -> Iterator[None]:
    hadoop.dfsadmin("-safemode", "enter")
    yield
    hadoop.dfsadmin("-safemode", "leave")


def test_in_safe_mode_a_job_waits_and_then_says_so(
    put: Callable[..., str],
    hadoop: Cluster,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    place = put({"in.txt": b"a b\n"})
    options = ("--input", f"{place}/in.txt", "--output", f"{place}/out", "--model", f"{place}/model")
    request.getfixturevalue("safe_mode")
    assert featurize(*options) == 2
    said = [*caplog.messages, one_clear_line(capsys.readouterr().err)]
    assert [re.sub(r"hdfs://\S+", "HDFS", line) for line in said] == [
        "HDFS is in safe mode: waiting for up to 60 s until it has found its blocks",
        "error: HDFS is in safe mode for more than 60 s: wait until it has found its blocks (hdfs dfsadmin -safemode "
        "wait), then run the job again",
    ]
    leaving = threading.Timer(3, hadoop.dfsadmin, ("-safemode", "leave"))
    leaving.start()
    assert featurize(*options) == 0
    leaving.join()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Cluster]:
    """An HDFS on a disk of 500 MB, if this user may mount one."""
    with small_disk(tmp_path / "disk", 500) as folder, cluster(folder, ("hdfs",)) as one:
        yield one


def test_an_hdfs_that_is_full_is_one_line_and_leaves_the_old_output(
    small: Cluster, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = FileSystem(f"{small.hdfs}/")
    full.upload(EMAILS, f"{small.hdfs}/in.jsonl.gz")
    options = (
        "--input",
        f"{small.hdfs}/in.jsonl.gz",
        "--output",
        f"{small.hdfs}/out",
        "--model",
        f"{small.hdfs}/model",
    )
    assert featurize(*options, "--features", "count") == 0
    before = manifest(full, f"{small.hdfs}/out")
    write(tmp_path / "ballast", os.urandom(8 << 20))
    capsys.readouterr()
    for k in range(99):
        try:
            full.upload(tmp_path / "ballast", f"{small.hdfs}/ballast-{k}")
        except Exception:
            break
    else:
        raise AssertionError("it is not full")
    assert featurize(*options, "--overwrite") == 2
    line = one_clear_line(capsys.readouterr().err)
    assert re.search(r"--model: cannot write beside \S+ \(File \S+ could only be written to 0 of the 1", line), line
    assert manifest(full, f"{small.hdfs}/out") == before
    for k in range(99):
        full.delete(f"{small.hdfs}/ballast-{k}")
    end = time.monotonic() + 200
    while featurize(*options, "--overwrite"):  # the blocks go after a while
        assert time.monotonic() < end, capsys.readouterr().err
        time.sleep(5)
    assert manifest(full, f"{small.hdfs}/out")["model_id"] != before["model_id"]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("number", [30_000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_very_many_small_files_are_read_in_few_partitions(
    number: int, fs: FileSystem, hadoop: Cluster, emails: pa.Table, tmp_path: Path
) -> None:
    texts = [text.encode() for text in emails["text"].to_pylist()]
    for k in range(number):
        if k % 1000 == 0:
            (tmp_path / f"files/{k // 1000}").mkdir(parents=True)
        (tmp_path / f"files/{k // 1000}/{k}.txt").write_bytes(texts[k % len(texts)][:200])
    place = f"{hadoop.hdfs}/many-{number}"
    hadoop.fs("-D", "dfs.replication=1", "-put", "-t", "32", str(tmp_path / "files"), place)
    options = ("--input", place, "--format", "files", "--features", "count", "--hash", "1024")
    assert featurize(*options, "--output", f"{place}.out", "--model", f"{place}.model") == 0
    assert manifest(fs, f"{place}.out")["documents"] == number
    parts = [name for name in fs.names(f"{place}.out") if name.endswith(".parquet")]
    assert len(parts) <= number // 1000
