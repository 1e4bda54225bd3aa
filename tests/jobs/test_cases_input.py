"""What users of other libraries ran into when they read files (tests/data/cases.jsonl), each as a test of its kind."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import corpus
from tests.jobs.test_corpus import COMPRESSED, mistake, opened, parsed, texts, write
from tests.jobs.test_featurize import featurize, one_clear_line
from udfs.arrays import string_buffers
from udfs.records import Layout, decode, one, parse

FILE = Path(__file__).parents[1] / "data/cases.jsonl"
CASES: dict[str, Any] = {case["id"]: case for case in map(json.loads, FILE.open(encoding="utf-8"))}


def case(name: str) -> tuple[Any, Any]:
    return CASES[name]["input"], CASES[name]["expected"]


def rows(spark: Any, path: Path | str, **settings: Any) -> list[str]:
    """The texts of a corpus in the order of its records."""
    found: list[str] = parsed(opened(spark, str(path), **settings)).documents["text"].to_pylist()
    return found


@pytest.fixture(params=["spark", "workers"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are opened by Spark, or by the workers as where there are many."""
    if request.param == "workers":
        monkeypatch.setattr(corpus, "MANY_FILES", 0)


# tok-12, tok-13: bytes


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "parquet", "files"])
def test_invalid_bytes_are_replaced_and_nul_is_kept_in_every_format(form: str, spark: Any, tmp_path: Path) -> None:
    given, expected = case("tok-12")
    raw = bytes.fromhex(given["bytes_hex"])
    bad, nul = raw.splitlines()
    if form == "jsonl":
        raw = b'{"text": "%b"}\n{"text": "%b"}\n' % (bad, nul.replace(b"\0", b"\\u0000"))
    elif form == "csv":
        raw = b"text\n" + raw
    name = {"files": "in/a.txt", "text": "in/a.txt"}.get(form, f"in/a.{form}")
    if form == "parquet":
        column = pa.array([bad, nul], pa.binary())
        text = pa.StringArray.from_buffers(2, *column.buffers()[1:])
        write(tmp_path / name, pa.table({"text": text}))
    elif form == "files":
        write(tmp_path / name, bad)
        write(tmp_path / "in/b.txt", nul)
    else:
        write(tmp_path / name, raw)
    found = parsed(opened(spark, str(tmp_path / "in"), form=form))
    found.documents.validate(full=True)
    assert sorted(found.documents["text"].to_pylist()) == sorted(expected["lines"])
    assert sorted(map(len, found.documents["text"].to_pylist())) == sorted(expected["lengths"])
    assert found.repaired == expected["bad_line_count"]
    assert found.rejects["kind"].to_pylist() == ["repaired"]


@pytest.mark.usefixtures("either_way")
def test_a_byte_order_mark_at_the_start_of_any_file_is_no_text(spark: Any, tmp_path: Path) -> None:
    given, expected = case("tok-13")
    contents = {name: bytes.fromhex(file["bytes_hex"]) for name, file in given["files"].items()}
    for name in ("a.txt", "b.txt"):
        write(tmp_path / "txt" / name, contents[name])
        write(tmp_path / "gz" / f"{name}.gz", gzip.compress(contents[name]))
        write(tmp_path / "bz2" / f"{name}.bz2", bz2.compress(contents[name]))
    for folder in ("txt", "gz", "bz2"):
        assert texts(spark, tmp_path / folder) == expected["lines"]
    found = opened(spark, str(write(tmp_path / "c.csv", contents["c.csv"])))
    assert [found.layout.id, found.layout.text] == expected["csv_columns"]
    assert parsed(found).documents.to_pylist() == [{"text": "hi", "id": "1"}]
    mark = contents["a.txt"][:3]
    assert rows(spark, write(tmp_path / "d.jsonl", mark + b'{"text": "x"}\n')) == ["x"]
    assert rows(spark, write(tmp_path / "e.html", mark + b"<p>"), form="files") == ["<p>"]
    # Within a file it is a character like any other.
    assert rows(spark, write(tmp_path / "f.txt", b"a\n" + mark + b"b\n")) == ["a", "\ufeffb"]


