"""What runs in Spark's Python workers: Arrow batches in, Arrow batches out, no Spark in between.

What a stage leaves behind are cells: each row is a kind and a piece of a Parquet file of that kind, which outputs.py
has Spark write byte by byte: pyarrow encodes the lists in C++ rather than Spark's writer row by row, yet the files go
through Spark's file systems and its commit.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.counts import (
    SHARDS,
    BlockCounts,
    TermCounts,
    TermTable,
    deal_counts,
    first_in_order,
    hash_counts,
    merge_counts,
    sort_counts,
    take_counts,
)
from models.features import FeatureConfig, Features, entry_values, weigh
from models.kept import COUNTS, counts_hash, hex_sum, shard_table
from models.splits import PARTS, Split, contents, sortable
from udfs.arrays import string_buffers
from udfs.hashing import hash_indices, hash_sum
from udfs.records import (
    KEPT_BYTES,
    REJECTS,
    Aside,
    Layout,
    Lines,
    Parsed,
    Unreadable,
    line_blocks,
    lines_of,
    one,
    parse,
    read_file,
    slices,
)
from udfs.text import CHARACTERS, tokens

MAGIC = b"PAR1"  # how a Parquet file ends, and what outputs.py makes Spark write after each cell
BLOCK_BYTES = 8 << 20  # of text that is counted at once
HELD_TERMS = 4 << 20  # of blocks' dictionaries that are added up at once
PATTERN_SECONDS = 10  # that the pattern of a tokenizer may take for a document
SLOW_DOCUMENTS = 5  # if a partition has more of them, the pattern is to blame
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
ROW_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
CELLS = "kind string, cell string"
Cells = Iterator[pa.RecordBatch]


def keep_memory() -> None:
    """Have this process keep the memory that it frees, up to 256 MB, for its next block.

    Asking the system for fresh, zeroed pages for each block's arrays took a tenth of the CPU time.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(M_MMAP_THRESHOLD, 256 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, 256 << 20)


class CellFile:
    """A Parquet file written as cells, each of which ends in MAGIC, left off here and added by Spark.

    Between row groups the four bytes are a gap that the footer's offsets allow for; at the end they are Parquet's own.
    """

    def __init__(self, kind: str, schema: pa.Schema, compression: str = "zstd") -> None:
        self.kind, self.schema, self.cells = kind, schema, 0
        self._parts = _Parts()
        self._file = pa.PythonFile(self._parts, "w")  # counts positions
        self._writer = pq.ParquetWriter(self._file, schema, **_settings(schema, compression))

    def write(self, table: pa.Table) -> pa.RecordBatch:
        """The cell that holds `table` as one row group."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._file.write(MAGIC)
        self.cells += 1
        return self._cell()

    def close(self) -> Cells:
        """The last cell, the footer, if there were others."""
        self._writer.close()
        if self.cells:
            yield self._cell()

    def _cell(self) -> pa.RecordBatch:
        return _cell(self.kind, self._parts.take())


def _settings(schema: pa.Schema, compression: str) -> dict[str, Any]:
    """How a Parquet file is written: dictionary pages pay for neither sparse entries nor packed tables, nor do their
    statistics."""
    plain = [field.name for field in schema if not pa.types.is_nested(field.type) and field.type != pa.binary()]
    return {"compression": compression, "use_dictionary": False, "write_statistics": plain}


def _cell(kind: str, content: bytes) -> pa.RecordBatch:
    assert content.endswith(MAGIC)
    # The column is declared a string, since Spark's text writer takes nothing else; its bytes are never looked at.
    offsets = pa.py_buffer(np.array([0, len(content) - len(MAGIC)], np.int32))
    text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(content))
    return pa.RecordBatch.from_arrays([pa.array([kind]), text], ["kind", "cell"])


def whole_file(kind: str, table: pa.Table) -> pa.RecordBatch:
    """A Parquet file as one cell, which may come in any order among others."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **_settings(table.schema, "zstd"))
    return _cell(kind, sink.getvalue().to_pybytes())


