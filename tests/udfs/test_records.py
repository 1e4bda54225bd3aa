"""Raw records to documents: every format's rules, and that no record is lost whatever its bytes."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import math
import time
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from udfs import records
from udfs.records import (
    BOM,
    JSON_TYPES,
    KEPT_BYTES,
    REASON_LIMIT,
    REJECTS,
    Damaged,
    Layout,
    Parsed,
    Unreadable,
    csv_columns,
    csv_records,
    decode,
    decompressed,
    field_types,
    line_blocks,
    lines_of,
    parse,
    relative_path,
    slices,
)

few = settings(deadline=None, max_examples=300)


def lines(*records: bytes, form: str = "text", **settings: Any) -> Parsed:
    """Lines as Spark hands them on."""
    raw = pa.table(
        {
            "bytes": pa.array(records, pa.binary()),
            "source": pa.array(["file:/in"] * len(records), pa.string()),
            "position": pa.array(range(len(records)), pa.int64()),
        }
    )
    return checked(parse(raw, Layout(form, **settings)))


def jsonl(*records: bytes | str | dict[str, Any], **settings: Any) -> Parsed:
    """JSON Lines with the types of this very sample, unless they are given."""
    raw = [
        record if isinstance(record, bytes) else (record if isinstance(record, str) else json.dumps(record)).encode()
        for record in records
    ]
    types = settings.pop("types", None) or field_types(raw, ("text", "id", "label"))
    return lines(*raw, form="jsonl", types=types, **settings)


def whole(form: str, *contents: bytes, **settings: Any) -> Parsed:
    """Whole files, named f0, f1 …"""
    sources = [f"file:/in/f{i}" for i in range(len(contents))]
    raw = pa.table({"bytes": pa.array(contents, pa.binary()), "source": pa.array(sources, pa.string())})
    return checked(parse(raw, Layout(form, root="file:/in", **settings)))


def table(columns: dict[str, Any], **settings: Any) -> Parsed:
    """A table's rows."""
    n = len(next(iter(columns.values())))
    layout = Layout("table", **settings)
    read = {name: columns[name] for name in layout.columns}
    raw = pa.table({**read, "__source": ["file:/t.parquet"] * n, "__position": pa.array(range(n), pa.int64())})
    return checked(parse(raw, layout))


def checked(parsed: Parsed) -> Parsed:
    """What holds for every input of every format."""
    documents, rejects = parsed.documents, parsed.rejects
    kinds = rejects["kind"].to_pylist()
    assert documents.num_rows + kinds.count("reject") + parsed.blanks == parsed.records
    assert kinds.count("repaired") == parsed.repaired
    assert set(kinds) <= {"reject", "repaired"}
    assert rejects.schema == REJECTS
    documents.validate(full=True)
    rejects.validate(full=True)
    assert documents["text"].type == pa.large_string()
    assert documents["text"].null_count == 0
    for reason in rejects["reason"].to_pylist():
        assert len(reason.splitlines()) == 1
        assert len(reason) <= REASON_LIMIT
    assert all(len(part) <= KEPT_BYTES for part in rejects["bytes"].to_pylist())
    assert parsed.hashes is None or parsed.hashes.shape == (documents.num_rows, 2)
    places = [parsed.place(row) for row in range(documents.num_rows)]
    rejected = [(row["source"], row["position"]) for row in rejects.to_pylist() if row["kind"] == "reject"]
    assert len({*places, *rejected}) == len(places) + len(rejected)  # each record is in one place
    assert {(row["source"], row["position"]) for row in rejects.to_pylist()} <= {*places, *rejected}
    assert (parsed.hashes is None) == ("id" in documents.column_names)
    return parsed


def texts(parsed: Parsed) -> list[str]:
    return parsed.documents["text"].to_pylist()


def reasons(parsed: Parsed, kind: str = "reject") -> list[str]:
    return [row["reason"] for row in parsed.rejects.to_pylist() if row["kind"] == kind]


def bad_string(*values: bytes | None) -> pa.Array:
    """A string array over bytes that nobody checked, as Parquet gives it."""
    raw = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2], raw.buffers()[0], raw.null_count)


# Laws: documents + rejects + blanks = records, whatever the bytes (`checked` does the counting).