# hdfs-01, hdfs-03: names


def test_a_path_is_literal_and_no_pattern(spark: Any, tmp_path: Path) -> None:
    given, expected = case("hdfs-01")
    for name, content in given["files"].items():
        write(tmp_path / name, content.encode())
    assert [rows(spark, tmp_path / name) for name in given["read"]] == [[content] for content in expected["content"]]
    assert rows(spark, tmp_path / "g[1].txt", glob=True) == ["g1"]


def test_hidden_and_unfinished_files_are_left_out_and_reported(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given, expected = case("hdfs-03")
    more = ["_x=1/in.txt", ".y=1/in.txt", "z._COPYING_/in.txt", "sub/.z/in.txt"]
    for name in (*given["files"], *more):
        write(tmp_path / "in" / name, name.encode())
    with caplog.at_level(logging.WARNING, "textmill"):
        assert texts(spark, tmp_path / "in", form="text") == sorted([*expected["read"], "_x=1/in.txt"])
    assert f"{len(expected['skipped_and_reported']) + 3} hidden or unfinished files are left out" in caplog.text
    for name in ("_a.txt", ".b.txt", "d._COPYING_"):
        assert "hidden from Spark by its name" in mistake(spark, tmp_path / "in" / name, form="text")
    assert texts(spark, tmp_path / "in/_sub") == ["_sub/x.txt"]  # a folder that is asked for by name is read
    assert texts(spark, tmp_path / "in/*", form="text", glob=True) == sorted([*expected["read"], "_x=1/in.txt"])


# hdfs-05: overwriting


@pytest.mark.parametrize("given_as", ["path", "glob", "table"])
def test_a_job_may_not_overwrite_what_it_reads(given_as: str, spark: Any, tmp_path: Path, capsys: Any) -> None:
    given, expected = case("hdfs-05")
    place = tmp_path / given["cases"][0]["write"]
    write(place / "a.parquet", pa.table({"id": [1, 2, 3, 4], "text": ["a", "b", "c", "d"]}))
    source = {"path": str(place), "glob": f"{place}/*.parquet", "table": "table:its_own_output"}[given_as]
    if given_as == "table":
        spark.catalog.createTable("its_own_output", str(place), "parquet")
    options = ["--glob"] * (given_as == "glob") + ["--where", given["cases"][0]["filter"], "--overwrite"]
    try:
        for output, model in ((place, tmp_path / "m"), (tmp_path / "o", place), (place / "sub", tmp_path / "m")):
            outputs = ("--output", output, "--model", model)
            assert featurize("--input", source, *outputs, *options) == 2
            assert "lies in" in one_clear_line(capsys.readouterr().err)
            assert spark.read.parquet(str(place)).count() == 4
            assert [path.name for path in tmp_path.iterdir()] == ["P"]
        outputs = ("--output", tmp_path / "o", "--model", tmp_path / "m")
        assert featurize("--input", source, *outputs, *options) == 0
        assert spark.read.parquet(str(tmp_path / "o")).count() == expected["rows_after"][0]
    finally:
        spark.sql("drop table if exists its_own_output")


def test_a_job_that_fails_half_way_leaves_the_old_output_and_a_model_needs_its_manifest(
    spark: Any, tmp_path: Path, capsys: Any
) -> None:
    given, expected = case("hdfs-05")
    lines = b"".join(b"%d\n" % i for i in range(given["cases"][1]["existing_rows"]))
    outputs = ("--output", tmp_path / "P", "--model", tmp_path / "model")
    assert featurize("--input", write(tmp_path / "in.txt", lines), *outputs) == 0
    damaged = write(tmp_path / "bad.txt.gz", gzip.compress(os.urandom(100_000))[:-30])
    assert featurize("--input", damaged, *outputs, "--overwrite") == 2
    assert spark.read.parquet(str(tmp_path / "P")).count() == expected["rows_after"][1]
    (tmp_path / "model/manifest.json").unlink()
    assert featurize("--input", tmp_path / "in.txt", "--output", tmp_path / "x", "--apply", tmp_path / "model") == 2
    assert "has no manifest.json" in capsys.readouterr().err


# hdfs-06, hdfs-08, hdfs-09: records


@pytest.mark.usefixtures("either_way")
def test_every_gzip_member_and_bzip2_stream_is_read(spark: Any, tmp_path: Path) -> None:
    given, expected = case("hdfs-06")
    members = [bytes.fromhex(member) for member in given["gz"]["members_hex"]]
    for suffix, compress, lines in (
        ("gz", gzip.compress, expected["lines"][0]),
        ("bz2", bz2.compress, expected["lines"][1]),
        ("zst", COMPRESSED[".zst"], expected["lines"][1]),
    ):
        assert rows(spark, write(tmp_path / f"a.txt.{suffix}", b"".join(map(compress, members)))) == lines


def test_a_truncated_archive_fails_and_is_not_cut_silently(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"".join(b"%d %d\n" % (i, i * i * 7919) for i in range(20_000))
    for suffix, compress in (("gz", gzip.compress), ("bz2", bz2.compress)):
        path = write(tmp_path / f"a.txt.{suffix}", compress(content)[:-30])
        with pytest.raises(Exception, match=r"FAILED_READ_FILE|EOF|nexpected end"):
            opened(spark, str(path)).raw.collect()
    for suffix, compress in COMPRESSED.items():
        if suffix:
            monkeypatch.setattr(corpus, "MANY_FILES", 0)
            for cut in (30, 1):
                path = write(tmp_path / f"b.txt{suffix}", compress(content)[:-cut])
                with pytest.raises(ValueError, match="truncated or damaged"):  # as it is opened, or in the worker
                    parsed(opened(spark, str(path)))
    assert "truncated or damaged" in mistake(spark, write(tmp_path / "b.txt.gz", b"no gzip"))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, COMPRESSED[".zst"]])