class PartitionFiles:
    """Rows of FEATURES by a column's value: each file holds one value's rows, and is one cell.

    Its kind is NUMBER-VALUE, the value as Spark writes it in a folder's name but for the escapes, which Spark adds as
    it makes a folder of the kind. In one cell, since Spark sorts rows where it meets more kinds than it keeps files
    open for.
    """

    def __init__(self, schema: pa.Schema, column: str) -> None:
        self._schema, self._size, self._number = schema, 0, 0
        self._longest = min(PARTITION_BYTES, (NAME_BYTES - len(column) - 1) // 3)  # a byte may be written %XX
        self._held: dict[str, list[pa.Table]] = {}
        self._stats: dict[str, dict[str, int]] = {}

    def add(self, rows: pa.Table, values: pa.Array, hashes: np.ndarray, lengths: np.ndarray) -> Cells:
        """Add rows, each with its value, its hash (uint64[n, 2]) and its document's number of tokens."""
        found = pc.fill_null(values.cast(pa.string()), "").dictionary_encode()
        codes = found.indices.to_numpy()
        for code, value in enumerate(found.dictionary.to_pylist()):
            at = np.flatnonzero(codes == code)
            part = rows.take(pa.array(at)).cast(self._schema)
            entries = pc.list_value_length(part["indices"]).to_numpy()
            self._held.setdefault(value, []).append(part)
            self._size += part.nbytes
            stats = self._stats.setdefault(value, dict.fromkeys(PARTITION_STATS, 0))
            stats["documents"] += len(at)
            stats["tokens"] += int(lengths[at].sum())
            stats["entries"] += int(entries.sum())
            stats["empty"] += int((entries == 0).sum())
            stats |= hash_parts(hash_total(stats) + hash_sum(hashes[at]))
            if len(value.encode()) > self._longest or "\0" in value:
                raise Unreadable(
                    f"holds {value[:40]!r}… in the column of --partition-by: a folder can be named after at most "
                    f"{self._longest} bytes, without NUL"
                )
        if len(self._stats) > MOST_PARTITIONS:
            raise Unreadable(
                f"holds more than {MOST_PARTITIONS} values in the column of --partition-by: give one with fewer"
            )
        if self._size > HELD_BYTES:
            yield from self._flush()

    def _flush(self) -> Cells:
        for value, tables in self._held.items():
            yield whole_file(f"{self._number}-{value or DEFAULT_PARTITION}", pa.concat_tables(tables))
        self._held, self._size, self._number = {}, 0, self._number + 1

    def close(self) -> Cells:
        """The rest, and stats."""
        yield from self._flush()
        if self._stats:
            rows = [{"value": value, **stats} for value, stats in self._stats.items()]
            names = [("value", pa.string()), *((name, pa.int64()) for name in PARTITION_STATS)]
            yield whole_file("stats", pa.Table.from_pylist(rows, pa.schema(names)))


class _Parts(io.RawIOBase):
    """Collects what is written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def to_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream, compressed by LZ4."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_bytes(data: pa.Scalar) -> pa.Table:
    """The table that `to_bytes` wrote, each column one chunk."""
    return pa.ipc.open_stream(data.as_buffer()).read_all().combine_chunks()


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def pack(terms: pa.Array, **numbers: np.ndarray) -> bytes:
    """Terms and non-negative numbers for each as one row of an Arrow IPC stream: the text, the lengths, the numbers.

    Numbers take as few bytes as the largest needs.
    """
    text, offsets = string_buffers(terms)
    columns = [pa.BinaryArray.from_buffers(pa.binary(), 1, [None, _row(text), pa.py_buffer(text)])]
    for values in (np.diff(offsets), *numbers.values()):
        narrow = values.astype(np.min_scalar_type(int(values.max(initial=0))))
        columns.append(pa.ListArray.from_arrays(pa.Array.from_buffers(pa.int32(), 2, [None, _row(values)]), narrow))
    return to_bytes(pa.table(columns, ["text", "length", *numbers]))


def _row(values: np.ndarray) -> pa.Buffer:
    """The offsets of one list or string that holds all values."""
    return pa.py_buffer(np.array([0, len(values)], np.int32))


def unpack(data: pa.Scalar) -> tuple[pa.Array, list[np.ndarray]]:
    """The terms (large_string) and numbers (int64) that `pack` wrote."""
    text, *lists = from_bytes(data).columns
    length, *numbers = (column.chunk(0).values.to_numpy().astype(np.int64) for column in lists)
    offsets = np.append(0, np.cumsum(length))
    terms = pa.LargeStringArray.from_buffers(len(length), pa.py_buffer(offsets), text.chunk(0).buffers()[2])
    return terms, numbers


def pack_counts(counts: TermCounts) -> bytes:
    """Term counts as bytes."""
    return pack(counts.terms, df=counts.df, cf=counts.cf)


def unpack_counts(data: pa.Scalar) -> TermCounts:
    """The term counts that `pack_counts` wrote."""
    terms, (df, cf) = unpack(data)
    return TermCounts(terms, df, cf)


# -- count: raw records -> blocks, rejects, stats ---------------------------------------------------------------------

BLOCK_CELLS = ("terms", "documents", "hashes", "tokens")
BLOCKS = pa.schema([("block", pa.int64()), *((name, pa.binary()) for name in BLOCK_CELLS)])
BLOCK_COLUMNS = "block bigint, terms binary, documents binary, hashes binary, tokens binary"
TERMS = pa.schema(
    [("block", pa.int64()), ("row", pa.int32()), ("term", pa.list_(pa.string())), ("tf", pa.list_(pa.int32()))]
)
TERM_COLUMNS = "block bigint, row int, term array<string>, tf array<int>"
DEALT = pa.schema([("shard", pa.int32()), ("terms", pa.binary())])
DEALT_COLUMNS = "shard int, terms binary"
COUNT_STATS = (
    "records",
    "documents",
    "rejects",
    "blanks",
    "repaired",
    "tokens",
    "dealt_terms",
    "unhashed_terms",
)


def count(
    batches: Iterator[pa.RecordBatch],
    partition: int,
    config: str,
    layout: str,
    with_terms: bool = False,
    with_tokens: bool = False,
    hash_report: bool = False,
    deal: bool = True,
) -> Cells:
    """Parse raw records and count the terms of their documents, in blocks of about BLOCK_BYTES of text.

    A block's cell holds the terms of its dictionary, its documents (id, label, carried columns, their content, and the
    dictionary ids and tf of their terms), and the documents' record hashes where they have no id. With `deal`, the
    blocks' df and cf are added up for as many as fit, and dealt to shards. with_terms: each document's terms and tf
    become a row of strings and numbers instead, and nothing is dealt. with_tokens: the block keeps its documents'
    TOKENS, too. hash_report: terms are dealt before they are hashed, too.
    """
    settings = FeatureConfig.from_json(config)
    where = Layout(**json.loads(layout))
    blocks, rejects = CellFile("blocks", BLOCKS, "none"), CellFile("rejects", REJECTS)
    dealt, terms = CellFile("dealt", DEALT, "none"), CellFile("terms", TERMS)
    unhashed = CellFile("unhashed", DEALT, "none")
    held: list[list[TermCounts]] = []  # of each block, by shard
    held_unhashed: list[list[TermCounts]] = []
    held_terms = 0
    stats = dict.fromkeys(COUNT_STATS, 0)
    for found in count_blocks(records(batches, where), settings, where, stats):
        if not isinstance(found, Block):
            yield rejects.write(found)
            continue
        part, hashes, counted = found
        if settings.hash_size:
            if hash_report:
                held_unhashed.append(deal_by_index(counted.dictionary, settings.hash_size))
                held_terms += len(counted.dictionary.df)
            counted = hash_counts(counted, settings.hash_size)
        number = partition << 32 | blocks.cells
        block = {
            "block": [number],
            "terms": [None if with_terms else pack(counted.dictionary.terms)],
            "documents": [to_bytes(_with_counts(part, counted, with_terms))],
            "hashes": [None if hashes is None else hashes.tobytes()],
            "tokens": [_tokens(part["text"], settings) if with_tokens else None],
        }
        yield blocks.write(pa.table(block, BLOCKS))
        if with_terms:
            yield terms.write(_terms(number, counted))
        elif deal:
            held.append(deal_counts(counted.dictionary, SHARDS))
            held_terms += len(counted.dictionary.df)
        if held_terms > HELD_TERMS:
            if held:
                yield dealt.write(_dealt(held, stats, "dealt_terms"))
            if held_unhashed:
                yield unhashed.write(_dealt(held_unhashed, stats, "unhashed_terms"))
            held, held_unhashed, held_terms = [], [], 0
    if held:
        yield dealt.write(_dealt(held, stats, "dealt_terms"))
    if held_unhashed:
        yield unhashed.write(_dealt(held_unhashed, stats, "unhashed_terms"))
    yield from dealt.close()
    yield from terms.close()
    yield from unhashed.close()
    yield from blocks.close()
    yield from rejects.close()
    yield from _stats(stats)


class Block(NamedTuple):
    """Documents that were counted together, the hashes of their records where these have no id, and their terms."""

    documents: pa.Table
    hashes: np.ndarray | None
    counts: BlockCounts


def count_blocks(
    tables: Iterable[pa.Table], settings: FeatureConfig, layout: Layout, stats: dict[str, int]
) -> Iterator[pa.Table | Block]:
    """Parse raw records and count their documents, in blocks of about BLOCK_BYTES of text: REJECTS, and blocks.

    Terms are not hashed yet. Records, documents, rejects, blanks, repaired and tokens are added to `stats`.
    """
    block_bytes = BLOCK_BYTES // (4 if settings.text.tokenizer in CHARACTERS else 1)  # each is a token
    slow = 0
    for raw in tables:
        parsed = parse(raw, layout)
        stats["records"] += parsed.records
        stats["documents"] += parsed.documents.num_rows
        stats["rejects"] += parsed.rejects.num_rows - parsed.repaired
        stats["blanks"] += parsed.blanks
        stats["repaired"] += parsed.repaired
        if parsed.rejects.num_rows:
            yield parsed.rejects
        for begin, end in slices(parsed.documents, block_bytes):
            kept, counted, late = count_in_time(settings, parsed, begin, end, SLOW_DOCUMENTS - slow)
            if late.rejected:
                slow += late.rejected
                stats["documents"] -= late.rejected
                stats["rejects"] += late.rejected
                yield late.table()
            part = parsed.documents.take(kept) if late.rejected else parsed.documents.slice(begin, end - begin)
            if part.num_rows:
                stats["tokens"] += int(counted.lengths.sum())
                yield Block(part, None if parsed.hashes is None else parsed.hashes[kept], counted)


def deal_terms(batches: Iterator[pa.RecordBatch], partition: int) -> Cells:
    """Deal rows of term, df, cf (each term once) to shards as `count` does; stats."""
    dealt, stats = CellFile("dealt", DEALT, "none"), dict.fromkeys(COUNT_STATS, 0)
    for table in _joined(batches):
        terms, df, cf = (one(table[name]) for name in ("term", "df", "cf"))
        counts = TermCounts(terms.cast(pa.large_string()), df.to_numpy(), cf.to_numpy())
        yield dealt.write(_dealt([deal_counts(counts, SHARDS)], stats, "dealt_terms"))
    yield from dealt.close()
    yield from _stats(stats)


class SlowPattern(ValueError):
    """A tokenizer's pattern that takes too long for many documents: one line with the pattern and one of them."""


