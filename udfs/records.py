"""Raw records to documents: strict parsing of lines, JSON, CSV, whole files and table rows; each reject has a reason.

Nothing is lost silently: records = documents + rejects + blanks. Invalid UTF-8 becomes U+FFFD, and the document is kept
while its raw bytes go aside as "repaired".
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from udfs.arrays import is_text
from udfs.hashing import content_hash, hash_each

REJECTS = pa.schema(
    [
        ("source", pa.string()),
        ("position", pa.int64()),
        ("reason", pa.string()),
        ("kind", pa.string()),
        ("bytes", pa.binary()),
    ]
)
KEPT_BYTES = 64 << 10  # of a reject
JSON_TYPES = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "array<string>": pa.list_(pa.string()),
}
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Layout:
    """How a corpus is laid out: its format and which column is what; `carried` names all other columns.

    format: "table" (Parquet), "text", "jsonl", "csv" or "files". id and label may be None. types: for jsonl, the type
    of each field by JSON_TYPES. root: for files, the folder to which an id is relative.
    """

    format: str
    text: str = "text"
    id: str | None = None
    label: str | None = None
    carried: tuple[str, ...] = ()
    types: dict[str, str] = field(default_factory=dict)
    root: str = ""
    max_document_bytes: int = 16 << 20

    def to_json(self) -> str:
        """The layout as JSON, for the workers."""
        return json.dumps(asdict(self))


@dataclass
class Parsed:
    """Documents of some records (text large_string, then id, label or labels and the carried columns) and the rest.

    hashes: a 128-bit content hash of each document's record, uint64[n, 2], where records have no id; else None.
    """

    documents: pa.Table
    hashes: np.ndarray | None
    rejects: pa.Table
    records: int
    blanks: int
    repaired: int


class _Aside:
    """Rejected and repaired records, collected."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.rejected = self.repaired = 0

    def put(self, source: str, position: int, reason: str, raw: bytes, kind: str = "reject") -> None:
        row = {"source": source, "position": position, "reason": reason, "kind": kind, "bytes": raw[:KEPT_BYTES]}
        self.rows.append(row)
        if kind == "reject":
            self.rejected += 1
        else:
            self.repaired += 1

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, schema=REJECTS)