@pytest.mark.parametrize("form", ["text", "jsonl", "files"])
def test_compressed_content_without_the_suffix_is_refused(compress: Any, form: str, spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "noext", compress(b'{"text": "a"}\n' * 9))
    assert "noext is compressed by" in mistake(spark, path, form=form)


def test_large_plain_and_bzip2_files_are_read_in_parts_without_a_loss(spark: Any, tmp_path: Path) -> None:
    texts_ = [f"{i} {i * 7919}" for i in range(40_000)]
    content = "".join(f"{text}\r\n" for text in texts_).encode()
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "60000")
    try:
        for name, raw, parts in (
            ("a.txt", content, range(5, 99)),
            ("a.txt.bz2", bz2.compress(content, 1), range(2, 99)),
            ("a.txt.gz", gzip.compress(content, 1), range(1, 2)),
        ):
            found = opened(spark, str(write(tmp_path / name, raw)))
            assert found.raw.rdd.getNumPartitions() in parts
            assert sorted(parsed(found).documents["text"].to_pylist()) == sorted(texts_)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)


@pytest.mark.usefixtures("either_way")
def test_malformed_json_is_counted_and_kept_aside(spark: Any, tmp_path: Path) -> None:
    given, expected = case("hdfs-08")
    lines = given["lines"]
    path = write(tmp_path / "a.jsonl", "".join(line + "\n" for line in lines).encode())
    found = parsed(opened(spark, str(path)))
    # Keys are matched without regard to case, the first of the two ways that the case allows.
    assert found.documents["id"].to_pylist() == [*expected["good_ids"], 6]
    assert found.documents["text"].to_pylist() == ["ok", "", "case"]
    assert found.rejects.num_rows == expected["bad_lines"]
    assert found.blanks == expected["blank"]
    assert found.records == len(lines)
    if corpus.MANY_FILES:  # else the rows are names of files
        assert opened(spark, str(path)).raw.count() == len(lines)
    assert [lines[row["position"]].encode() for row in found.rejects.to_pylist()] == found.rejects["bytes"].to_pylist()


