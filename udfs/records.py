"""Raw records to documents: strict parsing of lines, JSON, CSV, whole files and table rows; each reject has a reason.

Nothing is lost silently: records = documents + rejects + blanks. Invalid UTF-8 becomes U+FFFD, and the document is kept
while its raw bytes go aside as "repaired".
"""

from __future__ import annotations

import bz2
import json
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.arrays import is_text, large
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
REASON_LIMIT = 300  # characters
WHOLE_FILE_LIMIT = 1 << 30  # bytes of a file that is read whole
JSON_TYPES = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "array<string>": pa.list_(pa.string()),
}
BEYOND = "an integer outside 64 bits"
DECODERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    ".bz2": bz2.BZ2Decompressor,
}
UNPACKED = (*DECODERS, ".zst")  # names of compressed files that are decoded here
PIECE = 1 << 14  # bytes of a compressed file that are decoded at once
ZSTD_BLOCK = 256 << 10  # more than one block of zstd takes, compressed or not
LINE_ROOM = 8  # times the bytes of a document is what a line of JSON may have: an escape takes six for one
BOM = b"\xef\xbb\xbf"
BAD_QUOTE = "a quote that is not closed, or text behind a closing one"
BAD_UTF8 = "invalid UTF-8, replaced by U+FFFD"
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# RFC 4180, but for a quote within a field that does not begin with one, which stands for itself.
# Possessive: nothing is tried twice where a quote is not closed.
_CSV_FIELD = re.compile(rb'((?>"[^"]*+(?:""[^"]*+)*+"|[^",\n][^,\n]*+|))(,|\r?(?:\n|\Z))')


class Unreadable(ValueError):
    """A file that cannot be read: one line with its path, the reason and the remedy."""


class Damaged(ValueError):
    """Why a compressed file cannot be decoded any further."""


