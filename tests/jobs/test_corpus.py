"""From a path to raw records: literal names, formats and columns; and one clear line for what can't be read."""

from __future__ import annotations

import bz2
import ctypes
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import corpus
from jobs.corpus import Corpus, find_input, open_corpus, packed
from jobs.session import Mistake
from jobs.workers import records
from udfs.records import BOM, KEPT_BYTES, Parsed, Unreadable, parse

ROOT = Path(__file__).parents[2]


def write(path: Path, content: bytes | pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(content, path)
    return path


def opened(
    spark: Any,
    path: str,
    form: str = "auto",
    glob: bool = False,
    where: str | None = None,
    salvage: bool = False,
    **settings: Any,
) -> Corpus:
    return open_corpus(spark, find_input(path, form, glob, where, salvage), **settings)


def parsed(found: Corpus) -> Parsed:
    """All records of a corpus, as a worker would parse them in one partition."""
    tables = records(iter(found.raw.coalesce(1)._collect_as_arrow()), found.layout)  # toArrow is of Spark 4
    return parse(pa.concat_tables(tables, promote_options="default"), found.layout)


def texts(spark: Any, path: Path | str, **settings: Any) -> list[str]:
    """The documents' texts, in order."""
    return sorted(parsed(opened(spark, str(path), **settings)).documents["text"].to_pylist())


def mistake(spark: Any, path: Path | str, **settings: Any) -> str:
    """The line that an input is refused with."""
    with pytest.raises(Mistake) as found:
        opened(spark, str(path), **settings)
    line = str(found.value)
    assert "\n" not in line
    assert len(line) < 500
    for word in ("java.", "Exception", "py4j", "An error occurred", "SQLSTATE", "NoneType"):
        assert word not in line, line
    return line


def small(**columns: Any) -> pa.Table:
    """A table of one row."""
    return pa.table({name: value if isinstance(value, pa.Array) else [value] for name, value in columns.items()})


# Names.

NAMES = ["g[1]", "a,b", "{x}", "st*r", "w?y", "a b", "p%20q", "p%41", "back\\slash", "é 文", "#h", "a+b", "k=v", "~"]


def test_names_are_read_literally(spark: Any, tmp_path: Path) -> None:
    """Each has a neighbour that its name as a pattern would match."""
    for name in NAMES:
        write(tmp_path / "in" / f"{name}.txt", name.encode())
    for name in ("g1.txt", "a.txt", "b.txt", "x.txt", "stir.txt", "why.txt", "p q.txt", "pA.txt", "backslash.txt"):
        write(tmp_path / "in" / name, b"wrong")
    for name in NAMES[:9]:
        assert texts(spark, tmp_path / "in" / f"{name}.txt") == [name]
    folder = tmp_path / "deep" / "".join(NAMES)
    write(folder / "sub [x]" / "in.txt", b"deep")
    write(tmp_path / "deep/g1a/in.txt", b"wrong")
    assert texts(spark, folder) == ["deep"]
    everything = parsed(opened(spark, str(tmp_path / "in"), form="files")).documents
    assert set(NAMES) <= {name.removesuffix(".txt") for name in everything["id"].to_pylist()}
    rows = [row for row in everything.to_pylist() if row["text"] != "wrong"]
    assert all(row["id"] == row["text"] + ".txt" for row in rows)


@pytest.mark.parametrize("name", ["2026-11-30T10:00.txt", "a:b.jsonl", "a:b.csv", "a:b.parquet"])
def test_names_with_a_colon_are_read(name: str, spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    local = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    request.addfinalizer(lambda: local.setVerifyChecksum(True))  # which reading such names turns off for all of Java
    contents = {"txt": b"x\n", "jsonl": b'{"text": "x"}\n', "csv": b"text\nx\n", "parquet": small(text="x")}
    path = write(tmp_path / "c:d" / name, contents[name.rpartition(".")[2]])
    for given in (path, path.parent, tmp_path):
        assert texts(spark, given) == ["x"]
    (document,) = parsed(opened(spark, str(tmp_path), form="files")).documents.to_pylist()
    assert document["id"] == f"c:d/{name}"
    assert "a:b has a colon" in mistake(spark, "a:b")


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "parquet", "files"])
def test_the_source_of_a_reject_is_the_path_as_one_types_it(form: str, spark: Any, tmp_path: Path) -> None:
    contents = {"jsonl": b'{"text": "a"}\nx\n', "csv": b"text\n\xff\n", "parquet": small(text="too long")}
    bad = contents.get(form, b"\xff")
    path = write(tmp_path / f"é a+b%20c%41 #&?.{'txt' if form == 'text' else form}", bad)
    found = parsed(opened(spark, str(tmp_path), form=form, text="text", max_document_bytes=3))
    assert found.rejects["source"].to_pylist() == [str(path)]