def decode(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Bytes (binary or unchecked string) as valid UTF-8 large_string, each invalid sequence one U+FFFD (WHATWG).

    Returns the strings and the rows that had to be repaired, int64.
    """
    try:
        if is_text(values.type):
            values.validate(full=True)
            return values.cast(pa.large_string()), np.empty(0, np.int64)
        return values.cast(pa.large_string()), np.empty(0, np.int64)
    except pa.ArrowInvalid:
        raw = values.cast(pa.large_binary()).to_pylist()
    fixed = [None if value is None else value.decode("utf-8", "replace") for value in raw]
    bad = [i for i, value in enumerate(raw) if value is not None and value != (fixed[i] or "").encode()]
    return pa.array(fixed, pa.large_string()), np.array(bad, np.int64)


def parse(raw: pa.Table, layout: Layout) -> Parsed:
    """Parse raw records as `read_raw` of jobs/corpus.py lays them out for the format.

    text, jsonl: bytes, source, position. csv, files: bytes (a whole file), source. table: the columns, then __source
    and __position.
    """
    aside = _Aside()
    if layout.format == "table":
        return _parse_table(raw, layout, aside)
    if layout.format == "csv":
        return _parse_csv(raw, layout, aside)
    sources = raw["source"].to_pylist() if raw.num_rows else []
    positions = raw["position"].to_pylist() if "position" in raw.column_names else [0] * raw.num_rows
    if layout.format == "jsonl":
        return _parse_json(raw["bytes"].to_pylist(), sources, positions, layout, aside)
    values = one(raw["bytes"])
    if layout.format == "text":
        values = _without_cr(values)
    else:
        values = pc.if_else(pc.starts_with(values, _BOM), pc.binary_slice(values, 3), values)
    text, bad = decode(values)
    columns: dict[str, pa.Array] = {"text": text}
    if layout.format == "files":
        columns["id"] = pa.array([relative_path(source, layout.root) for source in sources], pa.string())
    for i in bad:
        aside.put(sources[i], positions[i], "invalid UTF-8, replaced by U+FFFD", values[int(i)].as_py(), "repaired")
    kept = _within_limit(text, layout, aside, lambda i: (sources[i], positions[i]))
    hashes = None if "id" in columns else content_hash(values)[kept]
    return Parsed(pa.table(columns).take(kept), hashes, aside.table(), raw.num_rows, 0, aside.repaired)


def relative_path(uri: str, root: str) -> str:
    """A file's path below `root`, both as Spark's file URIs; the plain path where it is not below."""
    path, base = unquote(uri), unquote(root).rstrip("/") + "/"
    return path[len(base) :] if path.startswith(base) else path.rsplit("/", 1)[-1]


def one(column: pa.ChunkedArray) -> pa.Array:
    """A table's column as one array."""
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else joined.chunk(0)


def _without_cr(values: pa.Array) -> pa.Array:
    """Lines without their one trailing CR: a record ends at LF alone, and CRLF files have one more byte."""
    ends = pc.ends_with(values, b"\r")
    return pc.if_else(ends, pc.binary_slice(values, 0, -1), values) if pc.any(ends).as_py() else values


def _within_limit(
    text: pa.Array, layout: Layout, aside: _Aside, where: Callable[[int], tuple[str, int]], skip: Iterable[int] = ()
) -> np.ndarray:
    """The rows whose text is within the limit and that are not in `skip`; the too large ones go aside."""
    size = pc.fill_null(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
    kept = size <= layout.max_document_bytes
    kept[list(skip)] = True
    for i in np.flatnonzero(~kept):
        source, position = where(int(i))
        reason = f"{size[i]} bytes of text, above the limit of {layout.max_document_bytes}"
        aside.put(source, position, reason, text[int(i)].as_py().encode())
    kept[list(skip)] = False
    return np.flatnonzero(kept)


def _parse_table(raw: pa.Table, layout: Layout, aside: _Aside) -> Parsed:
    columns: dict[str, pa.Array] = {}
    repaired: dict[int, list[str]] = {}
    for name in raw.column_names:
        values = one(raw[name])
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if is_text(values.type):
            values, bad = decode(values)
            for i in bad:
                repaired.setdefault(int(i), []).append(name)
            values = values if name == layout.text else values.cast(pa.string())
        columns[name] = values
    sources, positions = columns.pop("__source"), columns.pop("__position")
    hashes = None if layout.id else _row_hashes(columns, raw.num_rows)
    text = columns.pop(layout.text)

    def where(i: int) -> tuple[str, int]:
        return sources[i].as_py() or "", positions[i].as_py() or 0

    without_id: list[int] = []
    documents = {"text": pc.fill_null(text, "")}
    if layout.id:
        ids = columns.pop(layout.id)
        without_id = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False)).tolist()
        documents["id"] = ids.cast(pa.int64()) if pa.types.is_integer(ids.type) else ids
        for i in without_id:
            aside.put(*where(i), f"column {layout.id} (the id) is null", (text[i].as_py() or "").encode())
    if layout.label:
        label = columns.pop(layout.label)
        if pa.types.is_list(label.type):
            documents["labels"] = label
        else:
            documents["label"] = label.cast(pa.string())
    for i, names in sorted(repaired.items()):
        if i not in without_id:
            original = one(raw[names[0]])[i]
            value = pa.array([original]).cast(pa.large_binary())[0].as_py() if original.is_valid else b""
            aside.put(*where(i), f"invalid UTF-8 in {', '.join(names)}, replaced by U+FFFD", value, "repaired")
    documents.update({name: columns[name] for name in layout.carried})
    kept = _within_limit(text, layout, aside, where, without_id)
    table = pa.table(documents).take(kept)
    return Parsed(table, None if hashes is None else hashes[kept], aside.table(), raw.num_rows, 0, aside.repaired)