@dataclass(frozen=True)
class Layout:
    """How a corpus is laid out: its format and which column is what; `carried` names all other columns.

    format: "table", "text", "jsonl", "csv" or "files". id and label may be None. types: for jsonl, the type of each
    field by JSON_TYPES. root: for files, the folder to which an id is relative. table: the name of a catalog's table.
    max_document_bytes: of a document's text as it came, before bad bytes are replaced. salvage: of a damaged compressed
    file, keep the records before the damage; else it is Unreadable.
    """

    format: str
    text: str = "text"
    id: str | None = None
    label: str | None = None
    carried: tuple[str, ...] = ()
    types: dict[str, str] = field(default_factory=dict)
    root: str = ""
    max_document_bytes: int = 16 << 20
    table: str = ""
    salvage: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that are read: text, id and label where there are such, the carried ones."""
        return [self.text, *[name for name in (self.id, self.label) if name], *self.carried]

    @property
    def longest(self) -> int:
        """The bytes of the longest line, file or text that can be a document; of longer ones KEPT_BYTES are enough."""
        room = LINE_ROOM if self.format == "jsonl" else 1
        return min(self.max_document_bytes * room, WHOLE_FILE_LIMIT) + len(BOM)

    def to_json(self) -> str:
        """The layout as JSON, for the workers."""
        return json.dumps(asdict(self))


@dataclass
class Parsed:
    """Documents of some records (text large_string, then id, label or labels and the carried columns) and the rest.

    hashes: a 128-bit content hash of each document's record, uint64[n, 2], where records have no id; else None.
    place: of a document's row, the source and position of its record, as in REJECTS.
    """

    documents: pa.Table
    hashes: np.ndarray | None
    rejects: pa.Table
    records: int
    blanks: int
    repaired: int
    place: Callable[[int], tuple[str, int]]


class Aside:
    """Rejected and repaired records, collected; their sources come as paths, or as URLs as in _metadata.file_path.

    table: a name to put before each source.
    """

    def __init__(self, urls: bool = False, table: str = "") -> None:
        self.urls, self.name = urls, table
        self.rows: list[dict[str, object]] = []
        self.rejected = self.repaired = 0

    def path(self, source: str) -> str:
        return f"{self.name} {plain_path(unquote(source) if self.urls else source)}".strip()

    def put(self, source: str, position: int, reason: str, raw: bytes, kind: str = "reject") -> None:
        source = self.path(source)
        reason = " ".join(reason.splitlines())
        reason = reason if len(reason) <= REASON_LIMIT else reason[: REASON_LIMIT - 1] + "…"
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
    """Parse raw records as `open_corpus` of jobs/corpus.py lays them out for the format.

    text, jsonl: bytes, source, position. csv, files: bytes (a whole file, of csv maybe compressed), source. table:
    `layout.columns` in this order under any names, then file and position. A text or jsonl file's byte order mark is
    gone already: Spark's line reader drops it. There may be a column size, of a table the last: the bytes that the
    line, file or text had before it was cut. text and jsonl may have a column damage, as `lines_of` gives it.
    """
    aside = Aside(layout.format not in ("csv", "files"), layout.table)
    if layout.format == "table":
        names = [*layout.columns, "__source", "__position", "__size"]
        return _parse_table(raw.rename_columns(names[: raw.num_columns]), layout, aside)
    if layout.format == "csv":
        return _parse_csv(raw, layout, aside)
    if "damage" not in raw.column_names:
        return _parse_bytes(raw, layout, aside) if layout.format != "jsonl" else _parse_json(raw, layout, aside)
    damaged = raw.filter(raw["damage"].is_valid())
    for row in damaged.to_pylist():
        aside.put(row["source"], row["position"], _damage(row["damage"]), row["bytes"])
    parsed = parse(raw.filter(raw["damage"].is_null()).drop_columns(["damage"]), layout)
    parsed.rejects = pa.concat_tables([parsed.rejects, aside.table()])
    parsed.records += damaged.num_rows
    return parsed


def _parse_bytes(raw: pa.Table, layout: Layout, aside: Aside) -> Parsed:
    """Each record is a document: a line, or a whole file."""
    came, sources = one(raw["bytes"]), raw["source"].to_pylist()
    files = layout.format == "files"
    positions = [0] * raw.num_rows if files else raw["position"].to_pylist()
    values = _cut(came, pc.starts_with(came, BOM), slice(3, None)) if files else _without_cr(came)
    size = pc.binary_length(values).to_numpy(zero_copy_only=False)
    if "size" in raw.column_names:
        before = raw["size"].to_numpy()
        size = np.where(before > pc.binary_length(came).to_numpy(zero_copy_only=False), before, size)
    for i in np.flatnonzero(size > layout.max_document_bytes):
        aside.put(sources[i], positions[i], _too_large(size[i], layout), _head(came[int(i)]))
    kept = np.flatnonzero(size <= layout.max_document_bytes)
    values = values if len(kept) == raw.num_rows else values.take(pa.array(kept))
    text, bad = decode(values)
    for i in bad:
        aside.put(sources[kept[i]], positions[kept[i]], BAD_UTF8, _head(came[int(kept[i])]), "repaired")
    columns = {"text": text}
    if files:
        columns["id"] = pa.array([relative_path(sources[i], layout.root) for i in kept], pa.string())
    hashes = None if files else content_hash(values)

    def place(row: int) -> tuple[str, int]:
        return aside.path(sources[kept[row]]), positions[kept[row]]

    return Parsed(pa.table(columns), hashes, aside.table(), raw.num_rows, 0, aside.repaired, place)


def plain_path(path: str) -> str:
    """A path as Hadoop writes it, without the scheme if it is local: as one types it."""
    return re.sub(r"^file:(//)?(?=/)", "", path)


def relative_path(path: str, root: str) -> str:
    """A file's path below `root`, both as Hadoop writes them; its name where it is not below."""
    base = root.rstrip("/") + "/"
    return path[len(base) :] if path.startswith(base) else path.rsplit("/", 1)[-1]