def test_ids_of_files_are_paths_below_the_input(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in %41/sub/b c.html", BOM + b"b\r\nB")
    write(tmp_path / "in %41/a.html", b"a")
    found = parsed(opened(spark, str(tmp_path / "in %41"), form="files")).documents
    assert sorted(found.to_pylist(), key=str) == [
        {"text": "a", "id": "a.html"},
        {"text": "b\r\nB", "id": "sub/b c.html"},
    ]
    one = parsed(opened(spark, str(tmp_path / "in %41/sub/b c.html"), form="files")).documents
    assert one["id"].to_pylist() == ["b c.html"]


def test_an_empty_file_is_an_empty_document(spark: Any, tmp_path: Path) -> None:
    for name in ("a.html", "b c %20.html", "sub/d.html", ".hidden"):
        write(tmp_path / name, b"a" if name == "a.html" else b"")
    found = parsed(opened(spark, str(tmp_path), form="files"))
    assert found.records == 3
    assert sorted(found.documents.to_pylist(), key=str) == [
        {"text": "", "id": "b c %20.html"},
        {"text": "", "id": "sub/d.html"},
        {"text": "a", "id": "a.html"},
    ]


def test_extensions_tell_the_format_whatever_their_case(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "A.TXT", b"a")
    write(tmp_path / "sub/b.text.gz", gzip.compress(b"b"))
    found = opened(spark, str(tmp_path))
    assert (found.layout.format, found.files) == ("text", 2)


# Globs.


def test_a_glob_is_one_only_if_it_is_declared(spark: Any, tmp_path: Path) -> None:
    for name in ("a1.txt", "a2.txt", "b1.txt", "d/a3.txt", "d/e/a4.txt", "a[1].txt", "_a5.txt", ".a6.txt"):
        write(tmp_path / "in" / name, name.encode())
    root = tmp_path / "in"
    for pattern, names in (
        ("a*.txt", ["a1.txt", "a2.txt", "a[1].txt"]),
        ("[ab]1.txt", ["a1.txt", "b1.txt"]),
        ("{a2,d/*}.txt", ["a2.txt", "d/a3.txt"]),
        ("?", ["d/a3.txt", "d/e/a4.txt"]),
        ("*", ["a1.txt", "a2.txt", "a[1].txt", "b1.txt", "d/a3.txt", "d/e/a4.txt"]),
        (r"a\[1\].txt", ["a[1].txt"]),
        ("d/e", ["d/e/a4.txt"]),
    ):
        assert texts(spark, root / pattern, form="text", glob=True) == names
        found = parsed(opened(spark, str(root / pattern), form="files", glob=True)).documents
        assert sorted(found["id"].to_pylist()) == [
            name.removeprefix("d/e/") if pattern == "d/e" else name for name in names
        ]
    assert texts(spark, root / "a[1].txt") == ["a[1].txt"]
    assert "x*.txt matches nothing: mend the pattern" in mistake(spark, root / "x*.txt", glob=True)
    assert "matches nothing" in mistake(spark, root / "nosuch", glob=True)
    assert "holds no data" in mistake(spark, root / "_*", glob=True)
    assert "does not exist" in mistake(spark, root / "a*.txt")
    assert "cannot be listed" in mistake(spark, root / "a[", glob=True)


def test_ids_under_a_glob_do_not_depend_on_what_else_it_matches(spark: Any, tmp_path: Path) -> None:
    for day in ("2026-11-29", "2026-11-30"):
        write(tmp_path / "in" / day / "sub/a.html", day.encode())
        found = parsed(opened(spark, str(tmp_path / "in/2026-*/sub"), form="files", glob=True)).documents
        assert {"id": "2026-11-29/sub/a.html", "text": "2026-11-29"} in found.to_pylist()
    assert find_input(str(tmp_path / "in/*/sub"), "files", True).folders == [
        f"file:{tmp_path}/in/{day}/sub" for day in ("2026-11-29", "2026-11-30")
    ]


def test_a_glob_of_partition_folders_keeps_their_column(spark: Any, tmp_path: Path) -> None:
    for day in ("2026-10-31", "2026-11-29", "2026-11-30"):
        write(tmp_path / f"dt={day}/a.parquet", small(text=day))
    for pattern in ("dt=2026-11-*", "dt=2026-11-*/*.parquet"):
        found = parsed(opened(spark, str(tmp_path / pattern), glob=True)).documents.to_pylist()
        assert sorted((row["text"], str(row["dt"])) for row in found) == [
            ("2026-11-29", "2026-11-29"),
            ("2026-11-30", "2026-11-30"),
        ]


# Files that are read whole, and opened by the workers.


COMPRESSED = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}
LINES = {
    "text": [BOM + b"a\r\nb\n\n\xff c\rd", b"\n", b"", b"e" * 50 + b"\nno end"],
    "jsonl": [b'{"text": "a"}\r\n\n{"text": "\xff"}\n{', b"", BOM + b'{"text": "b"}\n{"text": 1}'],
    "csv": [BOM + b'text,n\r\n"a\nb",1\r\nc\n', b"", b"text,n\n\xff,2"],
    "files": [BOM + b"a\r\nb", b"", b"\xff", b"c" * 50],
}


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=str)