line_bytes = st.binary(max_size=30).map(lambda part: part.replace(b"\n", b""))
csv_bytes = st.lists(
    st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"\xff", b"\x00", b"1,x\n", b"id,text\n", BOM])
).map(b"".join)
json_bytes = st.lists(
    st.sampled_from(
        [b'{"text":', b'"a"', b'"\\ud800"', b'"id"', b":", b",", b"1", b"1e999", b"NaN", b"null", b"true"]
        + [b"{", b"}", b"[", b"]", b"\xe9", b"\x00", b" ", b'{"id":1,"text":"a"}', b'"text"', b"9" * 30, BOM]
    ),
    max_size=12,
).map(b"".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(st.sampled_from(["text", "id", "label", "x", "TEXT", "a.b"]), json_values)


@few
@given(st.lists(line_bytes, max_size=8), st.integers(0, 20))
@example([b"", b"\r", b"\r\r", b"a\x00b", b"\xff" * 9], 9)
def test_law_every_line_of_text_is_a_document_or_a_reject(records: list[bytes], limit: int) -> None:
    found = lines(*records, max_document_bytes=limit)
    expected = [record[:-1] if record.endswith(b"\r") else record for record in records]
    kept = [record for record in expected if len(record) <= limit]
    assert texts(found) == [record.decode("utf-8", "replace") for record in kept]
    assert [row["bytes"] for row in found.rejects.to_pylist() if row["kind"] == "reject"] == [
        came for came, record in zip(records, expected, strict=True) if len(record) > limit
    ]
    assert found.hashes is not None
    assert [bytes(row.tobytes()) for row in found.hashes] == [mmh3.mmh3_x64_128_digest(record) for record in kept]


@few
@given(st.lists(json_bytes | line_bytes | json_objects.map(lambda value: json.dumps(value).encode()), max_size=6))
@example([b'{"text": "a", "x": 1}', b'{"text": "b", "x": 1e400}', b'{"text": "c", "x": ' + b"9" * 400 + b"}"])
@example([b'{"text": "a", "x": 1.5}', b'{"text": "b", "x": ' + b"9" * 400 + b"}"])
@example([b'{"text": "a", "label": ["\\udc00"]}', b'{"text": "a", "label": ["b"]}'])
def test_law_every_line_of_json_is_a_document_a_reject_or_a_blank(records: list[bytes]) -> None:
    try:
        types = field_types(records, ("text", "id", "label"))
    except ValueError:
        types = {}
    for known in (types, {"id": "bigint", "label": "array<string>", "x": "double"}):
        roles = {role: role for role in ("id", "label") if role in known}
        carried = tuple(name for name in known if name not in ("text", "id", "label", "TEXT"))
        found = lines(*records, form="jsonl", types=known, carried=carried, **roles)
        assert found.records == len(records)


@few
@given(st.lists(csv_bytes, max_size=4))
@example([b'id,text\n1,"a\n', b"", BOM, b"\n\r\n", b"text,id\n"])
def test_law_every_record_of_csv_is_a_document_a_reject_or_a_blank(files: list[bytes]) -> None:
    whole("csv", *files, id="id")
    whole("csv", *files)
    for content in files:  # nothing but line ends and a byte order mark is between the records
        records = b"".join(record for record, _ in csv_records(content))
        dropped = bytes.maketrans(b"", b"")
        assert records.translate(dropped, b"\r\n") == content.removeprefix(BOM).translate(dropped, b"\r\n")


@few
@given(st.lists(st.binary(max_size=30) | st.binary(max_size=9).map(BOM.__add__), max_size=5))
@example([BOM + b"b", b"a"])
@example([BOM, BOM, BOM[:2]])
def test_law_every_file_is_a_document(contents: list[bytes]) -> None:
    found = whole("files", *contents)
    assert texts(found) == [content.removeprefix(BOM).decode("utf-8", "replace") for content in contents]
    assert found.records == len(contents)


cells = st.text(st.characters(codec="utf-8", categories=("L", "Nd", "Po", "Zs", "Cc")), max_size=8)


@few
@given(st.lists(st.tuples(cells, cells), max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_law_csv_as_pythons_writer_quotes_it_comes_back(rows: list[tuple[str, str]], end: str) -> None:
    import csv
    import io

    sink = io.StringIO()
    csv.writer(sink, quoting=csv.QUOTE_ALL, lineterminator=end).writerows([("id", "text"), *rows])
    found = whole("csv", sink.getvalue().encode(), id="id")
    assert list(zip(found.documents["id"].to_pylist(), texts(found), strict=True)) == rows


@few
@given(st.lists(st.binary(max_size=12) | st.none(), max_size=8))
def test_law_decode_gives_valid_text_as_python_would(values: list[bytes | None]) -> None:
    for column in (pa.array(values, pa.binary()), pa.array(values, pa.large_binary()), bad_string(*values)):
        text, bad = decode(column)
        text.validate(full=True)
        assert text.to_pylist() == [None if v is None else v.decode("utf-8", "replace") for v in values]
        expected = [i for i, v in enumerate(values) if v is not None and v.decode("utf-8", "replace").encode() != v]
        assert bad.tolist() == expected


# text


def test_a_line_ends_at_lf_alone_and_loses_one_cr() -> None:
    found = lines(b"a\r", b"b\r\r", b"", b"\r", "x\u2028y\u0085z\x0bw\x0c\rv".encode(), b"nul\x00")
    assert texts(found) == ["a", "b\r", "", "", "x\u2028y\u0085z\x0bw\x0c\rv", "nul\x00"]
    assert found.blanks == 0  # an empty line is an empty document


def test_a_repaired_line_is_kept_and_its_bytes_lie_aside() -> None:
    found = lines(b"good", b"caf\xe9 ok", b"\xf0\x9f\x98", b"\xed\xa0\x80")
    assert texts(found) == ["good", "caf\ufffd ok", "\ufffd", "\ufffd\ufffd\ufffd"]
    assert found.repaired == 3
    row = found.rejects.to_pylist()[0]
    assert (row["source"], row["position"], row["kind"], row["bytes"]) == ("/in", 1, "repaired", b"caf\xe9 ok")


def test_a_document_above_the_limit_is_one_reject_with_its_first_64_kb_as_they_came() -> None:
    large = b"\xff" * 100_000
    found = lines(b"small", large, b"1234567", max_document_bytes=7)
    assert texts(found) == ["small", "1234567"]
    row = found.rejects.to_pylist()[0]
    assert (row["kind"], row["position"], row["bytes"]) == ("reject", 1, large[:KEPT_BYTES])
    assert found.repaired == 0
    assert "100000 bytes" in row["reason"]


def test_no_records_give_no_documents() -> None:
    for form in ("text", "jsonl"):
        assert lines(form=form).documents.num_rows == 0
    for form in ("csv", "files"):
        assert whole(form).documents.num_rows == 0
    assert table({"text": pa.array([], pa.string())}).documents.num_rows == 0


def test_a_record_lies_aside_as_it_came() -> None:
    """With its carriage return, byte order mark or quotes, which are no text."""
    assert lines(b"\xff\r", b"long enough\r", max_document_bytes=9).rejects["bytes"].to_pylist() == [
        b"long enough\r",
        b"\xff\r",
    ]
    assert whole("files", BOM + b"\xff", BOM + b"x" * 9, max_document_bytes=8).rejects["bytes"].to_pylist() == [
        BOM + b"x" * 9,
        BOM + b"\xff",
    ]
    row = b'1,"\xff ""so"" \r\n",z'
    assert whole("csv", b"id,text,z\r\n" + row + b"\r\n", id="id").rejects["bytes"].to_pylist() == [row]
    assert jsonl(BOM + b'{"text": "\xff"}\r').rejects["bytes"].to_pylist() == [BOM + b'{"text": "\xff"}\r']


def test_what_was_cut_before_is_a_reject_of_its_size_before() -> None:
    limit = {"max_document_bytes": 4}
    for form, value in (("text", b"abc"), ("jsonl", b'{"text": "abc"}'), ("files", b"abc")):
        raw = {"bytes": [value, value], "source": ["a", "b"], "position": [0, 1], "size": [len(value), 999]}
        found = checked(parse(pa.table(raw), Layout(form, **limit)))
        assert texts(found) == ["abc"]
        assert reasons(found) == [
            "a line of 999 bytes, above 35" if form == "jsonl" else "999 bytes of text, above the limit of 4"
        ]
    raw = {"0": ["abc", None, "abc"], "file": ["a"] * 3, "position": [0, 1, 2], "size": [3, None, 999]}
    found = checked(parse(pa.table(raw), Layout("table", **limit)))
    assert texts(found) == ["abc", ""]
    assert reasons(found) == ["999 bytes of text, above the limit of 4"]


# Compressed files.


def zst(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return sink.getvalue().to_pybytes()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zst, "txt": bytes}


def decoded(path: str, content: bytes) -> tuple[bytes, str | None]:
    found = []
    try:
        for piece in decompressed(path, content):
            found.append(piece)
    except Damaged as error:
        return b"".join(found), str(error)
    return b"".join(found), None


@few
@given(st.sampled_from(list(COMPRESS)), st.lists(st.binary(max_size=40), max_size=3))
@example("gz", [b"a" * 200_000, b"", b"b" * 200_000])
@example("zst", [b"a" * 200_000, b"", b"b" * 200_000])
def test_law_every_member_of_a_compressed_file_is_decoded(suffix: str, members: list[bytes]) -> None:
    content = b"".join(map(COMPRESS[suffix], members))
    assert decoded(f"a.b.{suffix}", content) == (b"".join(members), None)
    if suffix == "gz" and members:
        assert decoded("a.gz", content + bytes(9)) == (b"".join(members), None)  # padding, as tapes have


NUMBERS = b"".join(b"%d %d\n" % (i, i * i * 7919) for i in range(4000))


def by_single_bytes(content: bytes) -> bytes:
    """What zlib makes of gzip up to the first byte that it can't decode: the best that there is."""
    decoder, found = zlib.decompressobj(31), b""
    with contextlib.suppress(zlib.error):
        for i in range(len(content)):
            found += decoder.decompress(content[i : i + 1])
    return found


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99, 1.0])
def test_all_that_stands_before_the_damage_of_a_gzip_file_is_decoded(share: float) -> None:
    whole_ = gzip.compress(NUMBERS)
    cut = int(share * (len(whole_) - 1))
    for content in (whole_[:cut], whole_[:cut] + bytes(20) + whole_[cut + 20 :], whole_[:cut] + b"\xff" * 99):
        found, damage = decoded("a.gz", gzip.compress(b"first\n") + content)
        assert found == b"first\n" + by_single_bytes(content)
        assert damage or found == b"first\n" + NUMBERS or not content


@pytest.mark.parametrize("suffix", ["bz2", "zst"])
def test_a_truncated_bzip2_or_zstd_file_gives_its_whole_blocks(suffix: str) -> None:
    one = b"".join(b"%d %d\n" % (i, i * i * 7919) for i in range(60_000))
    content = bz2.compress(one, 1) if suffix == "bz2" else zst(one)
    found, damage = decoded(f"a.{suffix}", content[: len(content) // 2])
    assert damage
    assert one.startswith(found)
    assert len(found) > len(one) // 2 - 250_000


def unpacked(path: str, content: bytes, layout: Layout) -> pa.Table:
    """The lines of one file as records."""
    blocks = list(line_blocks(path, content, layout))
    return pa.Table.from_batches([lines_of(blocks, layout.longest)]) if blocks else pa.table({})


@few
@given(
    st.lists(line_bytes, max_size=6).map(b"\n".join),
    st.sampled_from(["gz", "bz2", "zst"]),
    st.integers(0, 200),
    st.sampled_from([1, 1000]),
    st.sampled_from([1, 5, 1 << 14]),
)
@example(BOM + b"a\n" + BOM + b"b", "gz", 200, 1000, 1 << 14)
@example(BOM + b"abcdefghi\n" + BOM, "gz", 200, 1, 1)
@example(BOM, "gz", 200, 1, 1)
@example(b"a\n\nlonger\n\n", "bz2", 200, 1, 1)
def test_law_unpacked_lines_are_those_of_the_decoded_part(
    content: bytes, suffix: str, cut: int, limit: int, piece: int
) -> None:
    """Whatever the size of the pieces; of a line that can't be a document the first bytes are left."""
    packed, layout = COMPRESS[suffix](content)[:cut], Layout("text", max_document_bytes=limit, salvage=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PIECE", piece)
        patch.setattr(records, "KEPT_BYTES", 4)
        held, damage = decoded(f"file:/a b.{suffix}", packed)
        found = unpacked(f"file:/a b.{suffix}", packed, layout).to_pylist()
    expected = held.removeprefix(BOM).split(b"\n")
    if damage is None and not expected[-1]:
        expected.pop()
    assert [row["bytes"] for row in found] == [line[: 4 if len(line) > layout.longest else None] for line in expected]
    assert [row["size"] for row in found] == [len(line) for line in expected]
    assert [row["position"] for row in found] == list(range(len(expected)))
    assert [row.get("damage") for row in found] == [None] * (len(expected) - bool(damage)) + [damage] * bool(damage)
    assert {row["source"] for row in found} <= {f"file%3A/a%20b.{suffix}"}


def test_a_line_of_a_compressed_file_is_held_no_longer_than_it_can_be_a_document() -> None:
    layout = Layout("text", max_document_bytes=100_000)
    raw = unpacked("a.gz", gzip.compress(b"a\n" + b"x" * 900_000 + b"\nb"), layout)
    assert list(map(len, raw["bytes"].to_pylist())) == [1, KEPT_BYTES, 1]
    assert raw["size"].to_pylist() == [1, 900_000, 1]
    found = checked(parse(raw, layout))
    assert texts(found) == ["a", "b"]
    assert reasons(found) == ["900000 bytes of text, above the limit of 100000"]


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_the_damage_is_a_record_and_a_reject(form: str) -> None:
    value = '{"text": "%s"}\n' if form == "jsonl" else "%s\n"
    content = "".join(value % number for number in range(3000)).encode()
    raw = unpacked("a.gz", gzip.compress(content)[:-2000], Layout(form, salvage=True))
    found = checked(parse(raw, Layout(form)))
    assert 0 < found.documents.num_rows == found.records - 1 < 3000
    (row,) = found.rejects.to_pylist()
    assert row["position"] == found.documents.num_rows
    assert (value.strip() % row["position"]).encode().startswith(row["bytes"])
    assert row["reason"] == "the file is truncated or damaged from here on (its end is missing)"


def test_of_a_damaged_csv_file_whole_rows_are_kept_if_that_is_asked_for() -> None:
    content = gzip.compress(b"text,n\n" + b"".join(b'"a\nb",%d\n' % (i * i * 7919) for i in range(3000)))
    sources = [f"file:/{name}.csv.gz" for name in "abc"]
    raw = pa.table({"bytes": [content, content[:-4000], content[:3]], "source": sources})
    with pytest.raises(Unreadable, match=r"^/b\.csv\.gz is truncated or damaged \(its end is missing\): .* --salvage"):
        parse(raw, Layout("csv"))
    found = checked(parse(raw, Layout("csv", salvage=True)))
    assert {*texts(found)} == {"a\nb"}
    assert 3000 < found.documents.num_rows < 6000
    damages = [row for row in found.rejects.to_pylist() if "from here on" in row["reason"]]
    assert [row["source"] for row in damages] == ["/b.csv.gz", "/c.csv.gz"]
    assert damages[1]["position"] == 0


# jsonl


def test_a_byte_order_mark_before_any_line_of_json_is_no_json() -> None:
    """Files that were put together each begin with one."""
    found = jsonl(b'{"text":"a"}', BOM + b'{"text":"b"}', BOM, BOM + b" \r")
    assert texts(found) == ["a", "b"]
    assert found.blanks == 2
    assert np.array_equal(found.hashes, jsonl(b'{"text":"a"}', b'{"text":"b"}').hashes)
    assert reasons(jsonl(b'{"text":"a"}', BOM + BOM + b'{"text":"b"}'))[0].startswith("not JSON")


def test_json_lines_are_objects_blanks_or_rejects_with_a_reason() -> None:
    good = [b'{"id":1,"text":"ok"}', b'{"id":4}', b'{"id":5,"text":null}\r', b'{"ID":6,"Text":"case"}']
    bad = [
        (b'{"id":2,"text":"tr', "not JSON"),
        (b'{"id":"x3","text":"type"}', "field id is string, expected bigint"),
        (b"[1,2]", "not a JSON object"),
        (b"null", "not a JSON object but null"),
        (b'{"id":5,"text":"a"} trailing', "not JSON: Extra data"),
        (b'{"id":1,"text":"a"}{"id":2}', "not JSON"),
        (b'{"text":"no id"}', "field id (the id) is missing or null"),
        (b'{"id":null,"text":"a"}', "missing or null"),
        (b'{"id":1,"text":7}', "field text is bigint, expected string"),
        (b'{"id":1,"text":["a"]}', "field text is array<string>"),
        (b'{"id":true,"text":"a"}', "field id is boolean, expected bigint"),
        (b'{"id":1.0,"text":"a"}', "field id is double, expected bigint"),
        (b'{"id":9223372036854775808,"text":"a"}', "outside 64 bits"),
        (b'{"id":1,"text":"a","text":"b"}', "'text' occurs twice"),
        (b'{"id":1,"text":"a","TEXT":"b"}', "field text occurs twice"),
        (b'{"id":1,"text":"a","x":NaN}', "NaN is not JSON"),
        (b'{"id":1,"text":"a","x":-Infinity}', "-Infinity is not JSON"),
        (b'{"id":1,"text":"a","x":1e999}', "outside 64-bit"),
        (b"{'id':1}", "not JSON"),
        (b'{"id":01}', "not JSON"),
        (b'{"id":1,}', "not JSON"),
        (b'{"id":1,"text":"a\tb"}', "not JSON: Invalid control character"),
        (b'{"id":1,"text":"\\x41"}', "not JSON"),
        (b"\x00", "not JSON"),
        (b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"id":' + b"9" * 5000 + b"}", "4300 digits"),
    ]
    types = {"id": "bigint", "text": "string"}
    blanks = [b"", b"  ", b"\r", b"\t "]
    found = lines(*good, *[line for line, _ in bad], *blanks, form="jsonl", types=types, id="id")
    assert found.documents.select(["id", "text"]).to_pylist() == [
        {"id": 1, "text": "ok"},
        {"id": 4, "text": ""},
        {"id": 5, "text": ""},
        {"id": 6, "text": "case"},
    ]
    assert found.blanks == len(blanks)
    rows = found.rejects.to_pylist()
    assert [row["position"] for row in rows] == list(range(len(good), len(good) + len(bad)))
    for row, (line, reason) in zip(rows, bad, strict=True):
        assert reason in row["reason"], (line[:60], row["reason"])
        assert row["bytes"] == line[:KEPT_BYTES]


def test_lone_surrogates_become_replacement_characters_wherever_they_are() -> None:
    record = b'{"text":"a\\ud800b \\ud83d\\ude00","label":["\\udfff"],"x":"\\udc00","n":{"k":"\\ud900"}}'
    found = jsonl(record, b'{"text":"b","label":["b"],"x":"y","n":{}}', label="label", carried=("x", "n"))
    first = found.documents.to_pylist()[0]
    assert first["text"] == "a\ufffdb \U0001f600"
    assert (first["labels"], first["x"], json.loads(first["n"])) == (["\ufffd"], "\ufffd", {"k": "\ufffd"})
    assert found.repaired == 1
    assert found.rejects["bytes"].to_pylist() == [record]


def test_invalid_bytes_in_json_are_replaced_once_and_reported_once() -> None:
    found = jsonl(b'{"text":"caf\xe9 \\ud800"}')
    assert texts(found) == ["caf\ufffd \ufffd"]
    assert found.repaired == 1


def test_types_are_those_of_the_sample() -> None:
    sample: list[dict[str, Any]] = [
        {"text": "a", "id": 1, "n": 1, "d": 1, "b": True, "s": "x", "l": ["a"], "m": 1, "o": {"k": 1}, "z": None},
        {"text": "b", "id": 2, "n": -(1 << 63), "d": 1.5, "b": False, "s": "", "l": [], "m": "1", "o": [1], "z": None},
    ]
    assert field_types([json.dumps(record).encode() for record in sample]) == {
        "text": "string",
        "id": "bigint",
        "n": "bigint",
        "d": "double",
        "b": "boolean",
        "s": "string",
        "l": "array<string>",
        "m": "string",
        "o": "string",
        "z": "string",
    }
    found = jsonl(*sample, id="id", carried=("n", "d", "b", "s", "l", "m", "o", "z"))
    assert found.documents.to_pylist() == [
        {**sample[0], "d": 1.0, "m": "1", "o": '{"k": 1}'},
        {**sample[1], "m": "1", "o": "[1]"},
    ]


def test_a_type_conflict_in_a_role_goes_to_the_majority_and_rejects_the_rest() -> None:
    records = [{"id": 1, "text": "a"}, {"id": "x3", "text": "b"}, {"id": 4, "text": "c"}]
    found = jsonl(*records, id="id")
    assert found.documents["id"].to_pylist() == [1, 4]
    assert reasons(found) == ["field id is string, expected bigint"]
    with pytest.raises(ValueError, match="field text is object, none of"):
        field_types([b'{"text": {"a": 1}}'], ("text",))


def test_integers_that_64_bits_do_not_hold_are_carried_as_strings_or_as_doubles() -> None:
    large = 1 << 63
    found = jsonl(
        {"text": "a", "s": -large - 1, "d": large, "n": large - 1},
        {"text": "b", "s": 1, "d": 0.5, "n": -large},
        carried=("s", "d", "n"),
    )
    assert found.documents.to_pylist() == [
        {"text": "a", "s": "-9223372036854775809", "d": float(large), "n": large - 1},
        {"text": "b", "s": "1", "d": 0.5, "n": -large},
    ]
    found = jsonl({"text": "a", "n": 1}, {"text": "b", "n": large}, types={"n": "bigint"}, carried=("n",))
    assert reasons(found) == ["field n is an integer outside 64 bits, expected bigint"]
    with pytest.raises(ValueError, match="field id is an integer outside 64 bits, none of"):
        field_types([b'{"id": 9223372036854775808}'], ("id",))


def test_a_reason_is_one_short_line() -> None:
    name = "new\nline\u2028" + "long" * 100
    found = jsonl({"text": "a"}, {"text": "b", name: "x"}, types={name: "bigint"}, carried=(name,))
    assert reasons(found)[0].startswith("field new line longlong")
    assert reasons(found)[0].endswith("long…")


def test_bool_is_no_int_and_labels_become_strings() -> None:
    found = jsonl({"text": "a", "label": True}, {"text": "b", "label": False}, {"text": "c", "label": 1}, label="label")
    assert found.documents["label"].to_pylist() == ["true", "false"]
    assert reasons(found) == ["field label is bigint, expected boolean"]
    found = jsonl({"text": "a", "label": 7}, {"text": "b"}, label="label")
    assert found.documents["label"].to_pylist() == ["7", None]
    found = jsonl({"text": "a", "label": ["x", "y"]}, {"text": "b", "label": None}, label="label")
    assert found.documents["labels"].to_pylist() == [["x", "y"], None]


def test_names_that_differ_in_case_from_record_to_record_are_one_field() -> None:
    found = jsonl({"Text": "a", "id": 1}, {"text": "b", "ID": 2}, text="Text", id="id")
    assert field_types([b'{"Text":"a"}', b'{"text":"b","TEXT":"c"}']) == {"Text": "string"}
    assert found.documents["id"].to_pylist() == [1, 2]
    assert texts(found) == ["a", "b"]


# csv


def csv_rows(content: bytes) -> list[Any]:
    return [
        fields if fields is None else [field.decode("latin-1") for field in fields] for _, fields in content_of(content)
    ]


def content_of(content: bytes) -> list[tuple[bytes, list[bytes] | None]]:
    return list(csv_records(content))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a,b\n1,2\n", [["a", "b"], ["1", "2"]]),
        (b"a,b\r\n1,2\r\n", [["a", "b"], ["1", "2"]]),
        (b"a,b\n1,2", [["a", "b"], ["1", "2"]]),
        (BOM + b'"a",b\n', [["a", "b"]]),
        (b'"x\ny","z\r\n"\n', [["x\ny", "z\r\n"]]),
        (b'"he said ""no""",""\n', [['he said "no"', ""]]),
        (b'"a"\r\n"b"\r', [["a"], ["b"]]),
        (b",\n,,\r\n", [["", ""], ["", "", ""]]),
        (b"\n\r\na\n", [[""], [""], ["a"]]),
        (b'7" disk,5\n', [['7" disk', "5"]]),
        (b'a, "b"\n', [["a", ' "b"']]),
        (b"a\rb,c\n", [["a\rb", "c"]]),
        (b'"a\rb\x00",\xff\n', [["a\rb\x00", "\xff"]]),
        (b"a;b\n", [["a;b"]]),
        (b'"open\n1,"fine, here"\nlast\n', [None, ["1", "fine, here"], ["last"]]),
        (b'1,"to the end\nx\ny', [None, ["x"], ["y"]]),
        (b'"a"b,c\nd\n', [None, ["d"]]),
        (b'"\\"",c\nd\n', [None, ["d"]]),
        (b'"', [None]),
        (b'"""\n', [None]),
        (b"", []),
    ],
)
def test_csv_is_cut_by_rfc_4180_and_a_stray_quote_costs_its_line(content: bytes, expected: list[Any]) -> None:
    assert csv_rows(content) == expected


def test_csv_rows_become_documents_with_their_positions() -> None:
    content = b'id,text,label\r\n1,"two\r\nlines",x\r\n\r\n2,ragged\r\n3,caf\xe9,y\r\n4,too,many,fields\r\n,,\r\n'
    found = whole("csv", content, id="id", label="label")
    assert found.documents.to_pylist() == [
        {"text": "two\r\nlines", "id": "1", "label": "x"},
        {"text": "caf\ufffd", "id": "3", "label": "y"},
        {"text": "", "id": "", "label": ""},
    ]
    assert (found.records, found.blanks, found.repaired) == (6, 1, 1)
    rows = {row["position"]: row for row in found.rejects.to_pylist()}
    assert sorted(rows) == [2, 3, 4]
    assert rows[2]["reason"] == "2 fields, expected 3"
    assert rows[2]["bytes"] == b"2,ragged"
    assert (rows[3]["kind"], rows[3]["bytes"]) == ("repaired", b"3,caf\xe9,y")
    assert rows[4]["reason"] == "4 fields, expected 3"


def test_an_unclosed_quote_swallows_nothing() -> None:
    content = b'id,text\n1,"open\n' + b"".join(b"%d,row\n" % i for i in range(2, 50)) + b'50,"last, quoted"\n51,x\n'
    found = whole("csv", content, id="id")
    assert found.documents["id"].to_pylist() == [str(i) for i in range(2, 52)]
    assert reasons(found) == ["a quote that is not closed, or text behind a closing one"]
    assert found.rejects["bytes"].to_pylist() == [b'1,"open']


def test_many_stray_quotes_take_linear_time() -> None:
    for row in (b'1,"open\n', b'x"y"\n', b'"a"b,""""\n', b'"""\n', b'"a,\n'):
        begin = time.process_time()
        whole("csv", b"id,text\n" + row * 20_000)
        assert time.process_time() - begin < 10, row


def test_each_csv_file_has_its_own_header_by_name() -> None:
    files = [BOM + b"id,text\n1,a\n", b"Text,extra,ID\nb,x,2\n", b"", b"\n\n", b"id,text\n", b"id\n3\n4\n"]
    found = whole("csv", *files, b"id,text,TEXT\n5,a,b\n", b'"id,text\n6,a\n', id="id")
    assert found.documents.to_pylist() == [{"text": "a", "id": "1"}, {"text": "b", "id": "2"}]
    assert reasons(found) == [
        "column 'text' occurs 0 times in the header (case does not count)",
        "column 'text' occurs 0 times in the header (case does not count)",
        "column 'text' occurs 2 times in the header (case does not count)",
        "the header has a quote that is not closed, or text behind a closing one",
    ]
    assert found.records == 6  # each row of such a file counts, so that --max-rejects sees how much was lost


def test_csv_columns_reads_the_header_alone() -> None:
    assert csv_columns(BOM + b'\n"id","te""xt\n",\xc3\xa9\r\n"') == ["id", 'te"xt\n', "é"]
    for header, told in (
        (b"a,b,A\n", "'a' occurs 2 times"),
        (b"", "no header"),
        (b'"a\n', "not closed"),
        (b"a,b\r1,2\r", "alone"),
    ):
        with pytest.raises(ValueError, match=told):
            csv_columns(header)


# files


@pytest.mark.parametrize("name", ["a.txt", "sub dir/b [1].txt", "p%20c%.txt", "é\u2028,{x}*?.txt", "back\\slash", "="])
def test_a_files_id_is_its_path_below_the_input_as_it_is_written(name: str) -> None:
    root = "file:/in %41/[x]"
    assert relative_path(f"{root}/{name}", root) == name
    assert relative_path(f"{root}/{name}", root + "/") == name
    raw = pa.table({"bytes": pa.array([BOM + b"a\r\nb\n"]), "source": [f"{root}/{name}"]})
    found = checked(parse(raw, Layout("files", root=root)))
    assert found.documents.to_pylist() == [{"text": "a\r\nb\n", "id": name}]


def test_a_file_above_the_limit_or_with_bad_bytes_is_told() -> None:
    found = whole("files", b"ok", b"x" * 11, b"\xff\xfe", b"", max_document_bytes=10)
    assert found.documents.to_pylist() == [
        {"text": "ok", "id": "f0"},
        {"text": "\ufffd\ufffd", "id": "f2"},
        {"text": "", "id": "f3"},
    ]
    assert [(row["source"], row["kind"]) for row in found.rejects.to_pylist()] == [
        ("/in/f1", "reject"),
        ("/in/f2", "repaired"),
    ]


# tables


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_of_every_layout_is_read_with_null_as_empty(kind: pa.DataType) -> None:
    found = table({"text": pa.array(["a", None, "", "b"]).cast(kind), "id": pa.array(["1", "2", None, "4"])}, id="id")
    assert texts(found) == ["a", "", "b"]
    assert found.documents["id"].to_pylist() == ["1", "2", "4"]
    assert reasons(found) == ["column id (the id) is null"]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_integer_ids_become_bigint_beside_a_null(kind: pa.DataType) -> None:
    top = (1 << kind.bit_width - 1) - 1
    found = table({"text": ["a", "b", "c"], "id": pa.array([top, None, -top - 1], kind)}, id="id")
    assert found.documents["id"].type == pa.int64()
    assert found.documents["id"].to_pylist() == [top, -top - 1]


def test_invalid_utf8_in_a_table_is_replaced_in_every_string_column() -> None:
    found = table(
        {
            "text": bad_string(b"a\xff", None, b"ok"),
            "id": bad_string(b"1", b"2\xfe", b"3"),
            "x": bad_string(b"", b"", b"\xe9"),
        },
        id="id",
        carried=("x",),
    )
    assert found.documents.to_pylist() == [
        {"text": "a\ufffd", "id": "1", "x": ""},
        {"text": "", "id": "2\ufffd", "x": ""},
        {"text": "ok", "id": "3", "x": "\ufffd"},
    ]
    assert [(row["kind"], row["bytes"]) for row in found.rejects.to_pylist()] == [
        ("repaired", b"a\xff"),
        ("repaired", b"2\xfe"),
        ("repaired", b"\xe9"),
    ]


def test_invalid_utf8_within_a_nested_column_rejects_its_row_alone() -> None:
    labels = pa.ListArray.from_arrays([0, 1, 3, 3], bad_string(b"a", b"b", b"\xff"))
    found = table({"text": ["x", "y", "z"], "label": labels}, label="label")
    assert found.documents["labels"].to_pylist() == [["a"], []]
    assert "invalid UTF-8 within column label" in reasons(found)[0]


def test_a_row_is_rejected_once_whatever_is_wrong_with_it() -> None:
    found = table({"text": bad_string(b"\xff" * 9, b"ok"), "id": pa.array([None, "1"])}, id="id", max_document_bytes=5)
    assert found.rejects["kind"].to_pylist() == ["reject"]
    assert found.repaired == 0
    assert found.rejects["bytes"].to_pylist() == [b"\xff" * 9]


EVERY_TYPE: dict[str, pa.Array] = {
    "bool": pa.array([True, None, False]),
    "tiny": pa.array([1, None, -1], pa.int8()),
    "float": pa.array([1.5, None, math.nan], pa.float32()),
    "double": pa.array([1e300, None, -0.0]),
    "decimal": pa.array([Decimal("1.10"), None, Decimal("-2.00")], pa.decimal128(9, 2)),
    "date": pa.array([date(1, 1, 1), None, date(9999, 12, 31)]),
    "utc": pa.array(
        [datetime(2026, 11, 30, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")
    ),
    "far": pa.array([1 << 62, None, -(1 << 62)], pa.int64()).cast(pa.timestamp("us")),
    "binary": pa.array([b"\xff", None, b""]),
    "duration": pa.array([timedelta(1), None, timedelta(-1)]),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
    "map": pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string())),
    "struct": pa.array([{"x": [{"y": "z"}]}, None, {"x": None}]),
    "nested_far": pa.array([[1 << 62], None, []], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us", "UTC"))),
}


def test_columns_of_every_type_are_carried_as_they_are() -> None:
    found = table({"text": ["a", "b", "c"], **EVERY_TYPE}, carried=tuple(EVERY_TYPE))
    assert texts(found) == ["a", "b", "c"]
    for name, values in EVERY_TYPE.items():
        assert found.documents[name].combine_chunks().type == values.type
        assert (
            found.documents[name].cast(values.type).combine_chunks().is_null().to_pylist()
            == values.is_null().to_pylist()
        )


@pytest.mark.parametrize("name", list(EVERY_TYPE))
def test_a_rows_hash_knows_every_columns_values_and_no_layout(name: str) -> None:
    values = EVERY_TYPE[name]

    def hashes(column: pa.Array) -> list[bytes]:
        found = table({"text": ["t"] * len(column), name: column}, carried=(name,)).hashes
        assert found is not None
        return [row.tobytes() for row in found]

    each = hashes(values)
    assert len(set(each)) == len(values)
    assert hashes(pa.concat_arrays([values, values])[2:5]) == [each[2], each[0], each[1]]  # slices with an offset
    assert hashes(values.take(pa.array([2, 1, 0]))) == each[::-1]


def test_a_rows_hash_does_not_depend_on_the_order_of_columns() -> None:
    a, b = pa.array(["x", None]), pa.array([1, 2])
    one = table({"text": ["t", "t"], "a": a, "b": b}, carried=("a", "b"))
    other = table({"b": b, "text": ["t", "t"], "a": a}, carried=("b", "a"))
    assert np.array_equal(one.hashes, other.hashes)


# and what is done with them


def test_the_layout_travels_as_json() -> None:
    layout = Layout("jsonl", "body", "key", None, ("a", "b"), {"a": "double"}, "file:/é", 7)
    again = Layout(**json.loads(layout.to_json()))
    assert (again.carried, again.types) == (["a", "b"], {"a": "double"})
    assert again.to_json() == layout.to_json()
    assert set(JSON_TYPES) == {"bigint", "double", "boolean", "string", "array<string>"}


@few
@given(st.lists(st.integers(0, 9)), st.integers(1, 12))
def test_law_slices_cover_all_rows_and_keep_to_the_limit(sizes: list[int], limit: int) -> None:
    rows = pa.table({"text": pa.array(["x" * size for size in sizes], pa.large_string())})
    parts = list(slices(rows, limit))
    assert [i for begin, end in parts for i in range(begin, end)] == list(range(len(sizes)))
    assert all(end == begin + 1 or sum(sizes[begin:end]) <= limit for begin, end in parts)


def test_a_compressed_csv_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "WHOLE_FILE_LIMIT", 20)
    for size, told in ((15, None), (16, "/in/a.csv.gz has more than 20 bytes when decompressed: split it, or convert")):
        content = gzip.compress(b"text\n" + b"x" * size)
        raw = pa.table({"bytes": [content], "source": ["file:/in/a.csv.gz"]})
        with pytest.raises(Unreadable, match=told) if told else contextlib.nullcontext():
            assert parse(raw, Layout("csv")).records == 1


@pytest.mark.parametrize("line", [b'a","b', b'a","b,""', b'"a', b'"a",b","c'])
def test_quotes_that_are_not_closed_take_linear_time(line: bytes) -> None:
    """Each line's quote was looked for to the end of the file, which took minutes."""

    def cost(lines: int) -> float:
        content = b"x,text\n" + (line + b"\n") * lines
        started = time.process_time()
        assert [record for record, _ in csv_records(content)][1:] == [line] * lines
        return time.process_time() - started

    assert cost(80_000) < 10 * cost(20_000)


@given(st.lists(st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xff", BOM, b"bc"])).map(b"".join), min_size=1))
@few
def test_lines_of_many_files_are_those_between_line_feeds(contents: list[bytes]) -> None:
    """Without the end of the last line, and a byte order mark at the start; a file that is damaged is Unreadable."""
    layout, blocks, expected = Layout("text"), [], []
    for number, content in enumerate(contents):
        blocks += line_blocks(f"/é %41/{number}.gz", gzip.compress(content), layout)
        parts = content.removeprefix(BOM).split(b"\n")
        whole = parts if parts[-1] else parts[:-1]
        expected += [(line, f"/%C3%A9%20%2541/{number}.gz", i, len(line)) for i, line in enumerate(whole)]
    with pytest.raises(Unreadable, match=r"^/a\.gz is truncated or damaged \(its end is missing\)"):
        list(line_blocks("/a.gz", gzip.compress(contents[0])[:-1], layout))
    found = lines_of(blocks, layout.longest) if expected else pa.record_batch({})
    assert found.schema.names == (["bytes", "source", "position", "size"] if expected else [])
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