def _too_large(size: int, layout: Layout) -> str:
    return f"{size} bytes of text, above the limit of {layout.max_document_bytes}"


def _damage(why: str) -> str:
    return f"the file is truncated or damaged from here on ({why})"


def _head(value: pa.Scalar) -> bytes:
    """The first KEPT_BYTES of a string or binary value, whatever they are; none of null."""
    return value.as_buffer()[:KEPT_BYTES].to_pybytes() if value.is_valid else b""


def one(column: pa.ChunkedArray) -> pa.Array:
    """A table's column as one array; where chunks have to be joined, strings and binary get 64-bit offsets."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays([large(chunk) for chunk in column.chunks] or [pa.array([], column.type)])


def _cut(values: pa.Array, where: pa.Array, part: slice) -> pa.Array:
    """The values, with only a part left of those at `where`."""
    if not pc.any(where).as_py():
        return values
    parts = [value[part] for value in values.filter(where).to_pylist()]  # Arrow's binary_slice overruns its buffer
    return pc.replace_with_mask(values, where, pa.array(parts, values.type))


def _without_cr(values: pa.Array) -> pa.Array:
    """Lines without their one trailing CR: a record ends at LF alone, and CRLF files have one more byte."""
    return _cut(values, pc.ends_with(values, b"\r"), slice(-1))


def _parse_table(raw: pa.Table, layout: Layout, aside: Aside, records: list[bytes] | None = None) -> Parsed:
    """A table's rows; `records`: as which bytes each came, where it is known."""
    came = {name: one(raw[name]) for name in raw.column_names}
    columns: dict[str, pa.Array] = {}
    repaired: dict[int, list[str]] = {}
    rejected: dict[int, str] = {}
    for name, values in came.items():
        if pa.types.is_dictionary(values.type):
            values = came[name] = values.dictionary_decode()
        if is_text(values.type):
            values, bad = decode(values)
            for i in bad:
                repaired.setdefault(int(i), []).append(name)
            values = values if name == layout.text else values.cast(pa.string())
        elif pa.types.is_nested(values.type):
            rejected |= dict.fromkeys(_invalid(values), f"invalid UTF-8 within column {name}, of type {values.type}")
        columns[name] = values
    sources, positions = columns.pop("__source"), columns.pop("__position")
    size = pc.fill_null(pc.binary_length(came[layout.text]), 0).to_numpy(zero_copy_only=False)
    if "__size" in columns:
        size = np.maximum(size, pc.fill_null(columns.pop("__size"), 0).to_numpy(zero_copy_only=False))
    rejected |= {int(i): _too_large(size[i], layout) for i in np.flatnonzero(size > layout.max_document_bytes)}
    if layout.id:
        without_id = np.flatnonzero(columns[layout.id].is_null().to_numpy(zero_copy_only=False))
        rejected |= {int(i): f"column {layout.id} (the id) is null" for i in without_id}
    for i in sorted(rejected.keys() | repaired.keys()):
        source, position = sources[i].as_py() or "", positions[i].as_py() or 0
        if i in rejected:
            aside.put(source, position, rejected[i], records[i] if records else _head(came[layout.text][i]))
        else:
            reason = f"{BAD_UTF8} in {', '.join(repaired[i])}"
            aside.put(source, position, reason, records[i] if records else _head(came[repaired[i][0]][i]), "repaired")
    kept = np.setdiff1d(np.arange(raw.num_rows), list(rejected)) if rejected else np.arange(raw.num_rows)
    if rejected:
        columns = {name: values.take(pa.array(kept)) for name, values in columns.items()}
    documents = {"text": pc.fill_null(columns[layout.text], "")}
    if layout.id:
        ids = columns[layout.id]
        documents["id"] = ids.cast(pa.int64()) if pa.types.is_integer(ids.type) else ids
    if layout.label:
        documents |= _label(columns[layout.label])
    documents |= {name: columns[name] for name in layout.carried}
    hashes = None if layout.id else _combined([_row_hashes(columns[name]) for name in sorted(columns)])

    def place(row: int) -> tuple[str, int]:
        at = int(kept[row])
        return aside.path(sources[at].as_py() or ""), positions[at].as_py() or 0

    return Parsed(pa.table(documents), hashes, aside.table(), raw.num_rows, 0, aside.repaired, place)