@pytest.mark.usefixtures("either_way")
def test_a_record_ends_at_lf_only(spark: Any, tmp_path: Path) -> None:
    given, expected = case("hdfs-09")
    odd = "one\u2028two\u2029\u0085\x0b\x0c\x1c\x1d\x1e three"
    for value in (given["text"], "".join(json.dumps({"t": t}, ensure_ascii=False) + "\n" for t in (odd, "xy"))):
        first = json.loads(value.split("\n")[0])["t"]
        path = write(tmp_path / "a.jsonl", value.encode())
        assert rows(spark, path, text="t")[0] == first
        assert len(rows(spark, path, text="t")) == expected["records"]
    also = bytes.fromhex(given["also"]["bytes_hex"])
    assert rows(spark, write(tmp_path / "a.txt", also)) == expected["also_lf_records"]
    assert rows(spark, write(tmp_path / "b.txt", odd.encode() + b"\n")) == [odd]


# arrow-01, arrow-03, arrow-06, arrow-07: columns


def test_chunks_are_joined_with_64_bit_offsets() -> None:
    """As more than two gigabytes of text need, of which the next test has two values."""
    chunks = pa.chunked_array([pa.array(["a", None]), pa.array(["b"])])
    assert one(chunks).type == pa.large_string()
    assert one(chunks.cast(pa.binary())).type == pa.large_binary()
    assert one(chunks).to_pylist() == ["a", None, "b"]
    columns = {"text": chunks, "x": chunks, "__source": ["a"] * 3, "__position": [0, 1, 2]}
    found = parse(pa.table(columns), Layout("table", carried=("x",))).documents
    assert found["text"].type == pa.large_string()
    assert found.to_pylist() == [{"text": "a", "x": "a"}, {"text": "", "x": None}, {"text": "b", "x": "b"}]


def test_a_batch_that_goes_to_a_worker_is_bounded_by_its_bytes(spark: Any, tmp_path: Path) -> None:
    """And not only by its rows, of which a few thousand may hold more than Arrow's 2 GB."""
    source = write(tmp_path / "a.txt", (b"x" * 10_000 + b"\n") * 500)
    before = spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")
    assert int(before) == 64 << 20
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(1 << 20))
    try:

        def sizes(batches: Any) -> Any:
            for batch in batches:
                yield pa.record_batch({"bytes": [batch.nbytes], "rows": [batch.num_rows]})

        found = opened(spark, str(source)).raw.mapInArrow(sizes, "bytes bigint, rows bigint").collect()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", before)
    assert sum(batch.rows for batch in found) == 500
    if spark.version.startswith("3."):  # it bounds rows only
        assert max(batch.rows for batch in found) <= 1000
    else:
        assert max(batch.bytes for batch in found) < 2 << 20


@pytest.mark.skipif(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8 << 30, reason="needs 8 GB of memory")
def test_more_than_two_gigabytes_of_text_are_no_overflow() -> None:
    """Two values of 1 GB, which share one buffer: chunks are not joined by 32-bit offsets."""
    given, _ = case("arrow-01")
    size, copies = given["value_bytes"], given["copies"]
    block = pa.py_buffer(np.zeros(size, np.uint8))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, size], np.int32)), block])
    data, offsets = string_buffers(pa.chunked_array([value] * copies))
    assert (data.size, offsets.tolist()) == (copies * size, [0, size, 2 * size])
    del data
    raw = pa.table({"bytes": pa.chunked_array([value] * copies), "source": ["a", "b"], "position": [0, 0]})
    found = parse(raw, Layout("text"))
    assert (found.documents.num_rows, found.rejects.num_rows) == (0, copies)
    text = pa.StringArray.from_buffers(1, *value.buffers()[1:])
    columns = {"text": pa.chunked_array([text] * copies), "__source": ["a", "b"], "__position": [0, 1]}
    assert parse(pa.table(columns), Layout("table")).rejects.num_rows == copies