def _row_hashes(columns: dict[str, pa.Array], n: int) -> np.ndarray:
    """A 128-bit hash of each row over all its columns, in order of their names."""
    parts = [np.zeros((n, 2), np.uint64)]
    for name in sorted(columns):
        values = columns[name]
        if pa.types.is_nested(values.type):
            values = pa.array([json.dumps(value, default=str, ensure_ascii=False) for value in values.to_pylist()])
        elif not is_text(values.type) and not pa.types.is_binary(values.type):
            values = values.cast(pa.string())
        hashes = content_hash(values)
        hashes[values.is_null().to_numpy(zero_copy_only=False)] = np.iinfo(np.uint64).max
        parts.append(hashes)
    joined = np.ascontiguousarray(np.concatenate(parts, axis=1)).view(np.uint8)
    return hash_each(joined.reshape(-1), np.arange(n + 1, dtype=np.int64) * joined.shape[1])


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _read_json(line: str) -> dict[str, Any]:
    """One JSON object (RFC 8259), nothing else on the line; raises ValueError with the reason."""
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object but {_json_type(value)}")
    return value


def _json_type(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, list):
        return "array<string>" if all(isinstance(item, str) for item in value) else "array"
    return {int: "bigint", float: "double", str: "string", dict: "object", type(None): "null"}[type(value)]


def field_types(lines: Iterable[bytes]) -> dict[str, str]:
    """The type of each field in a sample of JSON Lines, one of JSON_TYPES: "string" (JSON text) where they differ."""
    seen: dict[str, set[str]] = {}
    for line in lines:
        try:
            record = _read_json(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        for name, value in record.items():
            seen.setdefault(name, set()).add(_json_type(value))
    types = {}
    for name, found in seen.items():
        found.discard("null")
        if found == {"bigint", "double"}:
            found = {"double"}
        types[name] = found.pop() if len(found) == 1 else "string"
        if types[name] not in JSON_TYPES:
            types[name] = "string"
    return types


def _json_value(name: str, value: Any, kind: str, strict: bool) -> Any:
    """A field's value in its column's type; raises ValueError if it is of another one (any fits a carried string)."""
    if value is None:
        return None
    found = _json_type(value)
    if kind == "string" and not strict:
        return value if found == "string" else json.dumps(value, ensure_ascii=False)
    if kind == "double" and found == "bigint":
        return float(value)
    if found != kind:
        raise ValueError(f"field {name} is {found}, expected {kind}")
    if kind == "bigint" and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"field {name} is {value}: outside 64 bits")
    return value


def _parse_json(lines: list[bytes], sources: list[str], positions: list[int], layout: Layout, aside: _Aside) -> Parsed:
    roles = {"text": layout.text, "id": layout.id, "label": layout.label}
    names = [name for name in roles.values() if name] + list(layout.carried)
    types = {name: layout.types.get(name, "string") for name in names} | {layout.text: "string"}
    columns: dict[str, list[Any]] = {name: [] for name in names}
    kept: list[int] = []
    blanks = 0
    for i, line in enumerate(lines):
        if not line.strip(b" \t\r\n"):
            blanks += 1
            continue
        text = line.decode("utf-8", "replace")
        try:
            record = _read_json(text)
            folded = {key.lower(): key for key in record}
            row = {}
            for name in names:
                key = name if name in record else folded.get(name.lower(), name)
                row[name] = _json_value(name, record.get(key), types[name], strict=name in roles.values())
            if layout.id and row[layout.id] is None:
                raise ValueError(f"field {layout.id} (the id) is missing or null")
            size = len((row[layout.text] or "").encode("utf-8", "replace"))
            if size > layout.max_document_bytes:
                raise ValueError(f"{size} bytes of text, above the limit of {layout.max_document_bytes}")
        except ValueError as error:
            aside.put(sources[i], positions[i], str(error), line)
            continue
        reason = "invalid UTF-8, replaced by U+FFFD" if text.encode() != line else ""
        for name, value in row.items():
            if isinstance(value, str) and not value.isascii():
                row[name] = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                if row[name] != value:
                    reason = f"lone surrogate in field {name}, replaced by U+FFFD"
        if reason:
            aside.put(sources[i], positions[i], reason, line, "repaired")
        kept.append(i)
        for name in names:
            columns[name].append(row[name])
    arrays = {name: pa.array(columns[name], JSON_TYPES[types[name]]) for name in names}
    documents = {"text": pc.fill_null(arrays[layout.text], "").cast(pa.large_string())}
    if layout.id:
        documents["id"] = arrays[layout.id]
    if layout.label:
        label = arrays[layout.label]
        many = pa.types.is_list(label.type)
        documents["labels" if many else "label"] = label if many else label.cast(pa.string())
    documents.update({name: arrays[name] for name in layout.carried})
    hashes = None if layout.id else content_hash(_without_cr(pa.array([lines[i] for i in kept], pa.large_binary())))
    return Parsed(pa.table(documents), hashes, aside.table(), len(lines), blanks, aside.repaired)