def _label(values: pa.Array) -> dict[str, pa.Array]:
    """The column label, or labels where each value is a list."""
    many = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
    return {"labels": values} if many else {"label": values.cast(pa.string())}


def _invalid(values: pa.Array) -> list[int]:
    """The rows of a nested column that hold a string of invalid UTF-8."""

    def valid(part: pa.Array) -> bool:
        try:
            part.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    return [] if valid(values) else [i for i in range(len(values)) if not valid(values.take(pa.array([i])))]


def _row_hashes(values: pa.Array) -> np.ndarray:
    """A 128-bit hash of each value of a column of any type, uint64[n, 2]; null is all ones."""
    kind = values.type
    if pa.types.is_struct(kind):
        hashes = _combined([_row_hashes(values.field(i)) for i in range(kind.num_fields)])
    elif pa.types.is_nested(kind):  # list and map
        children = [values.keys, values.items] if pa.types.is_map(kind) else [values.values]
        items = _combined([_row_hashes(child) for child in children])
        hashes = hash_each(items.view(np.uint8).reshape(-1), values.offsets.to_numpy().astype(np.int64) * 16)
    elif is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        hashes = content_hash(values)
    else:  # Arrow would look up time zones to write a timestamp
        plain = values.view(f"int{kind.bit_width}") if pa.types.is_temporal(kind) else values
        hashes = content_hash(plain.cast(pa.string()))
    hashes[values.is_null().to_numpy(zero_copy_only=False)] = np.iinfo(np.uint64).max
    return hashes


def _combined(parts: list[np.ndarray]) -> np.ndarray:
    """The hash of each row of hashes: uint64[n, 2] of uint64[n, 2] for each column."""
    rows = np.concatenate(parts, axis=1).view(np.uint8)
    return hash_each(rows.reshape(-1), np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1])


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:40]} is outside 64-bit floating point")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {name!r} occurs twice in an object")
    return found


def _read_json(line: str) -> dict[str, Any]:
    """One JSON object (RFC 8259), nothing else on the line, no key twice; raises ValueError with the reason."""
    try:
        value = json.loads(line, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_object)
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
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return BEYOND
    return {int: "bigint", float: "double", str: "string", dict: "object", type(None): "null"}[type(value)]


def field_types(lines: Iterable[bytes], roles: Collection[str] = ()) -> dict[str, str]:
    """The type of each field in a sample of JSON Lines, one of JSON_TYPES; names that differ in case are one field.

    Where types differ, it is the most frequent one for the names in `roles` (text, id and label: what does not fit is
    rejected later), and "string" (as JSON text) for others. Raises ValueError where a role's is none of JSON_TYPES.
    """
    names: dict[str, str] = {}
    seen: dict[str, Counter[str]] = {}
    for line in lines:
        try:
            record = _read_json(line.removeprefix(BOM).decode("utf-8", "replace"))
        except ValueError:
            continue
        for name, value in record.items():
            if not _SURROGATE.search(name):
                name = names.setdefault(name.lower(), name)
                seen.setdefault(name, Counter())[_json_type(value)] += 1
    wanted = {role.lower() for role in roles}
    types = {}
    for name, found in seen.items():
        found.pop("null", 0)
        if name.lower() in wanted and found:
            types[name] = max(found, key=lambda kind: (found[kind], kind))
            if types[name] not in JSON_TYPES:
                raise ValueError(f"field {name} is {types[name]}, none of {', '.join(JSON_TYPES)}")
        elif "double" in found and found.keys() <= {"bigint", "double", BEYOND}:
            types[name] = "double"
        else:
            types[name] = next(iter(found)) if len(found) == 1 and found.keys() <= JSON_TYPES.keys() else "string"
    return types