@pytest.mark.parametrize(
    ("form", "suffix"),
    [(form, suffix) for form in LINES for suffix in COMPRESSED if form != "files" or not suffix],  # read as they are
)
def test_the_workers_open_many_files_and_find_what_spark_finds(
    form: str, suffix: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {f"é %41 [{i}].{form}": content for i, content in enumerate(LINES[form])}
    for name, content in plain.items():
        write(tmp_path / "plain" / name, content)
        write(tmp_path / "in" / f"{name}{suffix}", COMPRESSED[suffix](content))
    settings = {"form": form, "text": "text", "max_document_bytes": 40}
    expected = parsed(opened(spark, str(tmp_path / "plain"), **settings))
    assert expected.documents.num_rows > 1
    assert expected.rejects.num_rows > 1
    ways = []
    for many in (0, 1000):
        monkeypatch.setattr(corpus, "MANY_FILES", many)
        ways.append(parsed(opened(spark, str(tmp_path / "in"), **settings)))
    for found in ways:
        assert (found.records, found.blanks, found.repaired) == (
            expected.records,
            expected.blanks,
            expected.repaired,
        )
        assert in_order(found.documents) == in_order(expected.documents)
        aside = [
            {**row, "source": row["source"].replace("/in/", "/plain/").removesuffix(suffix)}
            for row in in_order(found.rejects)
        ]
        assert aside == in_order(expected.rejects)
        if expected.hashes is not None and found.hashes is not None:
            assert sorted(found.hashes.tolist()) == sorted(expected.hashes.tolist())
    assert ways[0].rejects["source"].type == pa.string()


def test_large_files_among_many_small_ones_are_read_by_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "MANY_FILES", 0)
    monkeypatch.setattr(corpus, "SMALL_FILE", 10)
    for name, content in (("a.txt", b"1\n2\n"), ("b.txt", b"3\n" * 9), ("c.txt.zst", COMPRESSED[".zst"](b"4\n" * 99))):
        write(tmp_path / name, content)
    found = opened(spark, str(tmp_path), max_document_bytes=0)
    starts = {row.start for row in found.raw.select("start").collect()}
    assert starts == {None, 0}
    aside = parsed(found).rejects.to_pylist()
    assert sorted((row["source"].rsplit("/")[-1], row["position"]) for row in aside) == [
        *(("a.txt", i) for i in range(2)),
        *(("b.txt", i) for i in range(9)),
        *(("c.txt.zst", i) for i in range(99)),
    ]


def test_a_file_that_goes_away_before_a_worker_opens_it_is_named(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "MANY_FILES", 0)
    found = opened(spark, str(write(tmp_path / "in/a.txt", b"a").parent))
    (tmp_path / "in/a.txt").unlink()
    with pytest.raises(Unreadable, match=f"{tmp_path}/in/a.txt cannot be read: No such file"):
        parsed(found)