def csv_columns(header: bytes) -> list[str]:
    """The column names in the first line of a CSV file; raises ValueError on names that occur twice."""
    table = csv.read_csv(io.BytesIO(header.split(b"\n", 1)[0] + b"\n"), csv.ReadOptions(use_threads=False))
    names = list(table.column_names)
    folded = [name.lower() for name in names]
    for name in names:
        if folded.count(name.lower()) > 1:
            raise ValueError(f"column {name} occurs twice in the header (case does not count): rename one")
    return names


def _parse_csv(raw: pa.Table, layout: Layout, aside: _Aside) -> Parsed:
    tables: list[pa.Table] = []
    records = blanks = 0
    names = [name for name in (layout.text, layout.id, layout.label) if name] + list(layout.carried)
    for source, content in zip(raw["source"].to_pylist(), raw["bytes"].to_pylist(), strict=True):
        rejected_before = aside.rejected

        def refuse(row: csv.InvalidRow, source: str = source) -> str:
            reason = f"{row.actual_columns} fields, expected {row.expected_columns}"
            aside.put(source, row.number or 0, reason, row.text.encode())
            return "skip"

        try:
            table = csv.read_csv(
                io.BytesIO(content),
                csv.ReadOptions(use_threads=False, block_size=max(1 << 20, len(content) + 1)),
                csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
                csv.ConvertOptions(column_types={name: pa.binary() for name in names}, strings_can_be_null=False),
            )
            missing = [name for name in names if name not in table.column_names]
            if missing:
                raise ValueError(f"the header lacks column {', '.join(missing)}")
        except (pa.ArrowInvalid, ValueError) as error:
            aside.put(source, 0, f"not read: {error}", content)
            records += 1
            continue
        rows = table.num_rows
        table = table.select(names).append_column("__source", pa.array([source] * rows, pa.string()))
        tables.append(table.append_column("__position", pa.array(np.arange(1, rows + 1), pa.int64())))
        records += rows + aside.rejected - rejected_before
    if not tables:
        empty = {name: pa.array([], pa.binary()) for name in names}
        empty |= {"__source": pa.array([], pa.string()), "__position": pa.array([], pa.int64())}
        tables = [pa.table(empty)]
    joined = pa.concat_tables(tables)
    for index, name in enumerate(joined.column_names):
        if pa.types.is_binary(joined[name].type):
            unchecked = [_unchecked(chunk) for chunk in joined[name].chunks]
            joined = joined.set_column(index, name, pa.chunked_array(unchecked, pa.large_string()))
    parsed = _parse_table(joined, layout, aside)
    parsed.records, parsed.blanks = records, blanks
    return parsed


def _unchecked(values: pa.Array) -> pa.Array:
    """Binary as large_string over the same bytes, to be checked by `decode`."""
    wide = values.cast(pa.large_binary())
    return pa.LargeStringArray.from_buffers(
        len(wide), *wide.buffers()[1:], wide.buffers()[0], wide.null_count, wide.offset
    )


def slices(table: pa.Table, limit: int) -> Iterator[tuple[int, int]]:
    """Row ranges of a table with a `text` column, each of at most `limit` bytes of text (or one row)."""
    ends = np.cumsum(pc.fill_null(pc.binary_length(table["text"]), 0).to_numpy())
    begin = 0
    while begin < table.num_rows:
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + limit, "right")))
        yield begin, end
        begin = end