def _json_value(name: str, value: Any, kind: str, strict: bool) -> Any:
    """A field's value in its column's type; raises ValueError if it is of another one (any fits a carried string)."""
    if value is None:
        return None
    found = _json_type(value)
    if kind == "string" and not strict:
        return value if found == "string" else json.dumps(value, ensure_ascii=False)
    if kind == "double" and found in ("bigint", BEYOND):
        return _finite(str(value))
    if found != kind:
        raise ValueError(f"field {name} is {found}, expected {kind}")
    return value


def _scrubbed(value: Any) -> Any:
    """A string or list of strings with each lone surrogate replaced by U+FFFD; any other value as it is."""
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) and not value.isascii() else value


def _parse_json(raw: pa.Table, layout: Layout, aside: Aside) -> Parsed:
    came, sources, positions = (raw[name].to_pylist() for name in ("bytes", "source", "position"))
    lines = [line.removeprefix(BOM) for line in came]  # also where a gzip member begins, in mid-file
    sizes = raw["size"].to_pylist() if "size" in raw.column_names else [0] * len(came)
    roles = [name for name in (layout.text, layout.id, layout.label) if name]
    names = layout.columns
    types = {name: layout.types.get(name, "string") for name in names} | {layout.text: "string"}
    columns: dict[str, list[Any]] = {name: [] for name in names}
    kept: list[int] = []
    blanks = 0
    for i, line in enumerate(lines):
        if sizes[i] > len(came[i]):
            aside.put(sources[i], positions[i], f"a line of {sizes[i]} bytes, above {layout.longest}", came[i])
            continue
        if not line.strip(b" \t\r\n"):
            blanks += 1
            continue
        text = line.decode("utf-8", "replace")
        try:
            record = _read_json(text)
            folded = {key.lower(): value for key, value in record.items()}
            if len(folded) < len(record):
                keys = Counter(key.lower() for key in record)
                twice = [name for name in names if keys[name.lower()] > 1]
                if twice:
                    raise ValueError(f"field {twice[0]} occurs twice (case does not count)")
            row = {name: _json_value(name, folded.get(name.lower()), types[name], name in roles) for name in names}
            if layout.id and row[layout.id] is None:
                raise ValueError(f"field {layout.id} (the id) is missing or null")
            size = len((row[layout.text] or "").encode("utf-8", "replace"))
            if size > layout.max_document_bytes:
                raise ValueError(_too_large(size, layout))
        except (ValueError, RecursionError) as error:
            aside.put(sources[i], positions[i], str(error), came[i])
            continue
        reasons = [] if text.encode() == line else [BAD_UTF8]
        for name, value in row.items():
            row[name] = _scrubbed(value)
            if row[name] != value:
                reasons.append(f"lone surrogate in field {name}, replaced by U+FFFD")
        if reasons:
            aside.put(sources[i], positions[i], "; ".join(reasons), came[i], "repaired")
        kept.append(i)
        for name in names:
            columns[name].append(row[name])
    arrays = {name: pa.array(columns[name], JSON_TYPES[types[name]]) for name in names}
    documents = {"text": pc.fill_null(arrays[layout.text], "").cast(pa.large_string())}
    if layout.id:
        documents["id"] = arrays[layout.id]
    if layout.label:
        documents |= _label(arrays[layout.label])
    documents |= {name: arrays[name] for name in layout.carried}
    hashes = None if layout.id else content_hash(_without_cr(pa.array([lines[i] for i in kept], pa.large_binary())))

    def place(row: int) -> tuple[str, int]:
        return aside.path(sources[kept[row]]), positions[kept[row]]

    return Parsed(pa.table(documents), hashes, aside.table(), len(lines), blanks, aside.repaired, place)