def count_in_time(
    settings: FeatureConfig, parsed: Parsed, begin: int, end: int, most: int
) -> tuple[np.ndarray, BlockCounts, Aside]:
    """The counts of the documents begin:end, save those for which the pattern takes too long: these go aside.

    Returns the rows that were counted, too. Raises SlowPattern if more than `most` go aside.
    """
    text, kept, aside = parsed.documents["text"].slice(begin, end - begin), np.arange(begin, end), Aside()
    try:
        with time_limit(PATTERN_SECONDS if settings.text.pattern else None):
            return kept, settings.count_terms(text), aside
    except TimeoutError:
        pass
    for row in range(begin, end):
        one = parsed.documents["text"].slice(row, 1)
        try:
            with time_limit(PATTERN_SECONDS):
                settings.count_terms(one)
        except TimeoutError:
            source, position = parsed.place(row)
            why = f"takes more than {PATTERN_SECONDS} s"
            aside.put(source, position, f"the pattern {why}", one[0].as_buffer()[:KEPT_BYTES].to_pybytes())
            kept = kept[kept != row]
            if aside.rejected > most:
                raise SlowPattern(
                    f"pattern {settings.text.pattern!r} {why} for each of {aside.rejected} documents, such as record "
                    f"{position} of {source}: write it so that a text matches in one way only"
                ) from None
    return kept, settings.count_terms(parsed.documents["text"].take(kept)), aside


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError if the block takes more CPU time, unless it is in compiled code, which a signal does not end.

    Only in the main thread, where signals arrive; None is no limit.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: object) -> None:
        raise TimeoutError

    handler, timer = signal.signal(signal.SIGVTALRM, late), signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, *timer)
        signal.signal(signal.SIGVTALRM, handler)