def test_text_and_ids_are_read_alike_as_large_string(spark: Any, tmp_path: Path) -> None:
    kinds = (pa.string(), pa.large_string())
    columns = [{"text": pa.array(["a", None, "c"], kind), "id": pa.array(["x", "y", None], kind)} for kind in kinds]
    for k, column in enumerate(columns):
        write(tmp_path / f"{k}/a.parquet", pa.table(column))
    found = [parsed(opened(spark, str(tmp_path / str(k)))) for k in (0, 1)]
    assert found[0].documents.equals(found[1].documents)
    before = spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        assert parsed(opened(spark, str(tmp_path / "0"))).documents.to_pylist() == found[0].documents.to_pylist()
    finally:
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", before)
    text, _ = decode(pa.array(["a"], pa.large_string()))
    assert text.type == pa.large_string()


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_64_bit_ids_survive_a_null_beside_them(form: str, spark: Any, tmp_path: Path) -> None:
    given, expected = case("arrow-03")
    values = [*given["values"], (1 << 63) - 1, -(1 << 63)]
    if form == "parquet":
        write(tmp_path / "a.parquet", pa.table({"id": pa.array(values, pa.int64()), "text": ["a"] * 4, "n": values}))
    else:
        lines = [json.dumps({"id": value, "text": "a", "n": value}) + "\n" for value in values]
        write(tmp_path / "a.jsonl", "".join(lines).encode())
    found = parsed(opened(spark, str(tmp_path)))
    kept = [value for value in [*expected["values"], *values[2:]] if value is not None]
    assert found.documents["id"].to_pylist() == kept
    assert found.documents["n"].to_pylist() == kept
    assert found.rejects.num_rows == 1  # a row without an id
    whole = parsed(opened(spark, str(tmp_path), id="n", label="id")) if form == "parquet" else None
    if whole:
        assert whole.documents["id"].to_pylist() == kept


def test_dictionary_encoded_columns_are_their_strings(spark: Any, tmp_path: Path) -> None:
    given, expected = case("arrow-06")
    chunks = [pa.array([*batch, None]).dictionary_encode() for batch in given["batches"]]
    for k, chunk in enumerate(chunks):
        pq.write_table(pa.table({"text": chunk, "label": chunk}), write(tmp_path / f"{k}.parquet", b""))
    found = parsed(opened(spark, str(tmp_path))).documents
    wanted = sorted([*expected["values"], "", ""])
    assert sorted(found["text"].to_pylist()) == wanted
    assert sorted(label or "" for label in found["label"].to_pylist()) == wanted
    words = pa.chunked_array(chunks)
    columns = {"text": words, "x": words, "__source": ["a"] * 6, "__position": range(6)}
    direct = parse(pa.table(columns), Layout("table", carried=("x",))).documents
    assert direct["text"].to_pylist() == ["a", "b", "", "b", "c", ""]
    assert direct["x"].to_pylist() == ["a", "b", None, "b", "c", None]


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "parquet"])
def test_batches_of_any_size_and_empty_partitions_give_the_same_documents(
    form: str, spark: Any, tmp_path: Path
) -> None:
    given, expected = case("arrow-07")
    values = [f"row {i}" for i in range(given["rows"])]
    for folder, few in (("in", values), ("one", values[:1])):
        path = tmp_path / folder / f"a.{'txt' if form == 'text' else form}"
        if form == "parquet":
            write(path, pa.table({"text": few}))
        else:
            quoted = [json.dumps({"text": value}) if form == "jsonl" else value for value in few]
            write(path, "".join(line + "\n" for line in (["text"] if form == "csv" else []) + quoted).encode())
    found = opened(spark, str(tmp_path / "in"))
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    whole = []
    try:
        for size in given["max_records_per_batch"]:
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", size)
            batches = found.raw._collect_as_arrow()
            whole.append(parsed(found))
            assert sum(batch.num_rows for batch in batches) == (1 if form == "csv" else given["rows"])
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
    assert [each.documents.num_rows for each in whole] == expected["sum_rows"]
    assert all(each.documents.equals(whole[0].documents) and (each.hashes == whole[0].hashes).all() for each in whole)
    few = opened(spark, str(tmp_path / "one"))
    assert [batch.num_rows for batch in few.raw.repartition(given["also"]["partitions"])._collect_as_arrow()] == [1]