def csv_records(content: bytes) -> Iterator[tuple[bytes, list[bytes] | None]]:
    """The records of a CSV file (RFC 4180; an empty line is b"") with their fields, without the line's end.

    Where a quote is not closed, or text follows a closing one, one line is a record without fields (None), and reading
    goes on behind it: so a stray quote costs its line, and what it would have swallowed is kept.
    """
    at = len(BOM) if content.startswith(BOM) else 0
    lost: set[int] = set()
    while at < len(content):
        begin, end = at, content.find(b"\n", at)
        line = content[at:] if end < 0 else content[at:end]
        at += len(line) + 1
        if b'"' not in line:
            line = line.removesuffix(b"\r")
            yield line, line.split(b",")
        elif found := _csv_record(content, begin, lost):
            fields, at = found
            record = content[begin:at].removesuffix(b"\n").removesuffix(b"\r")
            yield record, [f[1:-1].replace(b'""', b'"') if f[:1] == b'"' else f for f in fields]
        else:
            yield line, None


def _csv_record(content: bytes, at: int, lost: set[int]) -> tuple[list[bytes], int] | None:
    """The fields, as they are quoted, of the record at `at` and where the next begins; None if the record has no end.

    lost: where fields begin that lead to no end, in this record or one before; so each byte is looked at once or twice.
    """
    fields, begins = [], []
    while at not in lost:
        begins.append(at)
        field = _CSV_FIELD.match(content, at)
        if not field:
            break
        fields.append(field[1])
        at = field.end()
        if field[2] != b",":
            fields[-1] = fields[-1].removesuffix(b"\r")
            return fields, at
    lost.update(begins)
    return None