def _dealt(held: list[list[TermCounts]], stats: dict[str, int], name: str) -> pa.Table:
    """The sum of some blocks' counts, a row for each shard that has any (and for the first, so that there is one)."""
    shards = [merge_counts(list(parts)) for parts in zip(*held, strict=True)]
    stats[name] += sum(len(counts.df) for counts in shards)
    rows = [number for number, counts in enumerate(shards) if len(counts.df) or not number]
    cells = [pack_counts(shards[number]) for number in rows]
    return pa.table({"shard": rows, "terms": cells}, DEALT)


def records(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[pa.Table]:
    """Raw records as `parse` takes them, about BLOCK_BYTES together, of the batches that Spark hands over."""
    yield from _joined(_numbered(_opened(batches, layout)))


def _opened(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[pa.RecordBatch]:
    """The batches with whole files as records: those without `bytes` are opened here, and cut into lines if wanted.

    A file is whole where lines have no `start`.
    """
    lines = layout.format in ("text", "jsonl")
    for batch in batches:
        if "bytes" not in batch.schema.names or not batch.num_rows:  # a table
            yield batch
            continue
        whole = pc.is_null(batch["start"] if lines else batch["bytes"])
        if whole.true_count < batch.num_rows:
            yield batch.filter(pc.invert(whole)) if whole.true_count else batch
        if whole.true_count:
            files = _contents(batch.filter(whole), layout)
            yield from _lines(files, layout) if lines else _whole(files)


def _contents(batch: pa.RecordBatch, layout: Layout) -> Iterator[tuple[str, bytes | memoryview, int]]:
    """Paths, contents and sizes of files; of files that are too large to be documents the first KEPT_BYTES."""
    longest = layout.longest if layout.format == "files" else None
    for path, content in zip(batch["source"].to_pylist(), batch["bytes"], strict=True):
        if content.is_valid:
            yield path, memoryview(content.as_buffer()), len(content.as_buffer())
        else:
            yield path, *read_file(path, longest)


def _whole(files: Iterator[tuple[str, bytes | memoryview, int]]) -> Iterator[pa.RecordBatch]:
    held: list[tuple[str, bytes | memoryview, int]] = []
    size = 0
    for path, content, full in files:
        held.append((path, content, full))
        size += len(content)
        if size > BLOCK_BYTES:
            yield _files(held)
            held, size = [], 0
    if held:
        yield _files(held)


def _files(held: list[tuple[str, bytes | memoryview, int]]) -> pa.RecordBatch:
    paths, contents, sizes = zip(*held, strict=True)
    columns = {"bytes": pa.array(contents, pa.binary()), "source": pa.array(paths), "size": pa.array(sizes)}
    return pa.RecordBatch.from_pydict(columns)


def _lines(files: Iterator[tuple[str, bytes | memoryview, int]], layout: Layout) -> Iterator[pa.RecordBatch]:
    held: list[Lines] = []
    size = 0
    for path, content, _ in files:
        for block in line_blocks(path, content, layout):
            held.append(block)
            size += len(block.text)
            if size > BLOCK_BYTES:
                yield lines_of(held, layout.longest)
                held, size = [], 0
    if held:
        yield lines_of(held, layout.longest)


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches with a column `position` in place of `start`: the record's number in its part of a file, from 0.

    A source that starts in mid-file gets "@" and the byte at which its part starts.
    """
    last: tuple[object, object] = (None, None)
    seen = 0
    for batch in batches:
        if "start" not in batch.schema.names:
            yield batch
            continue
        source, start = batch["source"], batch["start"].to_numpy()
        codes = source.dictionary_encode().indices.to_numpy()
        new = np.flatnonzero((np.diff(codes) != 0) | (np.diff(start) != 0)) + 1
        firsts = np.concatenate([[0], new])
        position = np.arange(len(start)) - np.repeat(firsts, np.diff(np.append(firsts, len(start))))
        if len(start):
            if last == (source[0], start[0]):
                position[: firsts[1] if len(firsts) > 1 else len(start)] += seen
            last, seen = (source[-1], start[-1]), int(position[-1]) + 1
        mid_file = pc.binary_join_element_wise(source, pa.array(start).cast(pa.string()), "@")
        source = pc.if_else(pc.equal(batch["start"], 0), source, mid_file)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {"source": source}
        columns["start"] = pa.array(position)
        names = ["position" if name == "start" else name for name in columns]
        yield pa.RecordBatch.from_arrays(list(columns.values()), names)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of consecutive batches that hold about BLOCK_BYTES together."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and batch.schema != held[0].schema:  # lines that Spark read, and those of whole files
            yield pa.Table.from_batches(held)
            held, size = [], 0
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= BLOCK_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _terms(block: int, counts: BlockCounts) -> pa.Table:
    """A row for each document of a block, with its terms and their tf."""
    offsets = pa.array(counts.indptr.astype(np.int32))
    terms = counts.dictionary.terms.take(pa.array(counts.ids)).cast(pa.string())
    rows = np.arange(len(counts.lengths), dtype=np.int32)
    lists = [pa.ListArray.from_arrays(offsets, values) for values in (terms, pa.array(counts.tf.astype(np.int32)))]
    return pa.table([np.full(len(rows), block), rows, *lists], schema=TERMS)


def _tokens(text: pa.ChunkedArray, settings: FeatureConfig) -> bytes:
    """The documents' TOKENS without the id, as a table of list columns."""
    found = tokens(text, settings.text)
    return to_bytes(pa.table(found.flatten(), found.type.names))


def _with_counts(documents: pa.Table, counts: BlockCounts, lengths_only: bool) -> pa.Table:
    """Documents without their text; in its place its hash, lists of dictionary ids and tf, and the number of tokens."""
    documents = documents.append_column("content", contents(documents["text"]))
    offsets = pa.array(counts.indptr.astype(np.int32))
    for name, values in () if lengths_only else (("__ids", counts.ids), ("__tf", counts.tf)):
        documents = documents.append_column(name, pa.ListArray.from_arrays(offsets, pa.array(values)))
    return documents.append_column("__length", pa.array(counts.lengths)).drop_columns(["text"])


def _block_counts(terms: pa.Array, documents: pa.Table) -> BlockCounts:
    """What `_with_counts` put into a block's documents; df and cf have gone their own way."""
    ids, tf = _column(documents, "__ids"), _column(documents, "__tf")
    lengths = _column(documents, "__length").to_numpy()
    indptr = ids.offsets.to_numpy().astype(np.int64)
    none = np.empty(0, np.int64)
    dictionary = TermCounts(terms, none, none)
    return BlockCounts(dictionary, indptr, ids.values.to_numpy(), tf.values.to_numpy(), lengths)


def _stats(stats: dict[str, int]) -> Cells:
    file = CellFile("stats", pa.schema([(name, pa.int64()) for name in stats]))
    yield file.write(pa.table({name: [value] for name, value in stats.items()}, file.schema))
    yield from file.close()


HASH_PARTS = (
    "hash_0",
    "hash_1",
    "hash_2",
    "hash_3",
)  # a sum of hashes, 32 bits at a time, so that sums of it can't overflow


def hash_parts(total: int) -> dict[str, int]:
    """A sum of 128-bit hashes as HASH_PARTS."""
    return {name: total >> 32 * part & 0xFFFFFFFF for part, name in enumerate(HASH_PARTS)}


def hash_total(stats: dict[str, int]) -> int:
    """The sum whose parts were added up in `stats`."""
    return sum(stats[name] << 32 * part for part, name in enumerate(HASH_PARTS))


def hash_of(stats: dict[str, int]) -> str:
    """The same, modulo 2^128, as 32 hex digits."""
    return hex_sum(hash_total(stats))


# -- split: blocks -> the training part's terms, stats ---------------------------------------------------------------

OF_PARTS = tuple((part, f"{part}_documents", f"{part}_tokens") for part in PARTS)
SPLIT_STATS = (*(name for _, *names in OF_PARTS for name in names), "dealt_terms")


def _parts_of(documents: pa.Table, split: str) -> np.ndarray:
    """The part of each document, int8[n] as its place in PARTS; `split` is the JSON of a Split."""
    of = Split.from_dict(json.loads(split))
    try:
        return of.of(documents)
    except ValueError as error:
        raise _unusable(of.column, error) from None


def _unusable(column: str | None, error: ValueError) -> Unreadable:
    return Unreadable(f"has, in column {column} (--split), what can't be used: {error}")


def block_times(batches: Iterator[pa.RecordBatch], partition: int, column: str) -> Iterator[pa.RecordBatch]:
    """The times of blocks' documents, as `sortable` gives them, with how many documents of a block have each."""
    for batch in batches:
        for cell in batch["documents"]:
            try:
                found = sortable(from_bytes(cell)[column]).value_counts()
            except ValueError as error:
                raise _unusable(column, error) from None
            at = found.field("values")
            columns = [at.cast(pa.string()) if pa.types.is_large_string(at.type) else at, found.field("counts")]
            yield pa.RecordBatch.from_arrays(columns, ["at", "documents"])


def deal_training(batches: Iterator[pa.RecordBatch], partition: int, split: str, deal: bool) -> Cells:
    """Deal the terms of the training part's documents in blocks to shards, as `count` does of all; stats.

    deal: else there are only stats.
    """
    dealt, stats = CellFile("dealt", DEALT, "none"), dict.fromkeys(SPLIT_STATS, 0)
    held: list[list[TermCounts]] = []
    held_terms = 0
    for batch in batches:
        for terms, cell in zip(batch["terms"], batch["documents"], strict=True):
            documents = from_bytes(cell)
            parts, lengths = _parts_of(documents, split), _column(documents, "__length").to_numpy()
            for code, (_, number, tokens_of) in enumerate(OF_PARTS):
                stats[number] += int((parts == code).sum())
                stats[tokens_of] += int(lengths[parts == code].sum())
            if deal:
                held.append(deal_counts(_training_counts(unpack(terms)[0], documents.filter(parts == 0)), SHARDS))
                held_terms += sum(len(counts.df) for counts in held[-1])
            if held_terms > HELD_TERMS:
                yield dealt.write(_dealt(held, stats, "dealt_terms"))
                held, held_terms = [], 0
    if held:
        yield dealt.write(_dealt(held, stats, "dealt_terms"))
    yield from dealt.close()
    yield from _stats(stats)


def _training_counts(terms: pa.Array, documents: pa.Table) -> TermCounts:
    """The terms of some of a block's documents, which may not be all of the block's, with df and cf among them."""
    counts = _block_counts(terms, documents.combine_chunks())
    df = np.bincount(counts.ids, minlength=len(terms))
    cf = np.bincount(counts.ids, counts.tf, minlength=len(terms)).astype(np.int64)  # exact below 2^53
    return take_counts(TermCounts(terms, df, cf), np.flatnonzero(df))


def training_rows(batches: Iterator[pa.RecordBatch], partition: int, split: str) -> Iterator[pa.RecordBatch]:
    """Block and row of the training part's documents."""
    for batch in batches:
        for block, cell in zip(batch["block"].to_pylist(), batch["documents"], strict=True):
            row = np.flatnonzero(_parts_of(from_bytes(cell), split) == 0).astype(np.int32)
            yield pa.RecordBatch.from_arrays([pa.array(np.full(len(row), block)), pa.array(row)], ["block", "row"])


# -- terms: shards -> the corpus's terms with df and cf, or the first of them ----------------------------------------

FIRST_TERMS = "terms binary, last string"


def first_terms(
    batches: Iterator[pa.RecordBatch], partition: int, low: float, high: float, most: int | None
) -> Iterator[pa.RecordBatch]:
    """Add up the terms of each shard; of those with low <= df <= high the first `most` in order (cf desc, term asc).

    A row for each shard: its terms, and the last of them if there were more (so that others might have come next).
    """
    for _, counts in _shards(batches):
        within = np.flatnonzero((counts.df >= low) & (counts.df <= high))
        rows = first_in_order(counts, within, most)
        last = counts.terms[rows[-1]].as_py() if len(rows) < len(within) else None
        columns = [pa.array([pack_counts(take_counts(counts, rows))], pa.binary()), pa.array([last], pa.string())]
        yield pa.RecordBatch.from_arrays(columns, ["terms", "last"])


def _shards(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, TermCounts]]:
    """The sum of each shard's dealt terms."""
    held: dict[int, list[pa.Scalar]] = {}  # packed until their turn: so they take a fraction of the memory
    for batch in batches:
        for shard, cell in zip(batch["shard"].to_pylist(), batch["terms"], strict=True):
            held.setdefault(shard, []).append(cell)
    for shard, cells in held.items():
        yield shard, merge_counts([unpack_counts(cell) for cell in cells])


KEPT_STATS = ("terms", *HASH_PARTS)


def keep_counts(batches: Iterator[pa.RecordBatch], partition: int) -> Cells:
    """Add up the terms of each shard: all of them as COUNTS, a row group for each shard; stats."""
    file = CellFile("counts", COUNTS)
    terms = total = 0
    for shard, counts in _shards(batches):
        if len(counts.df):
            yield file.write(shard_table(shard, counts))
            terms += len(counts.df)
            total += counts_hash(counts)
    yield from file.close()
    yield from _stats({"terms": terms, **hash_parts(total)})


# -- hash report: shards of terms that were hashed -> report, stats -------------------------------------------------

REPORT = pa.schema(
    [
        ("index", pa.int32()),
        ("terms", pa.list_(pa.string())),
        ("df", pa.list_(pa.int64())),
        ("cf", pa.list_(pa.int64())),
        ("collisions", pa.int32()),
    ]
)
REPORT_STATS = ("hashed_terms", "hashed_indices")


def deal_by_index(counts: TermCounts, size: int) -> list[TermCounts]:
    """Part term counts among SHARDS, terms with the same index among `size` to the same one."""
    shard = hash_indices(counts.terms, size) % SHARDS
    dealt = take_counts(counts, np.argsort(shard, kind="stable"))
    ends = np.append(0, np.cumsum(np.bincount(shard, minlength=SHARDS)))
    slices = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
    return [TermCounts(dealt.terms.slice(a, b - a), dealt.df[a:b], dealt.cf[a:b]) for a, b in slices]


def write_hash_report(batches: Iterator[pa.RecordBatch], partition: int, size: int) -> Cells:
    """The terms of each index among `size` with df and cf, in order (cf desc, term asc); a cell for each shard."""
    report = CellFile("report", REPORT)
    stats = dict.fromkeys(REPORT_STATS, 0)
    for _, counts in _shards(batches):
        if not len(counts.df):
            continue
        counts = sort_counts(counts)
        index = hash_indices(counts.terms, size)
        order = np.lexsort((-counts.cf, index))  # stable
        counts, index = take_counts(counts, order), index[order]
        begins = np.flatnonzero(np.append(True, np.diff(index)))
        offsets = np.append(begins, len(index)).astype(np.int32)
        columns = {"terms": counts.terms.cast(pa.string()), "df": pa.array(counts.df), "cf": pa.array(counts.cf)}
        lists = {name: pa.ListArray.from_arrays(offsets, column) for name, column in columns.items()}
        rows = {"index": index[begins], **lists, "collisions": np.diff(offsets) - 1}
        yield report.write(pa.table(rows, REPORT))
        stats["hashed_terms"] += len(index)
        stats["hashed_indices"] += len(begins)
    yield from report.close()
    yield from _stats(stats)


# -- repeats: which of equal records without an id is the how many-th ------------------------------------------------


def block_records(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    """The record hashes of each block, with how often the block holds each."""
    for batch in batches:
        for block, cell in zip(batch["block"], batch["hashes"], strict=True):
            hashes, number = np.unique(_void(cell), return_counts=True)
            size = pa.py_buffer(np.arange(len(hashes) + 1, dtype=np.int32) * 16)
            record = pa.BinaryArray.from_buffers(pa.binary(), len(hashes), [None, size, pa.py_buffer(hashes.tobytes())])
            columns = [pa.array([block.as_py()] * len(hashes), pa.int64()), record, pa.array(number)]
            yield pa.RecordBatch.from_arrays(columns, ["block", "record", "records"])


def _void(cell: pa.Scalar) -> np.ndarray:
    return np.frombuffer(cell.as_buffer(), "V16")


def record_ids(cell: pa.Scalar, earlier: dict[bytes, int]) -> pa.Array:
    """Ids of a block's records: the hash in hex, and for its k-th repetition "-k"; `earlier` counts other blocks'."""
    hashes = _void(cell)
    distinct, of = np.unique(hashes, return_inverse=True)
    order = np.argsort(of, kind="stable")
    firsts = np.searchsorted(of[order], np.arange(len(distinct)))
    repetition = np.empty(len(hashes), np.int64)
    repetition[order] = np.arange(len(hashes)) - firsts[of[order]]
    if earlier:
        repetition += np.array([earlier.get(record.tobytes(), 0) for record in distinct])[of]
    digits = np.frombuffer(hashes.tobytes().hex().encode(), np.uint8)
    size = pa.py_buffer(np.arange(len(hashes) + 1, dtype=np.int32) * 32)
    names = pa.StringArray.from_buffers(len(hashes), size, pa.py_buffer(digits))
    suffixed = pc.binary_join_element_wise(names, pa.array(repetition).cast(pa.string()), "-")
    return pc.if_else(pa.array(repetition == 0), names, suffixed)


# -- features: blocks + vocabulary -> features, stats ----------------------------------------------------------------

FEATURE_STATS = ("documents", "entries", "empty", *HASH_PARTS)
PARTITION_STATS = (*FEATURE_STATS, "tokens")
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hive's and Spark's name for null and for an empty string
NAME_BYTES = 255  # of a file or folder
PARTITION_BYTES = 80  # of a value: escaped, it must fit into a file's name
MOST_PARTITIONS = 10_000
HELD_BYTES = 64 << 20  # of rows that are held to be written by partition


def write_features(
    batches: Iterator[pa.RecordBatch],
    partition: int,
    config: str,
    table: str,
    mean_length: float,
    unseen_idf: float,
    schema: str,
    partition_by: str = "",
    split: str = "",
) -> Cells:
    """Weigh the blocks' documents over the vocabulary in the file `table` (a name that Spark brought); FEATURES, stats.

    `schema` is the JSON of the rows' Spark schema, kept in each file so that Spark reads just that again. partition_by:
    a column that is left out of it, and by whose values the rows go to files. split: the JSON of a Split.
    """
    if not os.path.isabs(table):
        from pyspark import SparkFiles

        table = SparkFiles.get(table)
    settings = FeatureConfig.from_json(config)
    vocabulary = TermTable.open(table)

    def blocks() -> Iterator[tuple[pa.Table, Features]]:
        for batch in batches:
            for row in range(batch.num_rows):
                documents = _with_ids(batch, row)
                counts = _block_counts(unpack(batch["terms"][row])[0], documents)
                yield documents, weigh(counts, vocabulary, settings, mean_length, unseen_idf)

    yield from _feature_cells(blocks(), schema, partition_by, split)


def write_joined(
    batches: Iterator[pa.RecordBatch],
    partition: int,
    config: str,
    mean_length: float,
    schema: str,
    partition_by: str,
    split: str,
) -> Cells:
    """Weigh documents whose terms were joined with the vocabulary; FEATURES, stats.

    Sorted by block, row and index come, for each block, its documents (row -1), then its entries with their idf.
    """
    settings = FeatureConfig.from_json(config)

    def blocks() -> Iterator[tuple[pa.Table, Features]]:
        for documents, entries in _regrouped(batches):
            row, index, tf, idf = (_column(entries, name).to_numpy() for name in ("row", "index", "tf", "idf"))
            indptr = np.searchsorted(row, np.arange(documents.num_rows + 1))
            each, lengths = np.arange(len(idf), dtype=np.int32), _column(documents, "__length").to_numpy()
            values = entry_values(indptr, each, tf.copy(), idf, lengths, settings, mean_length)
            yield documents, Features(indptr, index, values)

    yield from _feature_cells(blocks(), schema, partition_by, split)


def _regrouped(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The documents of each block, and its entries."""
    documents: pa.Table | None = None
    entries: list[pa.RecordBatch] = []
    for batch in batches:
        starts = [*np.flatnonzero(batch["row"].to_numpy() < 0), batch.num_rows]
        entries.append(batch.slice(0, starts[0]))
        for start, end in itertools.pairwise(starts):
            if documents is not None:
                yield documents, pa.Table.from_batches(entries).combine_chunks()
            documents, entries = from_bytes(batch["documents"][start]), [batch.slice(start + 1, end - start - 1)]
    if documents is not None:
        yield documents, pa.Table.from_batches(entries).combine_chunks()


NAMED = "block bigint, documents binary"


def name_documents(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    """The documents of blocks with their ids.

    Without the lists of repeats: Spark measures a batch at each row, which takes a column of lists quadratic time.
    """
    for batch in batches:
        documents = pa.array([to_bytes(_with_ids(batch, row)) for row in range(batch.num_rows)], pa.binary())
        yield pa.RecordBatch.from_arrays([batch["block"], documents], ["block", "documents"])


def _with_ids(batch: pa.RecordBatch, row: int) -> pa.Table:
    """A block's documents, with ids made from their record hashes where they have none of their own."""
    documents = from_bytes(batch["documents"][row])
    if not batch["hashes"][row].is_valid:
        return documents
    earlier = {item["record"]: item["earlier"] for item in batch["repeats"][row].as_py() or []}
    return documents.append_column("id", record_ids(batch["hashes"][row], earlier))


def _feature_cells(blocks: Iterator[tuple[pa.Table, Features]], schema: str, partition_by: str, split: str) -> Cells:
    """FEATURES and stats of blocks of documents; with `partition_by`, in a file for each value of that column."""
    names = [field["name"] for field in json.loads(schema)["fields"]]
    file: CellFile | None = None
    files: PartitionFiles | None = None
    stats = dict.fromkeys(FEATURE_STATS, 0)
    total = 0
    for documents, features in blocks:
        indices, values = features.arrow()
        if split and "split" not in documents.column_names:
            documents = documents.append_column("split", pa.array(PARTS).take(pa.array(_parts_of(documents, split))))
        whole = documents.append_column("indices", indices).append_column("values", values).select(names)
        label = next((_column(documents, name) for name in ("label", "labels") if name in names), None)
        hashes = features.hashes(_column(documents, "id"), label)
        if partition_by:
            kept = whole.schema.with_metadata({ROW_SCHEMA_KEY: schema.encode()})
            files = files or PartitionFiles(kept, partition_by)
            lengths = _column(documents, "__length").to_numpy()
            yield from files.add(whole, _column(documents, partition_by), hashes, lengths)
            continue
        total += hash_sum(hashes)
        stats["documents"] += documents.num_rows
        stats["entries"] += len(features.indices)
        stats["empty"] += int((np.diff(features.indptr) == 0).sum())
        if file is None:
            file = CellFile("features", whole.schema.with_metadata({ROW_SCHEMA_KEY: schema.encode()}))
        yield file.write(whole.cast(file.schema))
    if files:
        yield from files.close()
    if file is None:
        return
    yield from file.close()
    yield from _stats({**stats, **hash_parts(total)})


# -- tokens: blocks -> TOKENS ------------------------------------------------------------------------------------------


def write_tokens(batches: Iterator[pa.RecordBatch], partition: int) -> Cells:
    """TOKENS of blocks: the lists that count kept of each document, exploded, with its id."""
    file: CellFile | None = None
    for batch in batches:
        for row in range(batch.num_rows):
            ids = _column(_with_ids(batch, row), "id")
            lists = from_bytes(batch["tokens"][row])
            of = pc.list_parent_indices(_column(lists, "token"))
            columns = {name: _column(lists, name).flatten() for name in lists.column_names}
            exploded = pa.table({"id": ids.take(of), **columns})
            file = file or CellFile("tokens", exploded.schema)
            yield file.write(exploded)
    if file is not None:
        yield from file.close()