def test_many_small_files_are_packed_into_few_partitions(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(1200):
        (tmp_path / f"in/{i}.txt").write_bytes(b"x" * 100)
    spark.conf.unset("spark.sql.files.openCostInBytes")
    workers_open = opened(spark, str(tmp_path / "in"), form="files")
    assert workers_open.raw.rdd.getNumPartitions() <= 2 * spark.sparkContext.defaultParallelism
    assert workers_open.raw.where("bytes is not null").count() == 0
    for i in range(400):
        (tmp_path / f"in/{i}.txt").unlink()
    by_spark = opened(spark, str(tmp_path / "in"), form="files")
    before = by_spark.raw.rdd.getNumPartitions()
    with packed(spark, by_spark):
        after = opened(spark, str(tmp_path / "in"), form="files").raw.rdd.getNumPartitions()
    assert after <= 2 * spark.sparkContext.defaultParallelism < before
    assert int(spark.conf.get("spark.sql.files.openCostInBytes").removesuffix("b")) == 4 << 20


# Parquet.


def test_parquet_is_read_in_subfolders_and_partitions(spark: Any, tmp_path: Path) -> None:
    for name in ("a.parquet", "sub/b.parquet", "sub/deep/c.parquet"):
        write(tmp_path / "plain" / name, small(text=Path(name).stem))
    assert texts(spark, tmp_path / "plain") == ["a", "b", "c"]
    for name in ("dt=2026-01-01/a.parquet", "dt=2026-01-02/sub/b.parquet"):
        write(tmp_path / "parts" / name, small(text=Path(name).stem))
    found = opened(spark, str(tmp_path / "parts"))
    assert [field.name for field in found.carried] == ["dt"]
    assert sorted(row["text"] for row in parsed(found).documents.to_pylist()) == ["a", "b"]
    write(tmp_path / "parts/c.parquet", small(text="c"))
    assert "mixes files in different key=value folders: no such folder, dt=…" in mistake(spark, tmp_path / "parts")


def test_columns_of_every_type_and_name_are_carried(spark: Any, tmp_path: Path) -> None:
    from tests.udfs.test_records import EVERY_TYPE

    columns = {name: values for name, values in EVERY_TYPE.items() if name != "duration"}
    odd = {
        "a.b": ["1", "2", "3"],
        "b`c": ["1", "2", "3"],
        "_metadata": ["1", "2", "3"],
        "geo": pa.array([{"interval": 1}] * 3),
    }
    write(
        tmp_path / "a.parquet",
        pa.table({"text": ["a", None, "c"], "id": pa.array([1, 2, 3], pa.int16()), **columns, **odd}),
    )
    found = opened(spark, str(tmp_path))
    assert [field.name for field in found.carried] == [*columns, *odd]
    assert found.id_type.simpleString() == "bigint"
    documents = parsed(found).documents
    assert documents["text"].to_pylist() == ["a", "", "c"]
    assert documents["id"].type == pa.int64()
    for name, values in columns.items():
        if name not in ("far", "nested_far", "float"):
            assert documents[name].to_pylist() == values.to_pylist()
    assert documents["_metadata"].to_pylist() == ["1", "2", "3"]


def test_an_empty_file_among_others_does_no_harm(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in/a.csv", b"text\nx\n")
    write(tmp_path / "in/b.csv", b"")
    write(tmp_path / "in/c.csv", b"\n")
    assert texts(spark, tmp_path / "in") == ["x"]
    write(tmp_path / "pq/a.parquet", small(text="a"))
    write(tmp_path / "pq/0.parquet", b"")
    assert texts(spark, tmp_path / "pq") == ["a"]


# JSON Lines and csv.


def test_a_first_line_longer_than_the_sample_is_seen_whole(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "SAMPLE_BYTES", 16)
    record = {"text": "x" * 1000, "late": 1}
    write(tmp_path / "a.jsonl.gz", gzip.compress(BOM + json.dumps(record).encode()))
    found = opened(spark, str(tmp_path))
    assert [field.name for field in found.carried] == ["late"]
    assert parsed(found).documents.num_rows == 1
    write(tmp_path / "b/a.csv", BOM + b'"text","and a long second name"\n"a\nb",c\n')
    assert [field.name for field in opened(spark, str(tmp_path / "b")).carried] == ["and a long second name"]


def test_columns_are_those_of_several_files_and_a_late_one_harms_no_record(spark: Any, tmp_path: Path) -> None:
    first = json.dumps({"text": "x" * 100, "a": 1}).encode() + b"\n"
    late = json.dumps({"text": "late", "a": 2, "unseen": {"text": 1}}).encode()
    write(tmp_path / "large.jsonl", first * 10_000 + late)
    write(tmp_path / "small.jsonl", b'{"text": "y", "b": "only here"}')
    found = opened(spark, str(tmp_path))
    assert [f"{field.name} {field.dataType.simpleString()}" for field in found.carried] == ["a bigint", "b string"]
    whole = parsed(found)
    assert whole.rejects.num_rows == 0
    assert {"text": "late", "a": 2, "b": None} in whole.documents.to_pylist()
    assert {"text": "y", "a": None, "b": "only here"} in whole.documents.to_pylist()


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_compressed_csv_is_read(suffix: str, compress: Any, spark: Any, tmp_path: Path) -> None:
    write(tmp_path / f"a.csv.{suffix}", compress(BOM + b'text,n\n"a\nb",1\n') + compress(b"c,2\n"))
    write(tmp_path / "b.csv", b"n,text\n3,d\n")
    found = opened(spark, str(tmp_path))
    assert sorted(parsed(found).documents.to_pylist(), key=str) == [
        {"text": "a\nb", "n": "1"},
        {"text": "c", "n": "2"},
        {"text": "d", "n": "3"},
    ]


def test_an_id_that_is_the_label_too_is_taken_once(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", b"text,label\na,b\n")
    found = opened(spark, str(tmp_path), id="label")
    assert (found.layout.id, found.layout.label) == ("label", None)
    assert "--text, --id and --label must differ" in mistake(spark, tmp_path, text="text", id="TEXT")


# Mistakes: one line, before anything is read.


def test_paths_that_hold_nothing_to_read(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "zero/a.txt", b"")
    write(tmp_path / "hidden/_a.txt", b"a")
    write(tmp_path / "hidden/.b=c.txt", b"a")
    assert "does not exist" in mistake(spark, tmp_path / "absent.txt")
    assert "holds no data: 0 files" in mistake(spark, tmp_path / "empty")
    assert "holds no data: 1 files, 0 bytes" in mistake(spark, tmp_path / "zero")
    assert "2 hidden" in mistake(spark, tmp_path / "hidden")
    assert "nosuch" in mistake(spark, "nosuch://host/in")
    assert "Connection refused" in mistake(spark, "hdfs://localhost:1/in")
    assert "unknown host nosuch.invalid" in mistake(spark, "hdfs://nosuch.invalid/in")
    assert "unsupported operation" in mistake(spark, "http://localhost:1/in")
    assert "empty" in mistake(spark, "")


def test_links_and_names_that_cannot_be_followed_are_named_unless_they_are_hidden(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in/a.txt", b"a")
    write(tmp_path / "in/.a.txt.crc", b"Hadoop's")
    (tmp_path / "in/sub").mkdir()
    (tmp_path / "in/.#a.txt").symlink_to("someone@host")
    (tmp_path / "in/_up").symlink_to(".")
    (tmp_path / "twice").symlink_to("in")
    (tmp_path / "in/sub/b.txt").symlink_to("../a.txt")
    assert texts(spark, tmp_path / "in") == texts(spark, tmp_path / "twice") == ["a", "a"]
    for target, told in (("absent", "leads nowhere"), ("c.txt", "leads nowhere"), ("../..", "leads back to a folder")):
        link = tmp_path / "in/sub/c.txt"
        link.symlink_to(target)
        assert f"the link {link} {told}" in mistake(spark, tmp_path / "in")
        link.unlink()
    (tmp_path / "in/sub/x").symlink_to(tmp_path / "other")
    write(tmp_path / "other/c.txt", b"c")
    assert texts(spark, tmp_path / "in") == ["a", "a", "c"]
    (tmp_path / "other/back").symlink_to(tmp_path / "in/sub")
    assert f"the link {tmp_path}/in/sub/x/back leads back" in mistake(spark, tmp_path / "in")
    for name in (b"\xff.txt", b"\xe9"):
        (tmp_path / "bad" / os.fsdecode(name)).mkdir(parents=True)
    assert f"{tmp_path}/bad holds 2 names that are not valid UTF-8: rename them" in mistake(spark, tmp_path / "bad")


def test_names_that_java_cannot_open_in_its_locale_are_told(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "in/é.txt", b"a")
    system = spark.sparkContext._jvm.java.lang.System
    before = system.setProperty("sun.jnu.encoding", "ANSI_X3.4-1968")  # as with LC_ALL=C
    try:
        assert "the encoding ANSI_X3.4-1968: set LC_ALL=C.UTF-8" in mistake(spark, tmp_path / "in")
        assert texts(spark, write(tmp_path / "e.txt", b"e")) == ["e"]
    finally:
        system.setProperty("sun.jnu.encoding", before)
    assert texts(spark, path) == ["a"]


def test_formats_that_names_do_not_show(spark: Any, tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.csv", "c.xyz", "noext"):
        write(tmp_path / name, b"text\na\n")
    line = mistake(spark, tmp_path / "c.xyz")
    formats = "parquet, orc, jsonl, csv, text (a document a line) or files (a document a file)"
    assert f"c.xyz: give --format {formats}" in line
    assert "noext: give --format" in mistake(spark, tmp_path / "noext")
    for name in ("c.xyz", "noext"):
        (tmp_path / name).unlink()
    assert "mixes csv, jsonl: give --format" in mistake(spark, tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.parquet", b"no parquet", "is not a Parquet file"),
        ("a.parquet", b"PAR1, yet no parquet", "is truncated or damaged (no footer)"),
        ("a.txt", "text".encode("utf-16"), "is UTF-16: convert it"),
        ("a.txt", "\ufefftext".encode("utf-32-le"), "is UTF-32: convert it"),
        ("a.txt", "\ufefftext".encode("utf-32-be"), "is UTF-32: convert it"),
        ("a.jsonl", b"PK\x03\x04", "is a zip"),
        ("a.orc", b"no orc", "is not an ORC file"),
        ("a.orc", b"ORC, yet no ORC file", "is truncated or damaged (no footer)"),
        ("a.csv.lz4", b"x", "is compressed, other than as .gz, .bz2, .zst: decompress it"),
        ("a.csv.zst", b"x", "is truncated or damaged"),
        ("a.parquet.gz", b"x", "is compressed, which a parquet file may not be: decompress it"),
        ("a.csv", b'"text\na\n', "the header has a quote that is not closed"),
        ("a.csv", b"\n\n", "there is no header"),
        ("a.csv", b"text,id,ID\n", "'id' occurs 2 times in the header"),
        ("a.jsonl", b"not json\n", "has no column 'text' (--text): it has none"),
        ("a.jsonl", b'{"text": {"a": 1}}\n', "field text is object"),
    ],
)
def test_files_that_are_not_what_they_are_named(
    name: str, content: bytes, told: str, spark: Any, tmp_path: Path
) -> None:
    assert told in mistake(spark, write(tmp_path / name, content))


def test_every_file_is_looked_at_and_not_only_the_largest(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "pq/a.parquet", small(text="a"))
    write(tmp_path / "pq/b.parquet", b"x")
    assert "b.parquet is not a Parquet file" in mistake(spark, tmp_path / "pq")
    write(tmp_path / "txt/a.txt", b"a" * 1000)
    write(tmp_path / "txt/b.txt", gzip.compress(b"b"))
    assert "b.txt is compressed by gzip: name it .gz" in mistake(spark, tmp_path / "txt")


def test_a_file_that_is_read_whole_has_a_limit(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "WHOLE_FILE_LIMIT", 10)
    write(tmp_path / "a.csv", b"text\n12345\n")
    assert "above the limit of 10" in mistake(spark, tmp_path)
    assert texts(spark, tmp_path, form="text") == ["12345", "text"]
    write(tmp_path / "a.txt.gz", gzip.compress(b"a\n"))
    assert "above the limit of 10 for --salvage" in mistake(spark, tmp_path / "a.txt.gz", salvage=True)
    assert texts(spark, tmp_path / "a.txt.gz") == ["a"]


# Records above the limit, and files that are damaged.


@pytest.mark.parametrize(
    ("form", "many"),
    [("text", 0), ("jsonl", 0), ("files", 0), *((form, 1000) for form in ("text", "jsonl", "files", "csv", "parquet"))],
)
def test_a_record_above_the_limit_is_a_reject_with_its_first_64_kb_in_every_format(
    form: str, many: int, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark cuts what is far above the limit: Arrow and the worker never hold it."""
    monkeypatch.setattr(corpus, "MANY_FILES", many)
    large = "é" * 400_000
    if form == "parquet":
        write(tmp_path / "in/a.parquet", pa.table({"text": ["ok", large, None]}))
    elif form == "files":
        write(tmp_path / "in/a.txt", b"ok")
        write(tmp_path / "in/b.txt", large.encode())
        write(tmp_path / "in/c.txt", b"")
    else:
        lines = ["ok", large, ""]
        quoted = [json.dumps({"text": line}, ensure_ascii=False) if form == "jsonl" else line for line in lines]
        if form == "csv":
            quoted = ["text,n", *(f"{line},1" for line in lines)]
        content = "".join(line + "\n" for line in quoted)
        write(tmp_path / f"in/a.{'txt' if form == 'text' else form}", content.encode())
    corpus_ = opened(spark, str(tmp_path / "in"), form=form, max_document_bytes=90_000)
    if form != "csv":
        assert sum(batch.nbytes for batch in corpus_.raw.select(corpus_.raw.columns[0])._collect_as_arrow()) < 140_000
    found = parsed(corpus_)
    assert sorted(found.documents["text"].to_pylist()) == ["", "ok"]
    (row,) = found.rejects.to_pylist()
    assert row["kind"] == "reject"
    assert ("800012 bytes" if form == "jsonl" else "800000 bytes of text, above the limit of 90000") in row["reason"]
    assert row["bytes"] == (b'{"text": "' * (form == "jsonl") + large.encode())[:KEPT_BYTES]
    assert found.records == 3


def torn(content: bytes) -> bytes:
    """As a copy that was broken off leaves it."""
    return content[: len(content) * 2 // 3]


@pytest.mark.parametrize("many", [0, 1000])
@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_salvage_keeps_the_records_before_the_damage_and_reads_whole_files_as_ever(
    suffix: str, many: int, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "MANY_FILES", many)
    compress = COMPRESSED[f".{suffix}"]
    records = [json.dumps({"text": f"{i} {i * i * 7919}"}).encode() for i in range(60_000)]
    whole = b"".join(record + b"\n" for record in records)
    bad = write(tmp_path / f"in/a b%20.jsonl.{suffix}", torn(compress(whole)))
    write(tmp_path / f"in/whole.jsonl.{suffix}", compress(BOM + b'{"text": "whole"}\n') + compress(b'{"text": "2nd"}'))
    write(tmp_path / f"in/none.jsonl.{suffix}", b"nothing that was compressed")
    write(tmp_path / "in/plain.jsonl", b'{"text": "plain"}\n')
    found = parsed(opened(spark, str(tmp_path / "in"), salvage=True))
    texts_ = found.documents["text"].to_pylist()
    kept = len(texts_) - 3
    assert 10_000 < kept < 60_000 - 10_000
    assert sorted(texts_) == sorted(["whole", "2nd", "plain", *(json.loads(line)["text"] for line in records[:kept])])
    rows = {row["source"]: row for row in found.rejects.to_pylist()}
    assert sorted(rows) == [str(bad), str(tmp_path / f"in/none.jsonl.{suffix}")]
    assert (rows[str(bad)]["position"], rows[str(bad)]["kind"]) == (kept, "reject")
    assert "the file is truncated or damaged from here on" in rows[str(bad)]["reason"]
    assert records[kept].startswith(rows[str(bad)]["bytes"])
    assert found.records == found.documents.num_rows + 2


def test_salvage_of_csv_keeps_whole_rows(spark: Any, tmp_path: Path) -> None:
    rows = [f'"{i},\n{i * i * 7919}"' for i in range(40_000)]
    bad = write(tmp_path / "in/a.csv.gz", torn(gzip.compress("".join(row + "\n" for row in ["text", *rows]).encode())))
    assert "keep what is before the damage with --salvage" in mistake(spark, bad)
    found = parsed(opened(spark, str(bad), salvage=True))
    kept = [text for text in found.documents["text"].to_pylist() if "\n" in text]
    assert 10_000 < len(kept) < 30_000
    assert kept == [row.strip('"') for row in rows[: len(kept)]]
    last = found.rejects.to_pylist()[-1]
    assert "truncated or damaged from here on" in last["reason"]
    assert last["position"] == found.records - 1


@pytest.mark.parametrize(
    ("columns", "settings", "told"),
    [
        ({"body": "a", "n": 1}, {}, "has no column 'text' (--text): it has body, n"),
        ({"body" * 99: "a", "n": 1}, {}, "it has bodybody"),
        ({"text": "a"}, {"id": "key"}, "has no column 'key' (--id): it has text"),
        ({"text": "a"}, {"label": "topic"}, "has no column 'topic' (--label): it has text"),
        ({"text": 1}, {}, "column text (--text) is bigint: it must be string"),
        ({"text": b"a"}, {}, "column text (--text) is binary: it must be string"),
        ({"text": "a", "id": 1.5}, {}, "column id (--id) is double: it must be string or integer"),
        ({"text": "a", "id": pa.array([1], pa.uint64())}, {}, "column id (--id) is decimal(20,0)"),
        ({"text": "a", "label": 1.5}, {}, "column label (--label) is double"),
        ({"text": "a", "label": pa.array([[1]])}, {}, "column label (--label) is array<bigint>"),
        ({"text": "a", "indices": 1}, {}, "column indices of --input"),
        ({"text": "a", "Values": 1}, {}, "column Values of --input"),
        ({"text": "a", "__x": 1}, {}, "clash"),
        ({"text": "a", "body": "b"}, {"text": "body"}, "beside --text body, which the job calls text: rename it"),
        ({"text": "a", "Text": "b"}, {}, "ext"),
    ],
)
def test_columns_that_do_not_fit(
    columns: dict[str, Any], settings: dict[str, str], told: str, spark: Any, tmp_path: Path
) -> None:
    assert told in mistake(spark, write(tmp_path / "a.parquet", small(**columns)), **settings)


def test_types_that_arrow_does_not_carry(spark: Any, tmp_path: Path) -> None:
    variant = [] if spark.version.startswith("3.") else ["map('k', struct(parse_json('1') as v))"]
    for kind in ("interval '1' day", "array(interval '1' month)", *variant):
        spark.sql(f"select 'a' as text, {kind} as other").write.mode("overwrite").parquet(str(tmp_path / "in"))
        assert "which cannot be carried along: cast it" in mistake(spark, tmp_path / "in")


UNREADABLE = """
import sys
from jobs.corpus import find_input, open_corpus
from jobs.session import Mistake, spark_session
spark = spark_session("unreadable")
for path in sys.argv[1:]:
    try:
        open_corpus(spark, find_input(path))
        print("read")
    except Mistake as error:
        print(error)
"""


def without_rights_over_files() -> None:
    """Root may read everything: take that away from what is started next (Linux: CAP_DAC_OVERRIDE, _READ_SEARCH)."""
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; another user has no such rights


def test_what_may_not_be_read_is_told_before_the_job_starts(tmp_path: Path) -> None:
    ok, secret = write(tmp_path / "in/a.txt", b"a" * 100), write(tmp_path / "in/secret.txt", b"s")
    closed = write(tmp_path / "closed/sub/a.txt", b"a").parent
    table = write(tmp_path / "t.parquet", small(text="a"))
    for path in (secret, table, closed):
        path.chmod(0)
    paths = [ok, ok.parent, secret, closed, closed.parent, table]
    done = subprocess.run(
        [sys.executable, "-c", UNREADABLE, *map(str, paths)],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.ui.enabled=false pyspark-shell"},
        preexec_fn=without_rights_over_files,
        capture_output=True,
        text=True,
        timeout=120,
    )
    closed.chmod(0o755)
    said = done.stdout.splitlines()
    assert len(said) == len(paths), done.stderr
    assert said[0] == "read"
    for line, path in zip(said[1:], [secret, secret, closed, closed, table], strict=True):
        assert str(path) in line
        assert "ermission" in line, line