def read_file(path: str, longest: int | None = None) -> tuple[bytes, int]:
    """The bytes of a local file, named as Hadoop names it, and its size; of one above `longest` the first KEPT_BYTES.

    Raises Unreadable where it can't be read.
    """
    try:
        with open(plain_path(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return file.read(-1 if longest is None or size <= longest else KEPT_BYTES), size
    except OSError as error:
        raise Unreadable(f"{plain_path(path)} cannot be read: {error.strerror}") from None


def decompressed(path: str, content: bytes | memoryview) -> Iterator[bytes]:
    """What a file holds by its name's codec, piece by piece; raises Damaged after all that can be decoded.

    gzip shows a changed byte at the end of the member at the latest, bzip2 at that of the block; zstd may not at all.
    """
    suffix = path[path.rfind(".") :]
    if suffix not in UNPACKED:
        yield bytes(content)
        return
    good = done = 0
    for last in (False, True):  # what is decoded in one call with the damage is lost: so once more, in small steps
        fine, seen = good if last else 1 << 62, 0
        try:
            for begin, piece in _decoded(suffix, content, fine):
                good = begin
                seen += len(piece)
                if seen > done:
                    yield piece[len(piece) - (seen - done) :]
                    done = seen
            return
        except (OSError, EOFError, zlib.error, pa.ArrowInvalid) as error:  # OSError: bz2's and Arrow's
            if last:
                raise Damaged(str(error)) from None


def _decoded(suffix: str, content: bytes | memoryview, fine: int) -> Iterator[tuple[int, bytes]]:
    """The pieces of what a compressed file holds, and where in it each begins; by single bytes from `fine` on."""
    at = 0
    if suffix == ".zst":
        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as file:
            while piece := file.read(PIECE if at < fine else 1):
                yield at, piece
                at += len(piece)
        return
    decoder = DECODERS[suffix]()
    while at < len(content):
        data = bytes(content[at : at + (PIECE if at < fine else 1)])
        begin, at = at, at + len(data)
        while data:
            if decoder.eof:
                data = data.lstrip(b"\0")  # padding
                if not data:
                    break
                decoder = DECODERS[suffix]()
            yield begin, decoder.decompress(data)
            data = decoder.unused_data if decoder.eof else b""
    if content and not decoder.eof:
        raise EOFError("its end is missing")


def decoded_start(path: str, content: bytes, size: int) -> bytes:
    """The first `size` bytes of what a file holds, as far as `content`, its own first bytes, tells.

    Raises Damaged where that is nothing.
    """
    found = bytearray()
    try:
        for piece in decompressed(path, content):
            found += piece
            if len(found) >= size:
                break
    except Damaged:  # or cut off here
        if not found:
            raise
    return bytes(found[:size])


def _damaged(path: str, error: Damaged, salvage: bool) -> str:
    """Why a file's records end where they do; raises Unreadable if it is not to be salvaged."""
    if salvage:
        return str(error)
    remedy = "fetch it again, or keep what is before the damage with --salvage"
    raise Unreadable(f"{plain_path(path)} is truncated or damaged ({error}): {remedy}") from None


class Lines(NamedTuple):
    """Some lines of a file, each ended by LF, and the number of the first.

    missing: bytes that are left out of the first line. damage: why the file ends within the last line.
    """

    path: str
    first: int
    text: bytes
    missing: int = 0
    damage: str | None = None


def line_blocks(path: str, content: bytes | memoryview, layout: Layout) -> Iterator[Lines]:
    """All lines of a file, by pieces; a byte order mark at the start is gone. See `cut_lines`."""
    yield from cut_lines(path, decompressed(path, content), layout, BOM)


def cut_lines(path: str, pieces: Iterable[bytes], layout: Layout, mark: bytes = b"") -> Iterator[Lines]:
    """The lines of what comes in pieces, without `mark` at the start.

    Of a line that goes on for more than `layout.longest` bytes the first and those of its last piece are left. Damage
    is Unreadable, or, if the file is to be salvaged, ends the last line, which may be empty.
    """
    begun, size, first, damage = bytearray(), 0, 0, None  # begun: the line that is not ended yet; size: its bytes
    try:
        for piece in pieces:
            cut = piece.rfind(b"\n") + 1
            if cut:
                text = bytes(begun) + piece[:cut]
                yield Lines(path, first, text if first else text.removeprefix(mark), size - len(begun))
                first += text.count(b"\n")
                begun, size = bytearray(), 0
            begun += piece[cut:]
            size += len(piece) - cut
            if size > layout.longest:
                del begun[KEPT_BYTES + len(BOM) :]
    except Damaged as error:
        damage = _damaged(path, error, layout.salvage)
    text = bytes(begun) if first else bytes(begun).removeprefix(mark)
    if text or damage is not None:
        yield Lines(path, first, text + b"\n", size - len(begun), damage)


def lines_of(blocks: list[Lines], longest: int) -> pa.RecordBatch:
    """The lines of all blocks as records; those above `longest` bytes are cut to KEPT_BYTES.

    Columns bytes (binary, without LF), source (string, the path as a URL), position and size (int64, the latter before
    the cut), and damage (string), if there is any.
    """
    counts = np.array([block.text.count(b"\n") for block in blocks], np.int64)
    data = np.frombuffer(b"".join(block.text for block in blocks), np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    offsets = np.append(0, ends - np.arange(len(ends))).astype(np.int32)
    body = pa.py_buffer(data[data != ord("\n")])
    lines = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), body])
    begins = np.cumsum(counts) - counts
    sizes = np.diff(offsets).astype(np.int64)
    sizes[begins] += [block.missing for block in blocks]
    lines = _cut(lines, pa.array(sizes > longest), slice(KEPT_BYTES))
    before = np.array([block.first for block in blocks], np.int64) - begins
    sources = pa.array([quote(block.path) for block in blocks], pa.string())
    of = np.repeat(np.arange(len(blocks)), counts)
    position = pa.array(np.arange(len(ends)) + before[of])
    columns = {"bytes": lines, "source": sources.take(pa.array(of)), "position": position, "size": pa.array(sizes)}
    if any(block.damage is not None for block in blocks):
        damage: list[str | None] = [None] * len(ends)
        for block, end in zip(blocks, begins + counts, strict=True):
            damage[end - 1] = block.damage
        columns["damage"] = pa.array(damage, pa.string())
    return pa.RecordBatch.from_pydict(columns)


def _whole(path: str, content: bytes, salvage: bool) -> tuple[bytes, str | None]:
    """All that a file holds, by its name's codec, and the damage where it ends; raises Unreadable (see Layout)."""
    parts, size = [], 0
    try:
        for part in decompressed(path, content):
            parts.append(part)
            size += len(part)
            if size > WHOLE_FILE_LIMIT:
                remedy = "when decompressed: split it, or convert it to jsonl or parquet"
                raise Unreadable(f"{plain_path(path)} has more than {WHOLE_FILE_LIMIT} bytes {remedy}")
    except Damaged as error:
        return b"".join(parts), _damaged(path, error, salvage)
    return b"".join(parts), None


def csv_columns(content: bytes) -> list[str]:
    """The column names in the header of a CSV file (of which `content` may be the first part).

    Raises ValueError if it has none, is not CSV, or names a column twice.
    """
    if b"\n" not in content and b"\r" in content.rstrip(b"\r"):
        raise ValueError("its lines end in carriage returns alone: convert them to line feeds")
    header = next((fields for record, fields in csv_records(content) if record), [])
    if not header:
        raise ValueError("there is no header" if header == [] else f"the header has {BAD_QUOTE}")
    names = [name.decode("utf-8", "replace") for name in header]
    _, wrong = _places(header, names)
    if wrong:
        raise ValueError(f"{wrong}: rename one")
    return names


def _places(header: list[bytes] | None, names: list[str]) -> tuple[list[int], str]:
    """Where the columns are in a header (None: no CSV), and what is wrong with it, or ""; case does not count."""
    if header is None:
        return [], f"the header has {BAD_QUOTE}"
    folded = [name.decode("utf-8", "replace").lower() for name in header]
    for name in names:
        found = folded.count(name.lower())
        if found != 1:
            return [], f"column {name!r} occurs {found} times in the header (case does not count)"
    return [folded.index(name.lower()) for name in names], ""


def _parse_csv(raw: pa.Table, layout: Layout, aside: Aside) -> Parsed:
    names = layout.columns
    columns: dict[str, list[Any]] = {name: [] for name in (*names, "__source", "__position")}
    came: list[bytes] = []
    records = blanks = 0
    for source, packed in zip(raw["source"].to_pylist(), raw["bytes"].to_pylist(), strict=True):
        content, damage = _whole(source, packed, layout.salvage)
        ended = len(content) if damage is None else content.rfind(b"\n") + 1
        rows = csv_records(content[:ended])
        header = next((fields for record, fields in rows if record), None)
        places, wrong = _places(header, names)
        position = -1
        for position, (record, fields) in enumerate(rows):
            records += 1
            if not record:
                blanks += 1
            elif wrong or fields is None or header is None:
                aside.put(source, position, wrong or BAD_QUOTE, record)
            elif len(fields) != len(header):
                aside.put(source, position, f"{len(fields)} fields, expected {len(header)}", record)
            else:
                for name, place in zip(names, places, strict=True):
                    columns[name].append(fields[place])
                columns["__source"].append(source)
                columns["__position"].append(position)
                came.append(record)
        if damage is not None:
            records += 1
            aside.put(source, position + 1, _damage(damage), content[ended:])
    table = {name: _unchecked(pa.array(columns[name], pa.large_binary())) for name in names}
    table["__source"] = pa.array(columns["__source"], pa.string())
    table["__position"] = pa.array(columns["__position"], pa.int64())
    parsed = _parse_table(pa.table(table), layout, aside, came)
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
